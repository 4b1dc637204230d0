"""Rules of pairs: what a prefill and a decode engine must have in common, and which checks need both.

Engines refuse a wrong pair themselves once both are up; what a file shows is told when the file is loaded.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from harness.suites.check_params import CHECK_PARAMS
from harness.suites.engine_args import ArgValue
from harness.suites.findings import Finding
from harness.suites.model import EngineKind, EngineSpec, RouterSpec, SuiteFile
from harness.suites.reference_args import (
    REFERENCE_INTERLEAVE,
    REFERENCE_PAGE_SIZE,
    ROUTER_ARGS,
    check_router_arg,
)
from harness.suites.wording import show

# Arguments that both reference engines of a pair take alike, with the engine's own defaults. `seed` makes the
# weights of random models.
ALIKE: Mapping[str, ArgValue] = {
    "page-size": REFERENCE_PAGE_SIZE,
    "dtype": "fp32",
    "seed": 0,
    "disaggregation-transfer-backend": "tcp",
}


def check_pair(prefill: EngineSpec, decode: EngineSpec, router: RouterSpec | None) -> Iterator[Finding]:
    """What keeps the prefill engine's KV from being the decode engine's, and what our router does not take."""
    before, after = prefill.parallel.dcp, decode.parallel.dcp
    if before not in (1, after):
        allowed = "1" if after == 1 else f"1 or {after}"
        message = f"dcp {before} cannot hand its KV to a decode engine of dcp {after}; allowed: {allowed}"
        yield Finding(("prefill", "parallel", "dcp"), message)
    for name in ("kind", "model"):
        ours, theirs = str(getattr(prefill, name)), str(getattr(decode, name))
        if ours != theirs:
            message = f"{show(ours)} cannot hand its KV to {show(theirs)}; allowed: the same on both sides"
            yield Finding(("prefill", name), message)
    if prefill.kind is decode.kind is EngineKind.REFERENCE:
        yield from _check_args(prefill, decode)
        yield from _check_router({} if router is None else router.args)


def _check_args(prefill: EngineSpec, decode: EngineSpec) -> Iterator[Finding]:
    alike = dict(ALIKE)
    if prefill.parallel.dcp > 1:
        alike["interleave"] = REFERENCE_INTERLEAVE
    for name, default in alike.items():
        ours, theirs = prefill.args.get(name, default), decode.args.get(name, default)
        if ours != theirs:
            place = ("prefill", "args", name) if name in prefill.args else ("decode", "args", name)
            message = f"is {show(ours)} with prefill and {show(theirs)} with decode; allowed: the same on both sides"
            yield Finding(place, message)


def _check_router(args: Mapping[str, ArgValue]) -> Iterator[Finding]:
    for name, value in args.items():
        try:
            check_router_arg(name, value)
        except ValueError as error:
            yield Finding(("router", "args", name), str(error), on_key=name not in ROUTER_ARGS)


def check_pair_checks(suite: SuiteFile) -> Iterator[Finding]:
    """Checks of pairs beside a single engine, and one that would blind a later one."""
    names = [next(iter(entry), "") if isinstance(entry, Mapping) else "" for entry in suite.checks]
    alone = [name for name, profile in suite.profiles.by_name().items() if profile.engine is not None]
    for index, name in enumerate(names):
        params = CHECK_PARAMS.get(name)
        if params is None:
            continue
        if params.of_pairs and alone:
            message = (
                f"looks at a pair of engines, and profile {alone[0]} has one; allowed: prefill and decode"
            )
            yield Finding(("checks", index, name), message, on_key=True)
        if params.kills and "drained" in names[index + 1 :]:
            message = (
                "stands before drained, and starts engines anew: what earlier checks left goes with the old"
            )
            yield Finding(("checks", index, name), f"{message}; allowed: after it", on_key=True)
