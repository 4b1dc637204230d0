"""Engine arguments in a suite: `true` is a bare flag, `false` is absent, a list is repeated values.

Called by the model to validate `args:`; `engines` makes the command line. Layout, model and address have keys
or owners of their own, so the flags for them are refused: two places could disagree.
"""

from __future__ import annotations

import re

from harness.suites.yaml_marks import MarkedDict

ArgValue = bool | int | float | str | tuple[int | float | str, ...]

_NAME = re.compile(r"[a-z0-9][a-z0-9.-]*")
NAME_PATTERN = rf"^{_NAME.pattern}$"

# Both SGLang's and vLLM's spellings: whichever engine runs, the suite's own key decides.
_OWNED = {
    "parallel": (
        *("tp", "tp-size", "tensor-parallel-size", "pp", "pp-size", "pipeline-parallel-size"),
        *("dp", "dp-size", "data-parallel-size", "ep", "ep-size", "expert-parallel-size"),
        *(
            "dcp",
            "dcp-size",
            "decode-context-parallel-size",
            "attn-cp-size",
            "moe-dp-size",
            "enable-dp-attention",
        ),
    ),
    "model": ("model", "model-path"),
    # A pair declares its two engines apart.
    "prefill": ("disaggregation-mode",),
}
_OWNER_OF = {flag: owner for owner, flags in _OWNED.items() for flag in flags}
# Ports and addresses are leased per attempt; a fixed one would make two runs collide.
_LEASED = ("host", "port")


def check_arg_name(name: str) -> str:
    """The name; ValueError where it is no flag, or where its value belongs to another key."""
    if not _NAME.fullmatch(name):
        better = name.lstrip("-").replace("_", "-").lower()
        hint = f"; did you mean {better!r}?" if _NAME.fullmatch(better) else ""
        raise ValueError(f"{name!r} is no flag name{hint} (allowed: lower case, digits, '-' and '.')")
    if owner := _OWNER_OF.get(name):
        raise ValueError(f"{name!r} is not allowed in args: the key '{owner}:' sets it")
    if name in _LEASED:
        raise ValueError(f"{name!r} is not allowed in args: the harness leases a free one for each attempt")
    return name


def check_arg_value(value: object) -> ArgValue:
    """The value as the model keeps it; ValueError for mappings, nulls and lists of anything but scalars."""
    if isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list | tuple) and value:
        if all(isinstance(item, int | float | str) and not isinstance(item, bool) for item in value):
            return tuple(value)
        raise ValueError("a list of anything but numbers and texts; allowed: a list of numbers or texts")
    found = "nothing" if value is None else "a mapping" if isinstance(value, MarkedDict) else "an empty list"
    raise ValueError(f"{found}; allowed: true, false, a number, a text, or a list of numbers or texts")
