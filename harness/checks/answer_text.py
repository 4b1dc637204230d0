"""What can be measured on the text of answers: how much is printable, how much repeats; and how to quote it. Pure.

Used by `decode_sanity`. Both measures are upstream's: printable ASCII with line breaks and tabs, and the most
frequent piece of five characters.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

PIECE = 5
# Upstream's minimum for repetition. In less text one emoji, or one word said twice, decides a share.
MEASURED = 50
# A quoted answer of this many characters still leaves room for the sentence around it.
QUOTED = 80
# What is shown before the place where two answers part.
BEFORE = 20


def printable_share(text: str) -> float:
    """The share of printable ASCII, line breaks and tabs among the characters of a text that has some."""
    return sum(" " <= letter <= "~" or letter in "\n\t" for letter in text) / len(text)


def repeat_share(text: str) -> float:
    """The share of the most frequent piece of PIECE characters among all places where one begins."""
    pieces = Counter(text[i : i + PIECE] for i in range(len(text) - PIECE + 1))
    return max(pieces.values()) / pieces.total()


def measurable(texts: Iterable[str]) -> list[str]:
    """Every text that is long enough to measure, and the short ones as one text if together they are."""
    every = list(texts)
    short = "\n".join(text for text in every if len(text) < MEASURED)
    return [text for text in [*every, short] if len(text) >= MEASURED]


def first_line(text: str) -> str:
    """The first line that is not blank: the answer itself, before a model goes on with what nobody asked."""
    return text.strip().partition("\n")[0]


def inner_letter(text: str) -> str:
    """The letter or digit that comes up latest in `text`, to stop at; empty where none has anything before it.

    One is enough, since it is ASCII: it stands where it stands, however an engine decodes what is around it.
    """
    plain = {letter for letter in text[1:] if letter.isascii() and letter.isalnum()} - set(text[:1])
    return max(plain, key=text.find, default="")


def quote(text: str, *, limit: int = QUOTED) -> str:
    """`text` on one line of plain ASCII, in quotes; whatever the bytes, no terminal and no JSON breaks."""
    if len(text) <= limit:
        return ascii(text)
    return f"{text[:limit]!a}… ({len(text)} characters)"


def quote_parting(one: str, other: str) -> tuple[str, str]:
    """Both texts from a little before the first character in which they differ."""
    same = next(
        (i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other))
    )
    start = max(0, same - BEFORE)
    return quote(one[start:]), quote(other[start:])
