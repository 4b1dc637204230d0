"""The JSON Schema of suite files, for editors: derived from the models, so that it never falls behind them.

Three things that the models do not say are added: the checks with their per-profile values, `extends:`
(which makes every required key optional, since a base may bring it), and `${x}` in the place of any scalar.
Rules that span keys stay with the loader.
"""

from __future__ import annotations

import copy
from typing import Any

from harness.suites.check_params import CHECK_PARAMS
from harness.suites.model import ProfileName, SuiteFile

Schema = dict[str, Any]

_VARIABLE: Schema = {"type": "string", "pattern": r"\$\{[a-z][a-z0-9_]*\}"}
_EXTENDS: Schema = {"type": "string", "minLength": 1, "description": "a suite file below this one's values"}
_MATRIX: Schema = {
    "type": "object",
    "minProperties": 1,
    "propertyNames": {"pattern": "^[a-z][a-z0-9_]*$"},
    "additionalProperties": {
        "type": "array",
        "minItems": 1,
        "uniqueItems": True,
        "items": {"type": ["boolean", "number", "string"]},
    },
}


def json_schema() -> Schema:
    """A JSON Schema (draft 2020-12) of one suite file with every check's parameters; fresh each call."""
    suite = SuiteFile.model_json_schema()
    parts: dict[str, Schema] = suite.pop("$defs")
    suite["properties"] |= {
        "extends": _EXTENDS,
        "matrix": _MATRIX,
        "checks": {"type": "array", "items": {"$ref": "#/$defs/Check"}},
    }
    parts["Check"] = {"anyOf": [_check(name, parts) for name in CHECK_PARAMS]}
    whole = {name: _with_variables(part) for name, part in (parts | {"Suite": suite}).items()}
    partial = {f"Partial{name}": _partial(part) for name, part in whole.items()}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "harness suite",
        "type": "object",
        "if": {"required": ["extends"]},
        "then": {"$ref": "#/$defs/PartialSuite"},
        "else": {"$ref": "#/$defs/Suite"},
        "$defs": whole | partial,
    }


def _check(name: str, parts: dict[str, Schema]) -> Schema:
    """One check as a list item; nothing is required, since a profile's overlay may bring it.

    Models inside its parameters go to `parts`, where all references lead.
    """
    model = CHECK_PARAMS[name].model_json_schema()
    parts |= model.pop("$defs", {})
    values = {key: _per_profile(value) for key, value in model.get("properties", {}).items()}
    overlay = {"type": "object", "properties": values, "additionalProperties": False}
    params = {
        "type": "object",
        "description": model.get("description", ""),
        "properties": values | {profile.value: overlay for profile in ProfileName},
        "additionalProperties": False,
    }
    return {"type": "object", "properties": {name: params}, "required": [name], "additionalProperties": False}


def _per_profile(value: Schema) -> Schema:
    each = {profile.value: value for profile in ProfileName}
    choice = {"type": "object", "properties": each, "additionalProperties": False, "minProperties": 1}
    return {"anyOf": [value, choice]}


def _with_variables(node: Any) -> Any:
    """Every scalar may also be written as text that holds a matrix variable."""
    if isinstance(node, list):
        return [_with_variables(item) for item in node]
    if not isinstance(node, dict):
        return node
    done = {key: value if key == "propertyNames" else _with_variables(value) for key, value in node.items()}
    if "patternProperties" in done:  # pydantic leaves keys that do not match unchecked
        done["additionalProperties"] = False
    scalar = done.get("type") in ("integer", "number", "boolean") or _narrow_text(done)
    return {"anyOf": [done, _VARIABLE]} if scalar else done


def _narrow_text(node: Schema) -> bool:
    return (
        node.get("type") == "string" and bool({"enum", "pattern", "format"} & set(node)) and node != _VARIABLE
    )


def _partial(node: Any) -> Any:
    """The same schema with nothing required, and with its references led to other partial ones."""
    if isinstance(node, list):
        return [_partial(item) for item in node]
    if not isinstance(node, dict):
        return copy.copy(node)
    done = {key: _partial(value) for key, value in node.items() if not _requires_keys(key, value)}
    if isinstance(done.get("$ref"), str):
        done["$ref"] = done["$ref"].replace("#/$defs/", "#/$defs/Partial")
    return done


def _requires_keys(key: str, value: Any) -> bool:
    return key == "required" and isinstance(value, list)
