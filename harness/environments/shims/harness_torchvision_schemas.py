"""Lets torchvision import beside a torch without CUDA. The builder installs this file into the shared base.

torchvision's wheel on the common index is linked against CUDA. Beside a CPU build of torch its compiled half does
not load, so its operators are never declared, and `import torchvision` fails as it registers shapes for them. The
two declarations below are all it misses; the operators themselves stay without a body, and calling one says so.

torch loads this by itself in every process, through the entry point in its group `torch.backends`.
"""

from __future__ import annotations

import torch

SCHEMAS = (
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
)

# A library takes its operators back when it is collected.
_held: list[torch.library.Library] = []


def load() -> None:
    """Called by torch at the end of its own import. With CUDA torchvision declares them itself."""
    if torch.version.cuda is not None or _held:
        return
    library = torch.library.Library("torchvision", "DEF")
    for schema in SCHEMAS:
        library.define(schema)
    _held.append(library)
