"""From a pydantic error to a sentence at a place: which key, what was found, what is allowed.

Called by the loader for suite files and for check parameters. pydantic knows *where in the value* something
is wrong, the marked tree knows where in the file that was written, and the model knows which keys there are.
Guarantees one `SourceError` per wrong place, in the order of the file's keys.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, get_args

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from harness.errors import SourceError
from harness.suites.fields import PATTERNS, Model
from harness.suites.wording import Location, dotted, show, suggest
from harness.suites.yaml_marks import MarkedDict, mark_at


def source_errors(
    error: ValidationError, *, tree: MarkedDict, model: type[Model], prefix: Location = ()
) -> list[SourceError]:
    """`error` of validating `tree` as `model`, one SourceError a place; `prefix` goes before field names."""
    found: dict[Location, SourceError] = {}
    for details in _causes(error):
        location = tuple(part for part in details["loc"] if part != "[key]")
        on_key = details["type"] == "extra_forbidden" or details["loc"][-1:] == ("[key]",)
        message = _message(details, model)
        mark = mark_at(tree, location, key=on_key)
        found.setdefault(location, SourceError(mark, message, field=dotted(prefix + location)))
    return list(found.values())


def describe(error: ValidationError, tree: MarkedDict, model: type[Model]) -> list[str]:
    """The same as `field: message`, for values that are in no file."""
    return [f"{found.field}: {found.message}" for found in source_errors(error, tree=tree, model=model)]


def _causes(error: ValidationError) -> Iterator[ErrorDetails]:
    """pydantic's errors but for the echoes of others: an uncalled default, a list short of its bad items."""
    details = error.errors(include_url=False)
    parents = {each["loc"][:-1] for each in details}
    for each in details:
        echo = each["type"] == "default_factory_not_called" or (
            each["type"] == "too_short" and each["loc"] in parents
        )
        if not echo:
            yield each


def _message(details: ErrorDetails, model: type[Model]) -> str:
    kind, context = details["type"], details.get("ctx", {})
    if kind == "extra_forbidden":
        key = str(details["loc"][-1])
        return f"unknown key {show(key)}{suggest(key, keys_at(model, details['loc'][:-1]))}"
    if kind == "missing":
        return "is missing, and has no default"
    if kind == "value_error":
        return str(context["error"])
    wanted = _WANTED.get(kind)
    allowed = wanted(context) if wanted else details["msg"]
    found = show(details["input"])
    if kind in ("enum", "literal_error"):
        names = [name.strip().strip("'") for name in str(context["expected"]).replace(" or ", ",").split(",")]
        return f"{found} is unknown{suggest(str(details['input']), names)}"
    return f"{found} is not allowed here; allowed: {allowed}"


_Context = dict[str, Any]
_WANTED: dict[str, Callable[[_Context], str]] = {
    "int_type": lambda _: "a whole number",
    "float_type": lambda _: "a number",
    "bool_type": lambda _: "true or false",
    "string_type": lambda _: "text (in quotes if it looks like a number)",
    "string_too_short": lambda ctx: f"{ctx['min_length']} character or more",
    "string_too_long": lambda ctx: f"{ctx['max_length']} characters or fewer",
    "string_pattern_mismatch": lambda ctx: PATTERNS[ctx["pattern"]],
    "model_type": lambda _: "a mapping",
    "model_attributes_type": lambda _: "a mapping",
    "dict_type": lambda _: "a mapping",
    "tuple_type": lambda _: "a list",
    "too_short": lambda ctx: f"{ctx['min_length']} item or more",
    "too_long": lambda ctx: f"{ctx['max_length']} items or fewer",
    "greater_than": lambda ctx: f"more than {ctx['gt']:g}",
    "less_than": lambda ctx: f"less than {ctx['lt']:g}",
    "greater_than_equal": lambda ctx: f"{ctx['ge']:g} or more",
    "less_than_equal": lambda ctx: f"{ctx['le']} or less",
}


def keys_at(model: type[Model], location: Location) -> list[str]:
    """The keys of the mapping at `location` below `model`."""
    for part in location:
        if isinstance(part, int):  # an item of a list of models, which the list's own key has led to
            continue
        model = _model_in(model.model_fields[str(part)].annotation)
    return [*model.model_fields, *model.settled_keys]


def _model_in(annotation: Any) -> type[Model]:
    """The one model named in an annotation such as `Profile | None`."""
    if isinstance(annotation, type) and issubclass(annotation, Model):
        return annotation
    return next(_model_in(part) for part in get_args(annotation) if part is not type(None))
