"""One pattern of a command line: which suites it means, and which of their jobs.

    dcp/*                                   suites, by a glob over their names
    test/registered/dcp/test_x.py           the suite that stands for it; with a source also that very file
    dcp/parity[dcp=4,page=16]               the points of a suite's matrix with these values
    sglang/dcp_units@cpu[file=*layout*]     as job ids are written; a value may be a glob

Parsed by `select` and `select_jobs`; a pattern never fails here, it only matches or not.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase

from harness.suites.jobs import Job
from harness.suites.matrix import MatrixValue, written
from harness.suites.model import ProfileName
from harness.suites.suite import Suite

# Brackets without `NAME=` stay what they are in a glob: one character of several. Names have neither @ nor =.
_PARTS = re.compile(
    rf"(?P<suite>.+?)(?:@(?P<profile>{'|'.join(ProfileName)}))?(?:\[(?P<point>[a-z][a-z0-9_]*=.*)\])?",
    re.DOTALL,
)
# A comma inside a value is no separator.
_BETWEEN = re.compile(r",(?=[a-z][a-z0-9_]*=)")
_FILE = "file"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pattern:
    """`text` as it was typed; `profile` and `point` are None where it names none."""

    text: str
    suite: str
    profile: ProfileName | None = None
    point: str | None = None

    @property
    def is_narrow(self) -> bool:
        """Whether it means only some jobs of the suites that it names."""
        return self.profile is not None or self.point is not None

    def names(self, suite: Suite) -> bool:
        """Whether it means the suite by name or upstream name, whatever it then keeps of its jobs."""
        return fnmatchcase(suite.name, self.suite) or (
            suite.upstream is not None and suite.upstream == self.suite
        )

    def may_be_file_of(self, suite: Suite) -> bool:
        """Whether it is the name of a test file that the suite would take from a source; that may lack it."""
        patterns = (
            each for point in suite.points if (tests := point.file.source_tests) for each in tests.files
        )
        return any(fnmatchcase(self.text, each) for each in patterns)

    def wants(self, job: Job, suite: Suite) -> bool:
        """Whether it means this job of the suite."""
        is_file = job.source_file is not None and job.source_file.path == self.text
        return is_file or (self.names(suite) and self.keeps(job))

    def keeps(self, job: Job) -> bool:
        """Whether it means this job, if it means its suite."""
        # Before a source is given its files are not known, and none can be ruled out.
        file_is_open = job.source_tests is not None and job.source_file is None
        return self.profile in (None, job.profile) and self._at(job.matrix, file_is_open=file_is_open)

    def _at(self, matrix: Mapping[str, MatrixValue], *, file_is_open: bool) -> bool:
        values = {name: written(value) for name, value in matrix.items()}
        if self.point is None or self.point == ",".join(f"{name}={value}" for name, value in values.items()):
            return True
        parts = _BETWEEN.split(self.point)
        wanted = dict(part.split("=", 1) for part in parts)
        if len(wanted) < len(parts):
            return False  # a name that comes twice belongs to a value, and that was compared as a whole
        if file_is_open:
            wanted.pop(_FILE, None)
        return all(
            name in values and (values[name] == value or fnmatchcase(values[name], value))
            for name, value in wanted.items()
        )


def parse_pattern(text: str) -> Pattern:
    """What was typed, in its parts; any text is some pattern."""
    parts = _PARTS.fullmatch(text)
    if parts is None:  # the empty text
        return Pattern(text=text, suite=text)
    profile = parts["profile"]
    return Pattern(
        text=text,
        suite=parts["suite"],
        profile=ProfileName(profile) if profile else None,
        point=parts["point"],
    )
