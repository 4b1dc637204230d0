"""The reference engine's arguments, as the suite language knows them, are those that the engine has."""

from __future__ import annotations

import inspect
import typing
from enum import StrEnum

import pytest

from harness.cli.engine import serve
from harness.cli.route import route
from harness.refengine.config import DTYPES, EngineConfig
from harness.suites import parse_reference_arg
from harness.suites.pair_rules import ALIKE
from harness.suites.reference_args import (
    REFERENCE_ARGS,
    REFERENCE_INTERLEAVE,
    REFERENCE_PAGE_SIZE,
    ROUTER_ARGS,
)

# Set by keys of the suite, leased, or the launcher's own.
OWNED = {"tp", "dcp", "model", "host", "port", "nonce", "fault", "ready-file", "disaggregation-mode"}


def test_names_and_types_are_those_of_engine_serve() -> None:
    hints = typing.get_type_hints(serve)
    has = {name.replace("_", "-"): hints[name] for name in inspect.signature(serve).parameters}
    assert set(REFERENCE_ARGS) - {"no-kv-rows"} == set(has) - OWNED
    for name, kind in REFERENCE_ARGS.items():
        taken = has.get(name, bool)
        if isinstance(taken, type) and issubclass(taken, StrEnum):
            # Threads are for tests inside one process: no launch takes them.
            assert kind.words == tuple(word for word in taken if word != "threads"), name
        else:
            assert kind.type in (taken, *typing.get_args(taken)), name
    assert REFERENCE_ARGS["dtype"].words == DTYPES


def test_defaults_are_those_of_the_engine() -> None:
    config = EngineConfig()
    assert (config.page_size, config.interleave) == (REFERENCE_PAGE_SIZE, REFERENCE_INTERLEAVE)
    assert {name: getattr(config, name.replace("-", "_")) for name in ALIKE} == ALIKE


def test_names_and_types_are_those_of_engine_route() -> None:
    """Addresses are leased, and nonce and ready file are the launcher's own."""
    hints = typing.get_type_hints(route)
    owned = {"prefill", "decode", "host", "port", "nonce", "ready-file"}
    has = {name.replace("_", "-"): hints[name] for name in inspect.signature(route).parameters}
    assert {name: kind.type for name, kind in ROUTER_ARGS.items()} == {
        name: hint for name, hint in has.items() if name not in owned
    }


@pytest.mark.parametrize(
    "text",
    ["comm=gloo", "page-size=4", "seed=-3", "poison=1e3", "poison=5", "served-model-name=7", "dtype=bf16"],
)
def test_what_a_command_line_may_set(text: str) -> None:
    name, _, value = text.partition("=")
    parse_reference_arg(name, value)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("com=gloo", "no argument 'com'; did you mean 'comm'?"),
        ("comm=pigeon", "'pigeon' is not allowed here; allowed: shm, gloo"),
        ("page-size=0", "0 is not allowed here; allowed: a whole number, 1 or more"),
        ("page-size=4.5", "'4.5' is not allowed here; allowed: a whole number"),
        ("page-size=", "'' is not allowed here"),
        ("poison=big", "'big' is not allowed here; allowed: a number"),
        ("kv-rows=true", "is a bare flag"),
        ("tp=8", "the key 'parallel:' sets it"),
        ("port=80", "leases a free one"),
        ("--comm=gloo", "did you mean 'comm'?"),
    ],
)
def test_what_it_may_not(text: str, says: str) -> None:
    name, _, value = text.partition("=")
    with pytest.raises(ValueError, match=r".") as caught:
        parse_reference_arg(name, value)
    assert says in str(caught.value)
