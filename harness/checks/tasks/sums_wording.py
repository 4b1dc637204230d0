"""How a story of the *sums* task is told: names, things, sentences, and facts that have nothing to do with it.

Used by `sums`. The English is plain on purpose: the difficulty is to keep track of numbers over several
steps, and a small model has to learn all of it.
"""

from __future__ import annotations

from harness.checks.tasks.sums_stories import LEAST, MOST, Amount, Ask, Draws, MoveKind, Story

NAMES = (
    "Ada", "Ben", "Carla", "Dev", "Emma", "Finn", "Grace", "Hugo",
    "Iris", "Jack", "Kira", "Liam", "Mia", "Noah", "Olga", "Paul",
)  # fmt: skip
THINGS = (
    "apples", "pens", "books", "shells", "stamps", "coins", "marbles", "stickers",
    "cards", "buttons", "beads", "stones", "pears", "nuts", "candles", "ribbons",
)  # fmt: skip
HOLDERS = ("bags", "boxes", "jars", "baskets")

# In all templates: who the story is about, `other` somebody else, `n` a number, `groups` another.
_START = ("{who} has {n} {things}.", "{who} starts with {n} {things}.")
_START_GROUPS = ("{who} has {groups} {holders} with {n} {things} each.",)
_MOVES = {
    MoveKind.ADD: ("{who} finds {n} more {things}.", "{other} gives {who} {n} {things}."),
    MoveKind.REMOVE: ("{who} loses {n} {things}.", "{who} gives {n} {things} to {other}."),
    MoveKind.ADD_GROUPS: ("{who} buys {groups} {holders} with {n} {things} each.",),
    MoveKind.REMOVE_GROUPS: ("{who} gives {groups} friends {n} {things} each.",),
    MoveKind.ADD_DAILY: ("For {groups} days, {who} gets {n} {things} a day.",),
    MoveKind.REMOVE_DAILY: ("For {groups} days, {who} uses {n} {things} a day.",),
    MoveKind.DOUBLE: ("Then {who} doubles the number of {things}.",),
    MoveKind.HALVE: ("{who} gives half of the {things} to {other}.", "{who} loses half of the {things}."),
}
_ASKS = {
    Ask.COUNT: ("How many {things} does {who} have now?", "How many {things} are left for {who}?"),
    Ask.PRICE: ("{who} sells all {things} for {n} dollars each. How many dollars does {who} get?",),
    Ask.SHARE: ("{who} shares the {things} equally among {n} friends. How many does each friend get?",),
    Ask.COMPARE: ("{other} has {n} {things}. How many more {things} does {who} have than {other}?",),
}
_ASIDES = (
    "{other} has {n} {others}.",
    "{who} also has {n} {others}.",
    "{other} is {n} years old.",
    "The walk to the market takes {n} minutes.",
)
# How many asides a story gets: every other one has none, as in a plain exercise.
_ASIDE_COUNTS = (0, 0, 1, 2)


def tell(story: Story, draws: Draws) -> str:
    """The whole question as one paragraph."""
    who, things = draws.pick(NAMES), draws.pick(THINGS)
    words = _Words(who=who, things=things, draws=draws)
    sentences = [words.say(_START if story.start.groups == 1 else _START_GROUPS, story.start)]
    sentences += [words.say(_MOVES[move.kind], move.amount) for move in story.moves]
    for _ in range(draws.pick(_ASIDE_COUNTS)):
        place = draws.below(len(sentences) + 1)
        sentences.insert(place, words.say(_ASIDES, Amount(each=LEAST + draws.below(MOST + 1 - LEAST))))
    number = None if story.number is None else Amount(each=story.number)
    return " ".join([*sentences, words.say(_ASKS[story.ask], number)])


class _Words:
    """Fills templates for one story: the same person and things throughout, the rest drawn anew."""

    def __init__(self, *, who: str, things: str, draws: Draws) -> None:
        self._fixed = {"who": who, "things": things}
        self._draws = draws
        self._others = [name for name in NAMES if name != who]
        self._other_things = [thing for thing in THINGS if thing != things]

    def say(self, templates: tuple[str, ...], amount: Amount | None) -> str:
        numbers = {} if amount is None else {"n": amount.each, "groups": amount.groups}
        return self._draws.pick(templates).format(
            **self._fixed,
            **numbers,
            other=self._draws.pick(self._others),
            others=self._draws.pick(self._other_things),
            holders=self._draws.pick(HOLDERS),
        )
