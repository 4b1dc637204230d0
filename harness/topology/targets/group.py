"""The DCP group as the package's consumers see it inside a block: it knows its ranks and nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from harness.topology.shim import InjectedGroup


@dataclass(frozen=True, slots=True)
class PackageGroup:
    """Answers under the names of the package's own group; what would communicate raises InjectionError."""

    ranks: tuple[int, ...]
    rank_in_group: int

    @property
    def rank(self) -> int:
        """This process among all, unlike `InjectedGroup.rank`: so the package's groups have it."""
        return self.ranks[self.rank_in_group]

    @property
    def world_size(self) -> int:
        return len(self.ranks)

    def __len__(self) -> int:
        return len(self.ranks)

    def __iter__(self) -> Iterator[int]:
        return iter(self.ranks)

    __getattr__ = InjectedGroup.__getattr__
