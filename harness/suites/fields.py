"""Field types that every part of the suite language shares: strict scalars, so that `tp: "4"` is an error.

pydantic's lax mode would read `"4"`, `4.0` and `true` as 4; a reader of the file would not. Validators raise
ValueError with what was found and what is allowed; `diagnose` adds the place.
"""

from __future__ import annotations

import re
from datetime import date
from typing import Annotated, Any, ClassVar, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    WithJsonSchema,
)
from pydantic.types import Strict

from harness.suites.durations import PATTERN, parse_duration
from harness.suites.engine_args import NAME_PATTERN, check_arg_name, check_arg_value
from harness.suites.fault_ids import OF_CODE, check_fault
from harness.suites.wording import show


class Model(BaseModel):
    """Base of all suite models: frozen, and a key that is not a field is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    # Keys that a file may have here and that are settled before the model sees it; for messages.
    settled_keys: ClassVar[tuple[str, ...]] = ()


def _parse_date(value: object) -> date:
    allowed = "a date such as 2027-01-31"
    if not isinstance(value, str) or len(value) != len("2027-01-31"):
        raise ValueError(f"{value!r} is no date; allowed: {allowed}")
    try:
        return date.fromisoformat(value)
    except ValueError:
        raise ValueError(f"{value!r} is no date; allowed: {allowed}") from None


Seconds = Annotated[
    float,
    BeforeValidator(parse_duration),
    WithJsonSchema({"type": "string", "pattern": PATTERN, "description": "a duration: 90s, 4m or 2h"}),
]
Day = Annotated[date, BeforeValidator(_parse_date), WithJsonSchema({"type": "string", "format": "date"})]

# No engine of the field spans more ranks than this; a typo such as 40000 should not reach a launcher.
Size = Annotated[int, Strict(), Field(ge=1, le=4096)]
Count = Annotated[int, Strict(), Field(ge=1, le=1_000_000)]
Index = Annotated[int, Strict(), Field(ge=0, le=2**63 - 1)]
Share = Annotated[float, Strict(), Field(ge=0.0, le=1.0)]
Bound = Annotated[float, Strict(), Field(ge=0.0, le=1000.0)]
Flag = Annotated[bool, Strict()]
Text = Annotated[str, Strict(), StringConstraints(min_length=1, max_length=1000)]
_SLUG = r"^[a-z0-9][a-z0-9_.-]*$"
_ENV_NAME = r"^[A-Za-z_][A-Za-z0-9_]*$"
# What the patterns mean, for messages.
PATTERNS = {
    _SLUG: "a word of lower-case letters, digits, '_', '.' and '-'",
    _ENV_NAME: "the name of a variable: letters, digits and '_'",
}


def _check_regex(value: str) -> str:
    try:
        pattern = re.compile(value)
    # An index that no platform holds, and brackets nested too deep, have errors of their own.
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(
            f"{show(value)} is no regular expression: {error}; allowed: one that Python's re.search takes"
        ) from None
    if pattern.search(""):
        raise ValueError(
            f"{show(value)} matches an empty text too, so it proves nothing; allowed: what only some text matches"
        )
    return value


def _check_source_path(value: str) -> str:
    """A path below the root of a source: no way leads out of it, and only Python files are tests."""
    parts = value.split("/")
    if not value.endswith(".py") or "" in parts or ".." in parts or "**" in parts:
        raise ValueError(
            f"{show(value)} is no test file of a source; allowed: a path or glob below its root that ends in .py, "
            "such as test/registered/dcp/test_*.py"
        )
    return value


Names = TypeVar("Names", bound=tuple[object, ...])


def _check_each_once(names: Names) -> Names:
    if twice := next((name for at, name in enumerate(names) if name in names[:at]), None):
        raise ValueError(f"names {show(str(twice))} twice; allowed: each once")
    return names


# For lists of names that mean the same in any number.
EACH_ONCE = AfterValidator(_check_each_once)
UNIQUE = Field(json_schema_extra={"uniqueItems": True})

Regex = Annotated[Text, AfterValidator(_check_regex)]
Slug = Annotated[str, Strict(), StringConstraints(pattern=_SLUG, max_length=100)]
FaultId = Annotated[
    str, Strict(), AfterValidator(check_fault), WithJsonSchema({"type": "string", "enum": list(OF_CODE)})
]
SourcePath = Annotated[Text, AfterValidator(_check_source_path)]
Sizes = Annotated[tuple[Count, ...], Field(min_length=1, max_length=1000)]

ArgName = Annotated[
    str, AfterValidator(check_arg_name), WithJsonSchema({"type": "string", "pattern": NAME_PATTERN})
]
_SCALARS = {"type": ["boolean", "number", "string"]}
_SCALAR_LIST = {"type": "array", "items": {"type": ["number", "string"]}, "minItems": 1}
ArgItem = Annotated[Any, AfterValidator(check_arg_value), WithJsonSchema({"anyOf": [_SCALARS, _SCALAR_LIST]})]
Args = dict[ArgName, ArgItem]
EnvName = Annotated[str, StringConstraints(pattern=_ENV_NAME, max_length=200)]
Env = dict[EnvName, Annotated[str, Strict()]]
