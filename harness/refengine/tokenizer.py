"""Text to tokens and back: what the HTTP front needs of a tokenizer, and that of the byte models.

Used by the front only; ranks know token ids. Every tokenizer here begins alike: token b below 256 is byte b,
then one mark each for begin and end of a text. Any text can be encoded, any ids of the vocabulary decoded:
marks vanish and bytes that are not UTF-8 become U+FFFD, since a random model writes mostly such.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Sequence
from typing import Protocol

from harness.errors import UsageError
from harness.refengine.model import BYTE_VOCABULARY

BOS_ID = 256
EOS_ID = 257


class TextStream(Protocol):
    """Decodes one answer token by token; the pieces joined are exactly `decode` of all tokens."""

    @property
    def in_character(self) -> bool:
        """Whether bytes of an unfinished character are held back."""

    def push(self, token: int) -> str:
        """Text that is certain after this token; empty in the middle of a character."""

    def finish(self) -> str:
        """What an unfinished last character comes to."""


class Tokenizer(Protocol):
    """What belongs to a model beside its weights. Ids 0 to 257 mean the same in all of them."""

    @property
    def vocab_size(self) -> int:
        """Ids are below this."""

    def encode(self, text: str) -> list[int]:
        """Tokens of `text` after BOS, so that even an empty text has a token to start from."""

    def decode(self, tokens: Iterable[int]) -> str:
        """The text of `tokens`, marks left out."""

    def stream(self) -> TextStream:
        """A decoder for one answer."""


class ByteTokenizer:
    """The tokenizer of the random models: a token is a byte of UTF-8."""

    vocab_size = BYTE_VOCABULARY

    def encode(self, text: str) -> list[int]:
        return encode(text)

    def decode(self, tokens: Iterable[int]) -> str:
        return decode(tokens)

    def stream(self) -> TextStream:
        return StreamDecoder()


def encode(text: str) -> list[int]:
    """UTF-8 bytes of `text` after BOS. Lone surrogates, which JSON can carry and UTF-8 cannot, become "?"."""
    return [BOS_ID, *text.encode("utf-8", errors="replace")]


def decode(tokens: Iterable[int]) -> str:
    """The text of `tokens`, marks left out."""
    return bytes(token for token in tokens if token < BOS_ID).decode("utf-8", errors="replace")


def check_tokens(tokens: Sequence[int], vocab_size: int = BYTE_VOCABULARY) -> None:
    """Raise UsageError for an empty prompt or the first id outside the vocabulary."""
    if not tokens:
        raise UsageError("the prompt has no tokens; at least one is needed")
    for place, token in enumerate(tokens):
        if not 0 <= token < vocab_size:
            raise UsageError(
                f"token {token} at place {place} is not in the vocabulary: 0 to {vocab_size - 1}"
            )


class StreamDecoder:
    """The `TextStream` of bytes."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    @property
    def in_character(self) -> bool:
        return bool(self._decoder.getstate()[0])

    def push(self, token: int) -> str:
        return self._decoder.decode(bytes([token])) if token < BOS_ID else ""

    def finish(self) -> str:
        return self._decoder.decode(b"", final=True)
