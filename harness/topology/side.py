"""The two engines that one request is shared by: one computes its prompt, the other answers."""

from __future__ import annotations

from enum import StrEnum


class Side(StrEnum):
    """The engines of a pair."""

    PREFILL = "prefill"
    DECODE = "decode"

    @property
    def other(self) -> Side:
        return Side.DECODE if self is Side.PREFILL else Side.PREFILL
