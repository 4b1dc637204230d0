from __future__ import annotations

import pytest

from harness.suites.engine_args import check_arg_name, check_arg_value


@pytest.mark.parametrize("name", ["page-size", "x", "cuda-graph-max-bs-decode", "compilation-config.level"])
def test_names_that_are_flags(name: str) -> None:
    assert check_arg_name(name) == name


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("page_size", "did you mean 'page-size'"),
        ("--page-size", "did you mean 'page-size'"),
        ("Page", "did you mean 'page'"),
        ("", "is no flag name (allowed"),
        ("a b", "is no flag name (allowed"),
        ("tp", "the key 'parallel:' sets it"),
        ("dcp-size", "the key 'parallel:' sets it"),
        ("model-path", "the key 'model:' sets it"),
        ("port", "leases a free one"),
    ],
)
def test_names_that_are_not(name: str, says: str) -> None:
    with pytest.raises(ValueError) as caught:
        check_arg_name(name)
    assert says in str(caught.value)


@pytest.mark.parametrize("value", [None, {}, [], [[1]], [True], [None], [1, {}]])
def test_values_that_no_command_line_holds(value: object) -> None:
    with pytest.raises(ValueError, match="allowed: "):
        check_arg_value(value)


def test_lists_become_tuples() -> None:
    assert check_arg_value([1, "a", 0.5]) == (1, "a", 0.5)
