"""What the kernels' functions require of their arguments: kernels read and write by strides, wherever those lead.

Every error is a ValueError that names the argument, what it is and what it must be.
"""

from __future__ import annotations

from torch import Tensor


def require_shape(name: str, found: Tensor, *wanted: int | str) -> None:
    """`wanted` is the length of each dim; a word stands for any."""
    fits = len(wanted) == found.ndim and all(
        isinstance(want, str) or size == want for size, want in zip(found.shape, wanted, strict=True)
    )
    require(fits, name, list(found.shape), f"[{', '.join(map(str, wanted))}]")


def require_count(name: str, value: int) -> None:
    """A number of things of which there must be one."""
    require(value > 0, name, value, "1 or more")


def require_lens(lens: Tensor, *, most: int) -> None:
    """No sequence has more than `most` tokens. Unseen on a GPU, which would have to be waited for."""
    if lens.device.type == "cpu" and lens.numel():
        found = int(lens.max())
        require(
            found <= most, "the longest of lens", found, f"{most} at most, the tokens of a page table's row"
        )


def require_longest(longest: int, new_ends: Tensor, *, tokens: int) -> None:
    """No sequence has more than `longest` of the new `tokens`. On a GPU, seen only where they could not be all."""
    sequences = len(new_ends) - 1
    counts = new_ends.diff()
    least = (
        int(counts.max()) if new_ends.device.type == "cpu" and sequences else -(-tokens // max(1, sequences))
    )
    require(longest >= least, "longest", longest, f"{least} or more, the new tokens of one sequence")


def require(holds: bool, name: str, found: object, allowed: str) -> None:
    """Anything else about an argument."""
    if not holds:
        raise ValueError(f"{name} is {found}; it must be {allowed}")
