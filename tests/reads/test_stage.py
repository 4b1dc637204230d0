"""What a drive stands on, without the package: old names, overlays, and patches that are undone."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from harness.errors import UsageError
from harness.reads import registry
from harness.reads.copied import Copied
from harness.reads.drive import find_driven
from harness.reads.registry import Kind, Role, consumer
from harness.reads.stage import ConsumerAbsentError, Stage
from harness.topology import ParallelConfig, ParallelState


@contextmanager
def stage(role: Role = Role.TARGET, copied: Copied | None = None) -> Iterator[Any]:
    ps = ParallelState.from_config(ParallelConfig(tp_size=8, pp_size=2, dcp_size=4), tp_rank=7, pp_rank=1)
    worker: Any = SimpleNamespace(ps=ps, server_args=SimpleNamespace(dcp_size=8, host="here"))
    with Stage(worker, role, sentinel=(16, 9)) as made:
        vars(made)["copied"] = copied or Copied(None, None)
        yield made


def test_ps_answers_under_the_names_of_all_releases() -> None:
    with stage() as on:
        assert (on.ps.attn_dcp_size, on.ps.dcp_size) == (4, 4)
        assert (on.ps.attn_dcp_rank, on.ps.dcp_rank) == (3, 3)
        assert replace(on.ps, pp_rank=0).dcp_size == 4


def test_a_draft_s_ps_is_the_target_s_in_the_first_stage() -> None:
    with stage(Role.TARGET) as target, stage(Role.DRAFT) as draft:
        assert draft.ps == replace(target.ps, pp_rank=0)
        assert (target.runner.is_draft_worker, draft.runner.is_draft_worker) == (False, True)


@pytest.mark.parametrize(
    ("copied", "found"), [(Copied(None, None), (16, 9)), (Copied(8, 7), (8, 7)), (Copied(8, None), (8, 9))]
)
def test_a_runner_carries_what_the_constructor_copied_else_the_sentinel(
    copied: Copied, found: tuple[int, int]
) -> None:
    with stage(copied=copied) as on:
        assert (on.runner.dcp_size, on.runner.dcp_rank) == found


def test_a_field_given_lies_over_the_launch_arguments() -> None:
    with stage() as on:
        on.give(host="there")
        assert (on.server_args.host, on.server_args.dcp_size) == ("there", 8)
        assert on.worker.server_args.host == "here"


def test_patches_end_with_the_drive() -> None:
    plain = json.loads
    with stage() as on:
        on.patch(json, "loads", None)
        on.module("harness_fake_module", answer=7)
        on.module("json", answer=8)
        assert json.loads is None
        assert sys.modules["harness_fake_module"].answer == 7
        assert sys.modules["json"].answer == 8
        import colorsys  # imported for the first time inside: stays
    assert json.loads is plain
    assert "harness_fake_module" not in sys.modules
    assert sys.modules["json"] is json
    assert sys.modules["colorsys"] is colorsys


def test_a_patch_of_what_is_not_there_is_refused() -> None:
    with stage() as on, pytest.raises(AttributeError):
        on.patch(json, "no_such_function", None)


def test_what_a_release_lacks_makes_the_consumer_absent() -> None:
    with stage() as on:
        assert on.require(json, "loads") is json.loads
        with pytest.raises(ConsumerAbsentError, match="json has no parse"):
            on.require(json, "parse")


def test_the_first_function_that_is_there_is_driven() -> None:
    assert find_driven(("json:JSONDecoder.decode",)) is json.JSONDecoder.decode
    assert find_driven(("no_such_package.part:f", "json:nothing", "json:loads")) is json.loads


def test_what_is_not_there_is_said_of_every_path() -> None:
    with pytest.raises(ConsumerAbsentError) as caught:
        find_driven(("json.nowhere:loads", "json:JSONDecoder.parse"))
    assert str(caught.value) == "there is no module json.nowhere; JSONDecoder has no parse"


def test_a_missing_dependency_is_no_absent_consumer(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "harness_needs_more.py").write_text("import harness_not_installed\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="harness_not_installed"):
        find_driven(("harness_needs_more:f",))


def test_a_name_is_registered_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_consumers", {})
    with pytest.raises(UsageError, match="twice"):
        for _ in range(2):
            consumer("tests.twice", kind=Kind.FACT, drives="json:loads")(lambda *_: "")
