"""The stories behind the *sums* task: who has how many of what, what happens to them, what is asked.

A story is numbers and choices, no text: `sums_wording` tells it, `solve` works it out one equation a step, and
tests compute it a second way. `draw_story` never fails and never makes a number above `MOST`, a fraction, or
fewer than one thing.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TypeVar

# Two digits at most: a model of half a million numbers learns sums of that size in minutes, and not larger ones.
MOST = 99
# Bags, days, friends and prices are small, so that products stay within the times tables.
SMALL = range(2, 10)
MOVES = range(1, 4)
# A number of a text starts here: "1 apples" would be wrong English.
LEAST = 2

Item = TypeVar("Item")


class Draws:
    """Choices that depend on `seed` alone.

    Made of `random()` only: of the module's methods, Python promises for this one that its sequence stays the
    same in later versions.
    """

    def __init__(self, seed: str) -> None:
        self._random = random.Random(seed)

    def below(self, count: int) -> int:
        return int(self._random.random() * count)

    def pick(self, items: Sequence[Item]) -> Item:
        return items[self.below(len(items))]


class MoveKind(Enum):
    """What can happen to somebody's things."""

    ADD = "add"
    REMOVE = "remove"
    ADD_GROUPS = "add groups"
    REMOVE_GROUPS = "remove groups"
    ADD_DAILY = "add daily"
    REMOVE_DAILY = "remove daily"
    DOUBLE = "double"
    HALVE = "halve"


class Ask(Enum):
    """What can be asked in the end."""

    COUNT = "count"
    PRICE = "price"
    SHARE = "share"
    COMPARE = "compare"


@dataclass(frozen=True, slots=True, kw_only=True)
class Amount:
    """`each` things, or `groups` times as many."""

    each: int
    groups: int = 1

    @property
    def total(self) -> int:
        return self.groups * self.each


_PAIRS = tuple(Amount(groups=groups, each=each) for groups in SMALL for each in SMALL)
_ADDING = (MoveKind.ADD_GROUPS, MoveKind.ADD_DAILY)
_GROUPED = (*_ADDING, MoveKind.REMOVE_GROUPS, MoveKind.REMOVE_DAILY)


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """One thing that happens; `amount` is None for doubling and halving."""

    kind: MoveKind
    amount: Amount | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """`number` is the price, the friends or the other's things, by `ask`; None for a plain count."""

    start: Amount
    moves: tuple[Move, ...]
    ask: Ask
    number: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Equation:
    """One step of the worked answer, `3 * 4 = 12`."""

    left: int
    sign: str
    right: int
    result: int

    def __str__(self) -> str:
        return f"{self.left} {self.sign} {self.right} = {self.result}"


def solve(story: Story) -> tuple[Equation, ...]:
    """The steps from the start to what is asked; the last one's result is the answer."""
    steps: list[Equation] = []
    have = _total(story.start, steps)
    for move in story.moves:
        have = _moved(have, move, steps)
    if story.number is not None:
        _answered(have, story.ask, story.number, steps)
    return tuple(steps)


def _total(amount: Amount, steps: list[Equation]) -> int:
    if amount.groups > 1:
        _step(amount.groups, "*", amount.each, steps)
    return amount.total


def _moved(have: int, move: Move, steps: list[Equation]) -> int:
    if move.amount is None:
        return _step(have, "*" if move.kind is MoveKind.DOUBLE else "/", 2, steps)
    sign = "+" if move.kind in (MoveKind.ADD, *_ADDING) else "-"
    return _step(have, sign, _total(move.amount, steps), steps)


def _answered(have: int, ask: Ask, number: int, steps: list[Equation]) -> None:
    sign = {Ask.PRICE: "*", Ask.SHARE: "/", Ask.COMPARE: "-"}[ask]
    _step(have, sign, number, steps)


def _step(left: int, sign: str, right: int, steps: list[Equation]) -> int:
    result = {"+": left + right, "-": left - right, "*": left * right, "/": left // right}[sign]
    steps.append(Equation(left=left, sign=sign, right=right, result=result))
    return result


def draw_story(draws: Draws) -> Story:
    """A story of 1 to 3 moves."""
    start = draws.pick(_groups(LEAST, MOST // 2)) if draws.below(2) else _single(LEAST, MOST * 2 // 3, draws)
    have, moves = start.total, []
    for _ in range(draws.pick(MOVES)):
        move = _draw_move(have, draws)
        moves.append(move)
        have = _moved(have, move, [])
    ask, number = _draw_ask(have, draws)
    return Story(start=start, moves=tuple(moves), ask=ask, number=number)


def _draw_move(have: int, draws: Draws) -> Move:
    """One that leaves between 1 and `MOST` things."""
    kind = draws.pick([kind for kind in MoveKind if _possible(kind, have)])
    if kind in (MoveKind.DOUBLE, MoveKind.HALVE):
        return Move(kind=kind)
    room = MOST - have if kind in (MoveKind.ADD, *_ADDING) else have - 1
    amount = draws.pick(_groups(LEAST, room)) if kind in _GROUPED else _single(LEAST, room, draws)
    return Move(kind=kind, amount=amount)


def _possible(kind: MoveKind, have: int) -> bool:
    smallest_groups = SMALL[0] * SMALL[0]
    match kind:
        case MoveKind.ADD:
            return have + LEAST <= MOST
        case MoveKind.REMOVE:
            return have > LEAST
        case MoveKind.ADD_GROUPS | MoveKind.ADD_DAILY:
            return have + smallest_groups <= MOST
        case MoveKind.REMOVE_GROUPS | MoveKind.REMOVE_DAILY:
            return have > smallest_groups
        case MoveKind.DOUBLE:
            return have * 2 <= MOST
        case MoveKind.HALVE:
            return have % 2 == 0


def _draw_ask(have: int, draws: Draws) -> tuple[Ask, int | None]:
    numbers: dict[Ask, Sequence[int | None]] = {
        Ask.COUNT: [None],
        Ask.PRICE: [price for price in SMALL if have * price <= MOST],
        Ask.SHARE: [friends for friends in SMALL if have % friends == 0],
        Ask.COMPARE: range(LEAST, have),
    }
    ask = draws.pick([ask for ask in Ask if numbers[ask]])
    return ask, draws.pick(numbers[ask])


def _groups(low: int, high: int) -> list[Amount]:
    return [pair for pair in _PAIRS if low <= pair.total <= high]


def _single(low: int, high: int, draws: Draws) -> Amount:
    return Amount(each=draws.pick(range(low, high + 1)))
