"""Whether Triton is here, and how its kernels run: compiled, or by its interpreter.

Triton decides once, when it is imported: with TRITON_INTERPRET=1 in the environment, every kernel of the process
runs in numpy, on whatever device its tensors are. So that variable is set here, before the import, and nothing
else imports the kernels.
"""

from __future__ import annotations

import os
import threading
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor

from harness.errors import UsageError
from harness.refengine.triton_kernels.installed import find_triton

INTERPRET = "TRITON_INTERPRET"

# The interpreter keeps its grid position in a global, and ranks may be threads.
_ONE_AT_A_TIME = threading.Lock()


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernels:
    """The kernels of this process; `interpreted` says how they run."""

    decode: Any
    extend: Any
    merge: Any
    interpreted: bool

    def launch(
        self, kernel: Any, grid: tuple[int, ...], *args: object, on: Tensor, **constants: object
    ) -> None:
        """Run `kernel` over `grid` on the device of `on`; waits for it only under the interpreter."""
        with self._turn(on.device):
            kernel[grid](*args, **constants)

    def _turn(self, device: torch.device) -> AbstractContextManager[object]:
        if self.interpreted:
            return _ONE_AT_A_TIME
        # Triton launches on the current device, which need not be that of the tensors.
        return torch.cuda.device(device) if device.type == "cuda" else nullcontext()


def prepare_kernels(*, cuda: bool) -> None:
    """Import the kernels so that they run where tensors will be. Call before anything else imports triton.

    Raises UsageError where Triton is missing, or was imported too early to be interpreted on a CPU.
    """
    find_triton()
    if not cuda:
        os.environ[INTERPRET] = "1"
    if not cuda and not kernels().interpreted:
        raise UsageError(
            f"Triton was imported before {INTERPRET}=1 was set; without it nothing runs on a CPU"
        )


@cache
def kernels() -> Kernels:
    """The kernels, imported at the first call."""
    from triton import language
    from triton.runtime.interpreter import InterpretedFunction

    from harness.refengine.triton_kernels.decode_kernel import decode_kernel
    from harness.refengine.triton_kernels.extend_kernel import extend_kernel
    from harness.refengine.triton_kernels.merge_kernel import merge_kernel

    return Kernels(
        decode=decode_kernel,
        extend=extend_kernel,
        merge=merge_kernel,
        # Triton's own functions too: where Triton was imported earlier, they cannot be called from ours.
        interpreted=isinstance(decode_kernel, InterpretedFunction)
        and isinstance(language.cdiv, InterpretedFunction),
    )
