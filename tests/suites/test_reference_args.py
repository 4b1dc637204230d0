"""The reference engine's arguments, as the suite language knows them, are those that the engine has."""

from __future__ import annotations

import inspect
import math
import typing
from enum import StrEnum
from typing import Any

import pytest

from harness.cli.engine import serve
from harness.cli.route import route
from harness.errors import UsageError
from harness.refengine.config import DTYPES, MAX_POISON, MAX_SEED, EngineConfig
from harness.refengine.router.config import RouterConfig
from harness.suites import parse_reference_arg
from harness.suites.pair_rules import ALIKE
from harness.suites.reference_args import (
    REFERENCE_ARGS,
    REFERENCE_INTERLEAVE,
    REFERENCE_PAGE_SIZE,
    ROUTER_ARGS,
)

# Set by keys of the suite, leased, or the launcher's own.
OWNED = {
    *("tp", "dcp", "model", "host", "port", "nonce", "ready-file", "disaggregation-mode"),
    *("fault", "allow-idle-faults"),
}


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


NUMBERS = [
    *(0, 1, -1, 0.5, -0.5, 1e-9, 0.0, -0.0, 300, 10**400, -(10**400), math.inf, -math.inf, math.nan),
    *(MAX_SEED, -MAX_SEED, MAX_SEED + 1, -MAX_SEED - 1, MAX_POISON, -MAX_POISON, 1.1e38, -1.1e38),
]


def starts(make: Any, **given: Any) -> bool:
    try:
        make(**given)
    except UsageError:
        return False
    return True


def router(**given: Any) -> RouterConfig:
    return RouterConfig(prefill=("http://a:1",), decode=("http://a:2",), **given)


@pytest.mark.parametrize(
    ("known", "make"), [(REFERENCE_ARGS, EngineConfig), (ROUTER_ARGS, router)], ids=["engine", "router"]
)
def test_ranges_are_those_of_what_takes_them(known: Any, make: Any) -> None:
    """Whatever number a file may hold: refused by the loader exactly where the launch would refuse it."""
    for name, kind in known.items():
        for value in NUMBERS:
            if name == "max-total-tokens" and value < 1:
                continue  # told by each rank's pool, which alone knows what it holds
            if kind.type is bool or kind.type is str or (kind.type is int and not isinstance(value, int)):
                continue
            # A page has to hold whole turns, whatever their length.
            others = {"page_size": value} if name == "interleave" and value > 0 else {}
            taken = starts(make, **{name.replace("-", "_"): value}, **others)
            assert kind.admits(value) is taken, (name, value)


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
        ("seed=9223372036854775808", "allowed: a whole number, -9223372036854775807 to 9223372036854775807"),
        ("transfer-timeout=0", "0.0 is not allowed here; allowed: a number above 0"),
        ("transfer-timeout=inf", "inf is not allowed here; allowed: a number above 0"),
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
