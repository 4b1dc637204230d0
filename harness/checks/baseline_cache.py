"""The cache of dcp=1 answers: what was asked of this very engine before need not be asked again.

One file for each thing asked, named by a key over the engine's commit, the launch (model, layout, arguments),
the machine's kind and the questions. Only clean commits are cached: a work tree with changes has no identity.
Failure rule: a file that cannot be read or does not fit is as good as none, and one that cannot be written
costs the next run some time; neither is an error of a check.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from harness.checks.asks import Answers, Ask, decode, digest, encode
from harness.checks.whole_file import replace_text
from harness.engines import LaunchSpec, ServerInfo, parse_server_info
from harness.errors import EngineError
from harness.verdict import is_clean_commit

# Grows when what is stored changes its shape or meaning: older files are not read again.
FORMAT = 1
_UNREADABLE = (OSError, ValueError, KeyError, TypeError, AttributeError, EngineError)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cached:
    """Answers that were given before, by what was asked; `asked_on` is the day of the oldest."""

    info: ServerInfo
    answers: dict[Ask, Answers]
    asked_on: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BaselineCache:
    """`folder` None, or an `engine_sha` that is no clean commit, is a cache that keeps nothing.

    `machine` names what the numbers were computed on: a GPU kind, or a CPU's. `env` is what the suite sets for the
    whole job, its engines among it.
    """

    folder: Path | None
    engine_sha: str | None
    machine: str
    env: Mapping[str, str] = field(default_factory=dict)

    @property
    def works(self) -> bool:
        return self.folder is not None and is_clean_commit(self.engine_sha or "")

    def find(self, launch: LaunchSpec, asks: Sequence[Ask]) -> Cached | None:
        """Those of `asks` that this engine has answered before; None where it has answered none."""
        found: dict[Ask, Answers] = {}
        infos, days = [], []
        for ask in asks if self.works else ():
            with contextlib.suppress(*_UNREADABLE):
                body = json.loads(self._file(launch, ask).read_text(encoding="ascii"))
                info, day = parse_server_info(body["info"]), str(body["asked_at"])[:10]
                found[ask] = decode(ask, body["answers"])
                infos.append(info)
                days.append(day)
        return Cached(info=infos[0], answers=found, asked_on=min(days)) if found else None

    def keep(self, launch: LaunchSpec, info: ServerInfo, answers: dict[Ask, Answers]) -> None:
        """Store what an engine has just answered; nothing where its checkpoint was replaced meanwhile."""
        held, told = _checkpoint(launch.model), info.raw.get("model_sha256")
        if not self.works or (held and told and held != told):
            return
        for ask, given in answers.items():
            body = {
                "info": info.raw,
                "answers": encode(given),
                "asked_at": datetime.now(UTC).isoformat(timespec="seconds"),
            }
            with contextlib.suppress(OSError):
                replace_text(self._file(launch, ask), json.dumps(body))

    def _file(self, launch: LaunchSpec, ask: Ask) -> Path:
        assert self.folder is not None, "a cache without a folder is never asked for a file"
        told: dict[str, Any] = {
            "format": FORMAT,
            "engine": self.engine_sha,
            "machine": self.machine,
            "env": dict(self.env),
            "launch": {**asdict(launch), "launch_timeout_s": None},
            "model": _checkpoint(launch.model),
            "asked": digest(ask),
        }
        key = hashlib.sha256(json.dumps(told, sort_keys=True, default=str).encode()).hexdigest()
        return self.folder / f"{key}.json"


def machine_kind(gpu: str | None) -> str:
    """What decides the last bits of a number: the GPU's kind, or the CPU's architecture."""
    return gpu or platform.machine()


def _checkpoint(model: str) -> str | None:
    """What a model given as a file holds; the name alone says it of all others."""
    path = Path(model)
    with contextlib.suppress(OSError):
        return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else None
    return None
