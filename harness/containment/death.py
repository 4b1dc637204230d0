"""A child that must not outlive its parent. Used as `preexec_fn` by whoever starts a helper process."""

from __future__ import annotations

import signal

from harness.containment.init import PR_SET_PDEATHSIG, prctl


def die_with_parent() -> None:
    """Ask the kernel to SIGKILL this process when the thread that started it ends.

    Call it in the child, and start the child from a thread that lives as long as it should: the death signal
    follows the thread, not the process.
    """
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
