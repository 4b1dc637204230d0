"""Text to tokens and back for trained models: frequent pieces of text are one token, all else is bytes.

Ids 0 to 257 are those of `tokenizer`: bytes, begin and end; words follow. The list of words comes from the
checkpoint. Digits are never part of a word of the shipped model, so that it sees numbers digit by digit. Any
text comes back unchanged, whatever the words are, since what is no word is spelled in bytes.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable, Sequence

from harness.errors import UsageError
from harness.refengine.model import BYTE_VOCABULARY
from harness.refengine.tokenizer import BOS_ID


class WordTokenizer:
    """Token `BYTE_VOCABULARY + i` is `words[i]`. Raises UsageError for an empty or a repeated word."""

    def __init__(self, words: Sequence[str]) -> None:
        spelled = [word.encode("utf-8", errors="replace") for word in words]
        if not all(spelled) or len(set(spelled)) < len(spelled):
            raise UsageError("the words of a tokenizer must be distinct and not empty")
        self.words = tuple(words)
        self.vocab_size = BYTE_VOCABULARY + len(spelled)
        self._spelling = [bytes([byte]) for byte in range(256)] + [b""] * (BYTE_VOCABULARY - 256) + spelled
        # A word wins over its own bytes, also where it has only one.
        self._ids = {spelling: token for token, spelling in enumerate(self._spelling) if spelling}
        # The longest word that fits wins, then any byte: every text is cut in exactly one way.
        longest_first = sorted(spelled, key=lambda word: (-len(word), word))
        self._piece = re.compile(b"|".join([*map(re.escape, longest_first), b"."]), re.DOTALL)

    def encode(self, text: str) -> list[int]:
        """BOS, then the pieces of `text`. Lone surrogates become "?", as for the byte models."""
        pieces = self._piece.findall(text.encode("utf-8", errors="replace"))
        return [BOS_ID, *(self._ids[piece] for piece in pieces)]

    def decode(self, tokens: Iterable[int]) -> str:
        """The text of `tokens`, marks left out; bytes that are not UTF-8 become U+FFFD."""
        return b"".join(self._spelling[token] for token in tokens).decode("utf-8", errors="replace")

    def stream(self) -> WordStream:
        """A decoder for one answer, token by token."""
        return WordStream(self._spelling)


class WordStream:
    """Decodes one answer token by token; the pieces joined are exactly `decode` of all tokens."""

    def __init__(self, spelling: Sequence[bytes]) -> None:
        self._spelling = spelling
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    @property
    def in_character(self) -> bool:
        """Whether bytes of an unfinished character are held back."""
        return bool(self._decoder.getstate()[0])

    def push(self, token: int) -> str:
        """Text that is certain after this token; empty in the middle of a character."""
        return self._decoder.decode(self._spelling[token])

    def finish(self) -> str:
        """What an unfinished last character comes to."""
        return self._decoder.decode(b"", final=True)
