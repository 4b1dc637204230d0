"""The fourth number: what the package's own ModelRunner constructor copies onto the runner.

0.5.17 put the launch arguments' size there (`model_runner.dcp_size`), later releases nothing. The real
constructor is driven to its end; everything heavy that it calls is replaced.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from harness.reads.bare import StandIn
from harness.reads.registry import Role

if TYPE_CHECKING:
    from harness.reads.stage import Stage

# Functions of the module that would replace the published arguments, or want a real engine around them.
_HEAVY = (
    "set_global_server_args_for_scheduler",
    "assert_published",
    "resolve_draft_attention_backend",
    "set_offloader",
    "create_offloader",
    "create_offloader_from_server_args",
    "enable_show_time_cost",
    "WeightChecker",
)


@dataclass(frozen=True, slots=True)
class Copied:
    """`dcp_size` and `dcp_rank` of a runner after its constructor; None where it set none."""

    size: int | None
    rank: int | None


def drive_constructor(stage: Stage) -> Copied:
    """Run `ModelRunner.__init__` of the package on the stage's sources; what is on the runner afterwards."""
    from sglang.srt.model_executor import model_runner

    for name in _HEAVY:
        if hasattr(model_runner, name):
            stage.patch(model_runner, name, StandIn(name=name))
    stage.patch(model_runner.misc_utils, "maybe_disable_chunked_prefix_cache", StandIn())
    given = {
        "model_config": StandIn(name="model_config", is_multimodal=False),
        "mem_fraction_static": 0.5,
        "gpu_id": 0,
        "ps": stage.ps,
        "nccl_port": 0,
        "server_args": stage.server_args,
        "is_draft_worker": stage.role is Role.DRAFT,
    }
    wanted = inspect.signature(model_runner.ModelRunner.__init__).parameters
    runner = _without_methods(model_runner.ModelRunner)(**{k: v for k, v in given.items() if k in wanted})
    return Copied(size=vars(runner).get("dcp_size"), rank=vars(runner).get("dcp_rank"))


def _without_methods(base: type) -> type:
    """The class with its real constructor, in which every method that the constructor calls does nothing."""
    methods = {
        name for name, value in inspect.getmembers(base, inspect.isfunction) if not name.startswith("__")
    }

    class Driven(base):  # type: ignore[misc]
        model = SimpleNamespace(forward=_forward)

        def __getattribute__(self, name: str) -> Any:
            return _nothing if name in methods else super().__getattribute__(name)

    return Driven


def _forward(pp_proxy_tensors: object = None) -> None:
    """What the constructor looks at to know that a model can be cut into stages."""


def _nothing(*_args: object, **_named: object) -> None:
    return None
