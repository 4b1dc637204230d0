"""What one drive of one consumer stands on: stand-ins that carry the three sources, and patches that are undone.

Made by `drive` for each assignment, inside `inject()`, and closed after the answer.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import asdict, fields, make_dataclass
from functools import cached_property
from types import ModuleType, SimpleNamespace, TracebackType
from typing import Any
from unittest import mock

from harness.errors import HarnessError
from harness.reads.bare import View
from harness.reads.copied import Copied, drive_constructor
from harness.reads.registry import Role
from harness.topology import ParallelState
from harness.topology.targets.sglang import SglangWorker


class ConsumerAbsentError(HarnessError):
    """The release has no such consumer; the message names the attribute or module that is not there."""


# Answers under the names of all releases, so that a consumer which goes back to an old name is seen with the
# number of `ps` instead of dying. A dataclass, because the package copies it with dataclasses.replace().
_PerWorkerState = make_dataclass(
    "PerWorkerState",
    [*((f.name, Any) for f in fields(ParallelState)), ("dcp_size", Any), ("dcp_rank", Any)],
    frozen=True,
)


class Stage:
    """Stand-ins and patches of one drive.

    `sentinel` is (size, rank): what a model runner carries under `dcp_size` and `dcp_rank` where the release's
    own constructor puts nothing there. `backends` is what `dcp_comm_backend` says by source, BACKEND only.
    """

    def __init__(
        self,
        worker: SglangWorker,
        role: Role,
        *,
        sentinel: tuple[int, int],
        backends: Mapping[str, str] | None = None,
    ) -> None:
        self.worker = worker
        self.role = role
        self.backends = dict(backends or {})
        # The package seals its server args; a probe lays single fields over them.
        self.server_args = View(worker.server_args)
        self._sentinel = sentinel
        self._patches = ExitStack()

    def __enter__(self) -> Stage:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._patches.close()

    @cached_property
    def ps(self) -> Any:
        """The per-worker state with the `ps` numbers, under `attn_dcp_size` and the older `dcp_size`.

        A draft worker's is the target's with `pp_rank` 0, as the package makes it.
        """
        given = asdict(self.worker.ps)
        if self.role is Role.DRAFT:
            given["pp_rank"] = 0
        return _PerWorkerState(**given, dcp_size=given["attn_dcp_size"], dcp_rank=given["attn_dcp_rank"])

    @cached_property
    def copied(self) -> Copied:
        """What the release's own ModelRunner constructor put on the runner; fields are None where nothing."""
        return drive_constructor(self)

    @property
    def copy_size(self) -> int:
        """`model_runner.dcp_size` as consumers find it: what the constructor copied, else the sentinel."""
        return self._sentinel[0] if self.copied.size is None else self.copied.size

    @property
    def copy_rank(self) -> int:
        return self._sentinel[1] if self.copied.rank is None else self.copied.rank

    @cached_property
    def runner(self) -> Any:
        """A stand-in model runner; a probe sets what else its function wants."""
        return SimpleNamespace(
            ps=self.ps,
            server_args=self.server_args,
            dcp_size=self.copy_size,
            dcp_rank=self.copy_rank,
            is_draft_worker=self.role is Role.DRAFT,
            device="cpu",
        )

    def patch(self, owner: Any, name: str, value: Any) -> None:
        """Set an attribute of a module, class or object until the drive ends. It must be there already."""
        self._patches.enter_context(mock.patch.object(owner, name, value))

    def give(self, **fields: Any) -> None:
        """Say more in the launch arguments than topology: on `server_args`, as consumers of an instance find it."""
        vars(self.server_args).update(fields)

    def publish(self, **fields: Any) -> None:
        """The same in the published config, by the package's own way to change a field after the launch."""
        from sglang.srt.runtime_context import get_context

        get_context().override("harness.reads", **fields)

    def live(self, **names: Any) -> None:
        """Say more in the live topology than `inject()` does, until the drive ends."""
        from sglang.srt.runtime_context import get_parallel

        self._patches.enter_context(get_parallel().override(**names))

    def module(self, name: str, **attributes: Any) -> None:
        """Put a stand-in module in the place of one that wants a GPU, until the drive ends."""
        # One entry and no more: what a drive imports for the first time stays imported, torch bears no second time.
        self._patches.callback(_put_back, name, sys.modules.get(name))
        sys.modules[name] = ModuleType(name)
        vars(sys.modules[name]).update(attributes)

    def require(self, owner: Any, name: str) -> Any:
        """`owner.name`; where the release has no such attribute, the consumer is absent in it."""
        if not hasattr(owner, name):
            raise ConsumerAbsentError(f"{_told(owner)} has no {name}")
        return getattr(owner, name)


def _put_back(name: str, module: ModuleType | None) -> None:
    if module is None:
        del sys.modules[name]
    else:
        sys.modules[name] = module


def _told(owner: Any) -> str:
    return getattr(owner, "__name__", None) or type(owner).__name__
