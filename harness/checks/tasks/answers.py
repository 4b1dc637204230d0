"""Which number an answer gives, and whether it is the right one. Pure; used where questions are asked and scored.

A marked answer wins: the first `#### n` that ends its line. Without one it is the last number of the text, as
in upstream's tests; a last line `A: n` needs no rule of its own, its number is the last one. Numbers are
compared as numbers, never as text.
Failure rule: a text without a number has no answer (None), which is not a wrong one.
"""

from __future__ import annotations

import re
from decimal import Decimal

# Enters the digest of every question set: counts scored by one rule are no baseline for another. Raise it with
# every change that scores any text otherwise.
ANSWER_RULE = "answers 1: first mark, else last number"

# A minus belongs to a number only where nothing stands before it: "16-3" ends in 3, "x = -3" in -3. It may be
# typeset as U+2212. "1,234" is one number and "1,2" are two; ".5" is a number, the end of "v1.2.5" is not.
NUMBER = (
    r"(?P<minus>(?<![\w.)\]%])[-\u2212])?\$?"
    r"(?P<digits>(?:[0-9]{1,3}(?:,[0-9]{3})+(?![0-9])|[0-9]+)(?:\.[0-9]+)?|(?<![0-9.])\.[0-9]+)"
)
_NUMBER = re.compile(NUMBER)
# Nothing but a unit sign or a full stop may follow: "#### 1. Add them up" is a heading of a worked answer.
_MARKED = re.compile(rf"####[ \t]*{NUMBER}[ \t]*[$%]?\.?[ \t]*$", re.MULTILINE)


def find_answer(text: str) -> str | None:
    """The number that `text` gives as its answer, in plain digits ("-1234.5"), None where it holds none."""
    marked = _MARKED.search(text)
    if marked is not None:
        return _plain(marked)
    numbers = list(_NUMBER.finditer(text))
    return _plain(numbers[-1]) if numbers else None


def marked_answer(text: str) -> str | None:
    """The number of the first `#### n` alone: how a task's own worked answers end."""
    marked = _MARKED.search(text)
    return None if marked is None else _plain(marked)


def same_number(one: str, other: str) -> bool:
    """Whether two answers are the same number: "18.00" is "18". Both must be plain, as `find_answer` gives them."""
    return Decimal(one) == Decimal(other)


def _plain(found: re.Match[str]) -> str:
    digits = found["digits"].replace(",", "")
    whole, _, fraction = digits.partition(".")
    whole, fraction = whole.lstrip("0") or "0", fraction.rstrip("0")
    plain = f"{whole}.{fraction}" if fraction else whole
    return f"-{plain}" if found["minus"] and plain != "0" else plain
