"""Before torch is installed: say what a plain install brings on a machine without an NVIDIA driver."""

import sys
from importlib.util import find_spec
from pathlib import Path

index = sys.argv[1] if len(sys.argv) > 1 else ""
driver = Path("/proc/driver/nvidia/version")

print("installing into .venv; the first time takes a few minutes", flush=True)
if not (index or driver.exists() or find_spec("torch")):
    print(
        "hint: no NVIDIA driver here. Where the package index offers only CUDA builds, torch is several GB;\n"
        "      make run TORCH_INDEX=URL takes it from another index, such as the CPU one that PyTorch's\n"
        "      'Get started' page names.",
        flush=True,
    )
