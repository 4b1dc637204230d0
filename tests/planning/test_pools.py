"""Pools as declared and as they are here, and the sentences of refusal."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from harness.errors import Mark, SourceErrors
from harness.planning import Pool, ReadyPool, cannot_run, parse_pools, ready_pools
from harness.suites import ActiveParams, CheckSpec, EngineSpec, Job, load_yaml

MakeJob = Callable[..., Job]

EXAMPLE = """\
pools:
  h200: {executor: local, gpu: h200, devices: nvml}
  b200: {executor: slurm, gpu: b200, nodes: 2, devices: 4, partition: b200, gres: "gpu:b200"}
  cpu:  {executor: local, slots: 2}
"""


class Inventory:
    """A machine with these GPUs, or none and a reason."""

    def __init__(self, *kinds: str, reason: str | None = None) -> None:
        self.kinds = kinds
        self.reason = reason

    def devices(self, gpu: str) -> Sequence[str]:
        return [f"gpu:{index}" for index, kind in enumerate(self.kinds) if kind == gpu]

    def unavailable(self) -> str | None:
        return self.reason


NO_DRIVER = Inventory(reason="no NVIDIA driver found")


@pytest.fixture
def parse(tmp_path: Path) -> Callable[[str], dict[str, Pool]]:
    def parsed(text: str) -> dict[str, Pool]:
        file = tmp_path / "pools.yaml"
        file.write_text(text)
        return parse_pools(load_yaml(file), mark=Mark(file, 1, 1))

    return parsed


def test_the_example_of_the_docs_is_what_this_machine_can_give(
    parse: Callable[[str], dict[str, Pool]],
) -> None:
    ready = ready_pools(parse(EXAMPLE), Inventory("h200", "b200", "h200"))
    assert ready["cpu"] == ReadyPool(name="cpu", devices=("cpu:0", "cpu:1"))
    assert ready["h200"] == ReadyPool(name="h200", gpu="h200", devices=("gpu:0", "gpu:2"))
    assert ready["b200"].devices == ()
    without = ready_pools(parse(EXAMPLE), NO_DRIVER)
    assert without["h200"].empty == "has 0 devices: no NVIDIA driver found"
    other = ready_pools(parse(EXAMPLE), Inventory("b200"))
    assert other["h200"].empty == "has 0 devices: this machine has no h200"


def test_counted_devices_need_no_driver(parse: Callable[[str], dict[str, Pool]]) -> None:
    pools = parse("pools:\n  h: {executor: local, gpu: h200, devices: 3}\n")
    assert ready_pools(pools, NO_DRIVER)["h"].devices == ("gpu:0", "gpu:1", "gpu:2")


@pytest.mark.parametrize(
    ("text", "place", "message"),
    [
        ("pools:\n  cpu: {executor: local, slots: 2, slot: 3}\n", "2:36", "did you mean 'slots'"),
        ("pools:\n  cpu: {executor: lokal, slots: 2}\n", "2:19", "did you mean 'local'"),
        ("pools:\n  cpu: {executor: local, slots: 0}\n", "2:33", "1 or more"),
        ("pools:\n  cpu: {executor: local, slots: two}\n", "2:33", "'two'"),
        ("pools:\n  cpu: 2\n", "2:8", "a mapping"),
        ("pools:\n  cpu: {slots: 2}\n", "2:8", "is missing"),
        ("pools:\n  cpu: {executor: local}\n", "2:8", "needs 'slots'"),
        ("pools:\n  h: {executor: local, gpu: h200}\n", "2:6", "needs 'devices'"),
        (
            "pools:\n  h: {executor: slurm, gpu: h200, devices: nvml}\n",
            "2:6",
            "cannot go with executor slurm",
        ),
        ("pools:\n  a: {executor: local, slots: 1}\n  b: {executor: local, slots: 1}\n", "3:6", "as pool a"),
        ("pool: {}\npools:\n  a: {executor: local, slots: 1}\n", "1:1", "did you mean 'pools'"),
        ("pools: {}\n", "1:1", "allowed: one mapping 'pools:'"),
        ("[1]\n", "1:1", "allowed: one mapping 'pools:'"),
    ],
)
def test_a_mistake_is_told_with_its_place(
    parse: Callable[[str], dict[str, Pool]], text: str, place: str, message: str
) -> None:
    with pytest.raises(SourceErrors) as raised:
        parse(text)
    assert f"pools.yaml:{place}: " in str(raised.value)
    assert message in str(raised.value)


def test_all_mistakes_are_told_at_once(parse: Callable[[str], dict[str, Pool]]) -> None:
    with pytest.raises(SourceErrors) as raised:
        parse("pools:\n  a: {executor: x, slots: 1}\n  b: {executor: local, slots: 1, bad: 1}\n")
    assert len(raised.value.errors) == 2


@pytest.fixture
def here(parse: Callable[[str], dict[str, Pool]]) -> dict[str, ReadyPool]:
    return ready_pools(parse(EXAMPLE), NO_DRIVER)


def why(job: Job, pools: dict[str, ReadyPool]) -> str | None:
    return cannot_run(job, pools, launchable={"reference"}, checks={"active"})


def test_what_fits_can_run(make_job: MakeJob, here: dict[str, ReadyPool]) -> None:
    assert why(make_job("a", cpu=2), here) is None
    assert why(make_job("a", cpu=1, kind=None), here) is None


def test_refusals_are_sentences(make_job: MakeJob, here: dict[str, ReadyPool]) -> None:
    assert why(make_job("a", cpu=4), here) == "needs 4 cpu slots, pool cpu has 2"
    assert why(make_job("a", gpu="b200", count=4), here) == (
        "no pool has 4 × b200 here: pool b200 needs executor slurm, which this release cannot drive"
    )
    assert why(make_job("a", gpu="h200", count=8), here) == (
        "no pool has 8 × h200 here: pool h200 has 0 devices: no NVIDIA driver found"
    )
    assert why(make_job("a", gpu="gb300", count=1), here) == (
        "no pool has 1 × gb300 here: no pool of gb300 among those to choose from (b200, cpu, h200)"
    )
    assert why(make_job("a", cpu=1, kind="sglang"), here) == (
        "engine kind sglang cannot be launched by this release"
    )
    assert why(make_job("a", cpu=1, python="other"), here) == (
        "virtual environment other cannot be used by this release"
    )


def test_a_pair_runs_where_both_of_its_kinds_can_be_launched(
    make_job: MakeJob, here: dict[str, ReadyPool]
) -> None:
    ours, theirs = (
        EngineSpec.model_validate({"kind": kind, "model": "m"}) for kind in ("reference", "sglang")
    )
    assert why(make_job("a", cpu=2, kind=None, prefill=ours, decode=ours), here) is None
    assert why(make_job("a", cpu=2, kind=None, prefill=theirs, decode=theirs), here) == (
        "engine kind sglang cannot be launched by this release"
    )


def test_every_reason_is_told(make_job: MakeJob, here: dict[str, ReadyPool]) -> None:
    params = ActiveParams(dcp=4)
    checks = (CheckSpec(name="active", params=params), CheckSpec(name="accuracy", params=params))
    engine = EngineSpec.model_validate({"kind": "vllm", "model": "m"})
    job = make_job("a", cpu=9, kind=None, checks=checks, decode=engine, prefill=engine)
    assert why(job, here) == (
        "needs 9 cpu slots, pool cpu has 2; "
        "engine kind vllm cannot be launched by this release; "
        "check accuracy is not implemented by this release"
    )
