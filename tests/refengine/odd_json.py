"""Frames that no engine sends: noise, and messages in which some value, at any depth, is what none can be."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from hypothesis import strategies as st

# Where Python gives up, for lists and for objects, and just before; 16 levels are allowed.
_DEPTHS = (1, 15, 16, 17, 300, 900, 980, 5000, 50_000)
# As JSON texts, since `json.dumps` writes half of these no more than `json.loads` reads them.
_HARD = [
    *("[" * depth + "]" * depth for depth in _DEPTHS),
    *('{"a":' * depth + "1" + "}" * depth for depth in _DEPTHS),
    *("9" * 5000, "1" + "0" * 4000, "-1", str(2**31), str(2**63 - 1), str(2**63), str(2**64), str(-(2**63))),
    *("NaN", "Infinity", "-Infinity", "1e999", "1.0", "true", "null", '"\\ud800"', '"\\u0000"', '""', '"1"'),
]
_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
ODD_TEXTS = st.sampled_from(_HARD) | _VALUES.map(json.dumps)

_MARK = "@here@"


@st.composite
def changed(draw: st.DrawFn, told: Mapping[str, Any]) -> bytes:
    """`told` as a frame, with one value of it exchanged, a key left out, or a key too many."""
    copy = json.loads(json.dumps(told))
    holder, key = draw(st.sampled_from(list(_places(copy))))
    how = draw(st.sampled_from(["exchange", "exchange", "exchange", "remove", "add"]))
    if how == "remove":
        del holder[key]
    elif how == "add" and isinstance(holder, dict):
        holder["more"] = _MARK
    else:
        holder[key] = _MARK
    return json.dumps(copy).replace(f'"{_MARK}"', draw(ODD_TEXTS)).encode()


def frames(*told: Mapping[str, Any]) -> st.SearchStrategy[bytes]:
    """Noise, odd JSON, and these messages, each with something odd about it."""
    noise = st.binary(max_size=40) | ODD_TEXTS.map(str.encode)
    # Cut off in the middle, which leaves all that was opened open.
    cut = st.sampled_from(_DEPTHS).map(lambda depth: b"[" * depth)
    return st.one_of(noise, cut, *(changed(one) for one in told))


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """(holder, key) of each value within, outermost first."""
    keys = list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    for key in keys:
        yield value, key
        yield from _places(value[key])
