"""The files that ship: suites, pools, and the normative example load, and say what they should."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
import yaml
from suite_helpers import DATA, REPOSITORY, write

from harness.suites import (
    CHECK_PARAMS,
    EngineKind,
    ParallelSpec,
    ParityParams,
    ProfileName,
    SuiteFile,
    check_catalogue,
    expand,
    load_catalogue,
    load_suite,
)
from harness.topology import dcp_groups

SUITES = REPOSITORY / "suites"


def test_the_normative_example_loads_unchanged() -> None:
    suite = load_suite(DATA / "normative.yaml", root=DATA)
    (cpu,), (gpu,) = expand(suite, ProfileName.CPU), expand(suite, ProfileName.GPU)
    assert suite.upstream == "test/registered/dcp/test_qwen3p5_triton_dcp.py"
    assert (gpu.timeout_s, gpu.launch_timeout_s, gpu.estimate_s) == (5400, 1500, 1800)
    assert gpu.engine and gpu.engine.kind is EngineKind.SGLANG and gpu.engine.source
    assert gpu.engine.source.install == "pip install -e python"
    assert gpu.engine.args == {
        "attention-backend": "triton",
        "disable-radix-cache": True,
        "mem-fraction-static": 0.80,
        "random-seed": 0,
    }
    assert cpu.engine and cpu.baseline
    assert (cpu.engine.parallel.dcp, cpu.baseline.parallel.dcp, cpu.baseline.parallel.tp) == (4, 1, 4)
    assert cpu.baseline.args == cpu.engine.args
    names = ["active", "parity", "batch", "accuracy", "capacity", "drained"]
    assert [check.name for check in cpu.checks] == [check.name for check in gpu.checks] == names
    parity = {job.profile: job.checks[1].params for job in (cpu, gpu)}
    lengths = (1, 3, 4, 5, 63, 64, 65, 257)
    assert parity[ProfileName.CPU] == ParityParams(
        model="builtin:random-gqa", dtype="fp32", logprob=1e-4, tokens="exact", lengths=lengths
    )
    assert parity[ProfileName.GPU] == ParityParams(logprob=0.05, tokens="exact", lengths=lengths)


def test_the_shipped_catalogue_is_clean() -> None:
    assert check_catalogue(SUITES) == []
    names = load_catalogue(SUITES).names
    assert names == tuple(sorted(names))
    assert {"dcp/parity_dcp4", "dcp/parity_dcp8", "dcp/gsm8k_dcp4", "dcp/gsm8k_dcp8"} <= set(names)


@pytest.mark.parametrize(("dcp", "tp", "groups"), [(4, 4, 1), (8, 8, 1), (2, 4, 2)])
def test_both_profiles_of_a_parity_suite_have_one_topology(dcp: int, tp: int, groups: int) -> None:
    suite = load_suite(SUITES / f"dcp/parity_dcp{dcp}.yaml", root=SUITES)
    for profile in ProfileName:
        (job,) = expand(suite, profile)
        assert job.engine and job.baseline
        assert (job.engine.parallel.tp, job.engine.parallel.dcp) == (tp, dcp)
        assert job.baseline.parallel.dcp == 1
        assert len(dcp_groups(job.engine.parallel.config())) == groups


def test_a_page_and_every_shard_boundary_lie_inside_the_parity_lengths() -> None:
    for dcp in (2, 4, 8):
        (job,) = expand(load_suite(SUITES / f"dcp/parity_dcp{dcp}.yaml", root=SUITES), ProfileName.CPU)
        (parity,) = [check.params for check in job.checks if isinstance(check.params, ParityParams)]
        assert job.engine
        page, interleave = job.engine.args["page-size"], job.engine.args.get("interleave", 1)
        for boundary in (interleave * dcp, page * dcp):
            assert {boundary - 1, boundary, boundary + 1} <= set(parity.lengths)


def test_the_pair_suite_hands_over_from_dcp_1_to_dcp_4_in_both_profiles() -> None:
    """At lengths on both sides of pages, chunks and shards."""
    suite = load_suite(SUITES / "dcp/pd_dcp4.yaml", root=SUITES)
    for profile, tp in ((ProfileName.CPU, 2), (ProfileName.GPU, 4)):
        (job,) = expand(suite, profile)
        assert job.prefill and job.decode and job.baseline
        assert (job.prefill.parallel.tp, job.prefill.parallel.dcp) == (tp, 1)
        assert (job.decode.parallel.tp, job.decode.parallel.dcp) == (4, 4)
        assert job.baseline == job.decode.with_parallel(dcp=1)
        assert [check.name for check in job.checks][-3:] == ["transfer", "drained", "interrupt"]
    (cpu,) = expand(suite, ProfileName.CPU)
    (parity,) = [check.params for check in cpu.checks if isinstance(check.params, ParityParams)]
    assert cpu.prefill is not None
    for boundary in (16 * 4, cpu.prefill.args["chunked-prefill-size"], 4 * 256):
        assert {boundary - 1, boundary, boundary + 1} <= set(parity.lengths)


def test_shipped_suites_name_only_pools_that_exist() -> None:
    pools = yaml.safe_load((REPOSITORY / "configs/pools.yaml").read_text())["pools"]
    assert {name: pool["executor"] for name, pool in pools.items()} == {
        "h200": "local",
        "b200": "slurm",
        "cpu": "local",
    }
    kinds = {pool.get("gpu") for pool in pools.values()}
    jobs = [job for suite in load_catalogue(SUITES).suites for job in expand(suite, ProfileName.GPU)]
    assert {job.needs.gpu for job in jobs} <= kinds


def test_the_manual_names_every_key_check_and_parameter() -> None:
    manual = (REPOSITORY / "docs/suites.md").read_text(encoding="utf-8")
    for name, params in CHECK_PARAMS.items():
        (row,) = [line for line in manual.splitlines() if line.startswith(f"| `{name}` |")]
        assert all(f"`{field}`" in row for field in params.model_fields), name
    for key in [*SuiteFile.model_fields, *SuiteFile.settled_keys, *ParallelSpec.model_fields]:
        assert f"`{key}`" in manual, key


def test_the_example_of_the_manual_loads(tmp_path: Path) -> None:
    manual = (REPOSITORY / "docs/suites.md").read_text(encoding="utf-8")
    example = manual.split("## A whole file")[1].split("## Keys")[0]
    suite = load_suite(write(tmp_path, textwrap.dedent(example)), root=tmp_path)
    assert list(suite.profiles) == list(ProfileName)
