"""The JSON Schema agrees with the loader about shapes: right files validate, wrong keys and types do not."""

from __future__ import annotations

import copy
from typing import Any

import jsonschema
import pytest
import yaml
from suite_helpers import DATA, GOOD, REPOSITORY

from harness.suites import CHECK_PARAMS, MarkedDict, json_schema, load_yaml, suite_files

VALIDATOR = jsonschema.Draft202012Validator(json_schema())
FILES = [*suite_files(REPOSITORY / "suites")[0], DATA / "normative.yaml"]


def valid(tree: object) -> bool:
    return bool(VALIDATOR.is_valid(tree))


def test_it_is_a_schema() -> None:
    jsonschema.Draft202012Validator.check_schema(json_schema())


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_right_files_validate(path: Any) -> None:
    VALIDATOR.validate(load_yaml(path))


def test_an_unknown_key_anywhere_does_not(tmp_path: Any) -> None:
    tree = load_yaml(DATA / "normative.yaml")
    assert isinstance(tree, MarkedDict)
    for location in _mappings(tree):
        wrong = copy.deepcopy(_plain(tree))
        _at(wrong, location)["unknown"] = 1
        assert not valid(wrong), location


def _plain(node: Any) -> Any:
    if isinstance(node, dict):
        return {key: _plain(value) for key, value in node.items()}
    return [_plain(item) for item in node] if isinstance(node, list) else node


def _mappings(node: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """All mappings but `args`, whose keys are the engine's."""
    if isinstance(node, list):
        return [found for index, item in enumerate(node) for found in _mappings(item, (*at, index))]
    if not isinstance(node, dict) or at[-1:] == ("args",):
        return []
    return [at, *(found for key, value in node.items() for found in _mappings(value, (*at, key)))]


def _at(node: Any, location: tuple[Any, ...]) -> Any:
    for part in location:
        node = node[part]
    return node


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("5m", "30min"),
        ("5m", "30"),
        ("tp: 4", "tp: 'four'"),
        ("tp: 4", "tp: 0"),
        ("kind: reference", "kind: other"),
        ("page-size: 16", "page_size: 16"),
        ("page-size: 16", "page-size: {}"),
        ("summary: a small suite\n", ""),
        ("    timeout: 5m\n", ""),
        ("drained: {}", "drianed: {}"),
        ("drained: {}", "drained: {wait: 3}"),
        ("drained: {}", "drained: {wait: {cpu: 3s, gqu: 4s}}"),
        ("drained: {}", "drained"),
        ("  - drained: {}", "  drained: {}"),
        ("checks:", "matrix: {dcp: 4}\nchecks:"),
    ],
)
def test_wrong_shapes_do_not(old: str, new: str) -> None:
    assert valid(yaml.safe_load(GOOD))
    assert not valid(yaml.safe_load(GOOD.replace(old, new, 1)))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("dcp: 4", "dcp: '${dcp}'"),
        ("5m", "${t}"),
        ("kind: reference", "kind: '${kind}'"),
        ("drained: {}", "drained: {wait: {cpu: 3s, gpu: 4s}, gpu: {wait: 1m}}"),
        ("page-size: 16", "a: true, b: [1, x], c: 0.5"),
        ("checks:", "matrix: {dcp: [4, x, true]}\nchecks:"),
        ("checks:", "skip: {reason: x, until: '2027-01-01'}\nchecks:"),
    ],
)
def test_what_the_language_allows_validates(old: str, new: str) -> None:
    assert valid(yaml.safe_load(GOOD.replace(old, new, 1)))


def test_a_file_that_extends_may_leave_everything_to_its_base_but_not_misspell() -> None:
    assert valid({"extends": "_base.yaml"})
    assert valid({"extends": "_base.yaml", "profiles": {"cpu": {"engine": {"parallel": {"dcp": 2}}}}})
    assert not valid({"extends": "_base.yaml", "profiles": {"cpu": {"engine": {"paralel": {}}}}})
    assert not valid({"profiles": {"cpu": {"engine": {"parallel": {"dcp": 2}}}}})


def test_every_check_is_known_by_every_of_its_parameters() -> None:
    good = yaml.safe_load(GOOD)
    for name, model in CHECK_PARAMS.items():
        (entry,) = [e for e in json_schema()["$defs"]["Check"]["anyOf"] if name in e["properties"]]
        assert set(entry["properties"][name]["properties"]) == {*model.model_fields, "cpu", "gpu"}
        assert valid(good | {"checks": [{name: {}}]})
