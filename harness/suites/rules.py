"""What spans several keys of a suite file: layouts, deadlines, needs, engines that fit together.

Called by the loader once the shapes are right. Each rule yields `Finding`s and looks at nothing outside the
suite; the loader turns them into `SourceError`s, all of them at once.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

from harness.errors import TopologyError
from harness.suites.durations import show_duration
from harness.suites.engine_args import ArgValue
from harness.suites.findings import Finding, below
from harness.suites.model import (
    EngineKind,
    EngineSpec,
    Needs,
    ParallelSpec,
    Profile,
    ProfileName,
    SourceSpec,
    SuiteFile,
)
from harness.suites.pair_rules import check_pair, check_pair_checks
from harness.suites.reference_args import (
    REFERENCE_ARGS,
    REFERENCE_INTERLEAVE,
    REFERENCE_PAGE_SIZE,
    check_reference_arg,
)
from harness.suites.targets import Target
from harness.suites.wording import Location
from harness.suites.yaml_marks import MarkedDict
from harness.topology import KVLayout, Platform, require_platform


def check_suite(suite: SuiteFile) -> Iterator[Finding]:
    """Every broken rule of a suite whose shapes are right."""
    profiles = suite.profiles.by_name()
    if not profiles:
        yield Finding(("profiles",), "there is no profile; allowed: cpu, gpu, or both")
    if not suite.checks and not suite.tests and not suite.source_tests:
        yield Finding((), "there is nothing to run; allowed: checks, tests or both, or source_tests")
    for name, profile in profiles.items():
        yield from below(("profiles", name.value), _check_profile(name, profile, checks=bool(suite.checks)))
    if suite.baseline:
        yield from _check_baseline(suite, profiles)
    yield from _check_targets(suite)
    if suite.faults and not suite.tests:
        message = (
            "stands in a suite without tests, and engines take every fault anyway; allowed: beside tests"
        )
        yield Finding(("faults",), message, on_key=True)
    yield from check_pair_checks(suite)
    if suite.source_tests:
        yield from _check_source_tests(suite)


def _check_targets(suite: SuiteFile) -> Iterator[Finding]:
    if suite.targets is None:
        return
    if len(set(suite.targets)) != len(suite.targets):
        yield Finding(("targets",), "names a target twice; allowed: each once")
    if suite.checks and suite.targets != (Target.REFERENCE,):
        yield Finding(
            ("targets",), "stands beside checks, which look at an engine; allowed: targets of tests"
        )
    if suite.python is not None and set(suite.targets) != {suite.python}:
        message = f"every job of python: {suite.python} runs in that environment; allowed: leaving one of the two out"
        yield Finding(("targets",), message)


def _check_source_tests(suite: SuiteFile) -> Iterator[Finding]:
    if suite.checks or suite.tests:
        yield Finding(
            ("source_tests",), "stands beside checks or tests; allowed: a suite of its own", on_key=True
        )
    if Target.REFERENCE in suite.all_targets:
        yield Finding(
            ("source_tests",),
            "are those of an engine; allowed: with its environment, python: sglang",
            on_key=True,
        )
    for name, profile in suite.profiles.by_name().items():
        for key in profile.engines:
            message = "stands beside source_tests, which launch what they need"
            yield Finding(("profiles", name.value, key), message, on_key=True)


def check_parts(tree: MarkedDict, wrong: Collection[Location]) -> Iterator[Finding]:
    """Every broken rule whose inputs are right, in a file that has other values `wrong`.

    So a misspelt key in one place does not hide a layout that cannot be built in another.
    """

    def right(*location: str) -> bool:
        return (
            not any(other[: len(location)] == location for other in wrong)
            and _get(tree, location) is not None
        )

    for name in ProfileName:
        profile = ("profiles", name.value)
        if right(*profile):
            model = Profile.model_validate(_get(tree, profile))
            yield from below(profile, _check_profile(name, model, checks=bool(tree.get("checks"))))
            continue
        for engine in ((*profile, key) for key in ("engine", "prefill", "decode")):
            if right(*engine):
                yield from below(engine, _check_engine(EngineSpec.model_validate(_get(tree, engine)), name))
            elif right(*engine, "parallel"):
                layout = ParallelSpec.model_validate(_get(tree, (*engine, "parallel")))
                yield from below(engine, _check_layout(layout))


def _get(tree: MarkedDict, location: Iterable[str]) -> object:
    node: object = tree
    for key in location:
        node = node.get(key) if isinstance(node, MarkedDict) else None
    return node


def _check_profile(name: ProfileName, profile: Profile, *, checks: bool) -> Iterator[Finding]:
    yield from _check_shape(profile, needs_engine=checks)
    for key, engine in profile.engines.items():
        yield from below((key,), _check_engine(engine, name))
    yield from _check_needs(name, profile)
    yield from _check_deadlines(profile)


def _check_shape(profile: Profile, *, needs_engine: bool) -> Iterator[Finding]:
    if profile.engine and (profile.prefill or profile.decode or profile.router):
        yield Finding(
            ("engine",), "stands beside prefill, decode or router; allowed: one engine, or the pair"
        )
    elif bool(profile.prefill) != bool(profile.decode):
        yield Finding((), "prefill and decode come together; one of them is missing")
    elif profile.router and not profile.prefill:
        yield Finding(("router",), "routes nothing; it needs prefill and decode")
    elif needs_engine and not profile.engines:
        yield Finding((), "has checks but no engine; allowed: engine, or prefill and decode")
    if profile.prefill and profile.decode:
        yield from check_pair(profile.prefill, profile.decode, profile.router)


def _check_layout(parallel: ParallelSpec) -> Iterator[Finding]:
    try:
        parallel.config()
    except TopologyError as error:
        yield Finding(("parallel",), str(error))


def _check_engine(engine: EngineSpec, profile: ProfileName) -> Iterator[Finding]:
    broken = list(_check_layout(engine.parallel))
    yield from broken
    if engine.kind is EngineKind.REFERENCE and not broken:
        yield from _check_reference(engine)
    if engine.kind is EngineKind.SGLANG and profile is ProfileName.CPU and not broken:
        yield from _check_on_cpu(engine)
    if engine.source:
        yield from _check_source(engine.source)


def _check_on_cpu(engine: EngineSpec) -> Iterator[Finding]:
    """A cpu profile asks for a layout that this engine builds only on other platforms."""
    version = engine.source.version or engine.source.ref if engine.source else None
    target = f"{engine.kind}@{version}" if version else engine.kind.value
    try:
        require_platform(engine.parallel.config(), platform=Platform.CPU, target=target)
    except TopologyError as error:
        yield Finding(("parallel", "dcp"), str(error))


def _check_reference(engine: EngineSpec) -> Iterator[Finding]:
    parallel = engine.parallel
    for name in ("pp", "dp", "ep", "attn_cp", "moe_dp"):
        if (size := getattr(parallel, name)) != 1:
            yield Finding(
                ("parallel", name), f"{size} is not allowed: the reference engine has tp and dcp only"
            )
    wrong = list(_check_reference_args(engine.args))
    yield from wrong
    if {("args", "page-size"), ("args", "interleave")} & {found.location for found in wrong}:
        return
    page = engine.args.get("page-size", REFERENCE_PAGE_SIZE)
    interleave = engine.args.get("interleave", REFERENCE_INTERLEAVE)
    try:
        KVLayout(dcp_size=parallel.dcp, page_size=page, interleave=interleave)
    except TopologyError as error:
        place = "interleave" if "interleave" in engine.args else "page-size"
        yield Finding(("args", place), str(error))


def _check_reference_args(args: Mapping[str, ArgValue]) -> Iterator[Finding]:
    for name, value in args.items():
        try:
            check_reference_arg(name, value)
        except ValueError as error:
            yield Finding(("args", name), str(error), on_key=name not in REFERENCE_ARGS)


def _check_source(source: SourceSpec) -> Iterator[Finding]:
    origins = [name for name in ("repo", "path", "version") if getattr(source, name) is not None]
    if len(origins) != 1:
        found = " and ".join(origins) or "none of them"
        yield Finding(("source",), f"{found} given; allowed: exactly one of repo, path, version")
    if source.ref and not source.repo:
        yield Finding(("source", "ref"), "means nothing without repo", on_key=True)


def _check_needs(name: ProfileName, profile: Profile) -> Iterator[Finding]:
    needs = profile.needs
    if name is ProfileName.CPU and (needs.gpu or needs.count or not needs.cpu):
        yield Finding(("needs",), "the cpu profile needs slots; allowed: {cpu: SLOTS}")
    elif name is ProfileName.GPU and (needs.cpu or not needs.gpu or not needs.count):
        yield Finding(("needs",), "the gpu profile needs devices; allowed: {gpu: KIND, count: DEVICES}")
    elif needs.count is not None:
        yield from _check_count(needs.count, profile)


def _check_count(count: int, profile: Profile) -> Iterator[Finding]:
    ranks = sum(engine.parallel.world_size() for engine in profile.engines.values())
    if count < ranks:
        spelt = " + ".join(
            f"{e.parallel.tp} × {e.parallel.pp} × {e.parallel.dp}" for e in profile.engines.values()
        )
        message = (
            f"{count} devices cannot hold {ranks} ranks (tp × pp × dp: {spelt}); allowed: {ranks} or more"
        )
        yield Finding(("needs", "count"), message)


def _check_deadlines(profile: Profile) -> Iterator[Finding]:
    """A job launches twice (baseline, engine under test) and checks: `timeout` holds all of it."""
    inside = 2 * profile.launch_timeout + profile.estimate
    if profile.timeout > inside:
        return
    timeout, estimate = show_duration(profile.timeout), show_duration(profile.estimate)
    if not profile.engines:
        yield Finding(("timeout",), f"{timeout} does not exceed the estimate of {estimate}")
        return
    launch = show_duration(profile.launch_timeout)
    message = f"{timeout} is too short: two launches of {launch} and the estimate of {estimate} nest in it"
    yield Finding(("timeout",), f"{message}; allowed: more than {show_duration(inside)}")


def _check_baseline(suite: SuiteFile, profiles: dict[ProfileName, Profile]) -> Iterator[Finding]:
    changes = suite.baseline.parallel.changes() if suite.baseline else {}
    if not changes:
        yield Finding(("baseline", "parallel"), "changes nothing; allowed: sizes such as dcp: 1")
        return
    for name, profile in profiles.items():
        if profile.tested is not None:
            yield from _check_baseline_of(profile.tested, changes, profile.needs, name)


def _check_baseline_of(
    engine: EngineSpec, changes: dict[str, int], needs: Needs, name: ProfileName
) -> Iterator[Finding]:
    layout = engine.with_parallel(**changes).parallel
    try:
        layout.config()
    except TopologyError as error:
        yield Finding(("baseline", "parallel"), f"with the {name} profile: {error}")
        return
    if layout.dcp != 1:
        message = f"with the {name} profile: the baseline runs at dcp {layout.dcp}; allowed: dcp: 1"
        yield Finding(("baseline", "parallel"), message)
    # A profile that cannot hold the engine under test either is told so at its needs.
    ranks = engine.parallel.world_size()
    if needs.count is not None and ranks <= needs.count < layout.world_size():
        message = f"with the {name} profile: {needs.count} devices cannot hold {layout.world_size()} ranks"
        yield Finding(("baseline", "parallel"), message)
