"""Which NVIDIA GPUs this machine has, through NVML (extra `nvml`), or the typed reason why none are known.

NVML hangs when a driver is wedged, so it is asked in a child process with a deadline. An outer
`CUDA_VISIBLE_DEVICES` is respected: a device that the caller may not see is not offered.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path

# A healthy NVML answers in well under a second, a cold one (no persistence daemon) in about ten.
PROBE_SECONDS = 30.0

# Where the kernel driver shows itself, whether or not any user-space library is installed.
DRIVER = Path("/proc/driver/nvidia/version")

PROBE = """
import json, pynvml
pynvml.nvmlInit()
gpus = []
for index in range(pynvml.nvmlDeviceGetCount()):
    handle = pynvml.nvmlDeviceGetHandleByIndex(index)
    name, uuid = pynvml.nvmlDeviceGetName(handle), pynvml.nvmlDeviceGetUUID(handle)
    gpus.append([index, *(x.decode() if isinstance(x, bytes) else x for x in (name, uuid))])
print(json.dumps(gpus))
"""


class NvmlUnavailable(StrEnum):
    """Why no GPU is known."""

    NO_DRIVER = "no NVIDIA driver found"
    NO_EXTRA = "extra nvml is not installed (pip install 'harness[nvml]')"
    HUNG = "NVML did not answer in time"
    FAILED = "NVML failed"
    HIDDEN = "CUDA_VISIBLE_DEVICES hides every device"


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One GPU: NVML index (PCI order), product name, UUID."""

    index: int
    name: str
    uuid: str


class NvmlInventory:
    """The machine's GPUs, asked once, at first use. Fits planning's `DeviceInventory`."""

    def __init__(
        self,
        *,
        probe: Callable[[], list[Gpu] | NvmlUnavailable] | None = None,
        environ: Mapping[str, str] = os.environ,
    ) -> None:
        self._probe = probe or probe_nvml
        self._environ = environ

    @cached_property
    def _found(self) -> list[Gpu] | NvmlUnavailable:
        found = self._probe()
        mask = self._environ.get("CUDA_VISIBLE_DEVICES")
        if isinstance(found, NvmlUnavailable) or mask is None:
            return found
        return visible(found, mask) or NvmlUnavailable.HIDDEN

    def devices(self, gpu: str) -> Sequence[str]:
        """Device names `gpu:INDEX` of the GPUs whose product name holds the word `gpu` (`h200`)."""
        found = self._found
        if isinstance(found, NvmlUnavailable):
            return ()
        return tuple(f"gpu:{one.index}" for one in found if gpu.casefold() in one.name.casefold().split())

    def unavailable(self) -> str | None:
        """Why no device at all is known, as a phrase for a report; None when some are."""
        found = self._found
        return str(found) if isinstance(found, NvmlUnavailable) else None


def visible(gpus: Sequence[Gpu], mask: str) -> list[Gpu]:
    """The GPUs that CUDA would show under that mask: indices or UUID prefixes, cut at the first bad entry."""
    shown: list[Gpu] = []
    for entry in (part.strip() for part in mask.split(",")):
        match = [
            one for one in gpus if entry == str(one.index) or (len(entry) > 4 and one.uuid.startswith(entry))
        ]
        if len(match) != 1:
            break
        shown.append(match[0])
    return sorted(shown, key=lambda one: one.index)


def probe_nvml() -> list[Gpu] | NvmlUnavailable:
    """Ask NVML in a child process; every way in which it fails has its own answer."""
    if not DRIVER.exists():
        return NvmlUnavailable.NO_DRIVER
    if find_spec("pynvml") is None:
        return NvmlUnavailable.NO_EXTRA
    return ask([sys.executable, "-c", PROBE], seconds=PROBE_SECONDS)


def ask(command: Sequence[str], *, seconds: float) -> list[Gpu] | NvmlUnavailable:
    """Run a probe that prints `[[index, name, uuid], …]` as JSON; it gets `seconds`."""
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        output, _ = child.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        child.kill()  # not waited for: inside a wedged driver it may not die
        return NvmlUnavailable.HUNG
    if child.returncode != 0:
        return NvmlUnavailable.FAILED
    rows = sorted(json.loads(output))
    return [Gpu(index=index, name=name, uuid=uuid) for index, name, uuid in rows]
