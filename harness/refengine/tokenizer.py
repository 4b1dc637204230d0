"""Text to tokens and back for the byte models: token b is byte b, then one mark each for begin and end.

Used by the HTTP front only; ranks know token ids. Any text can be encoded, any ids of the vocabulary decoded:
marks vanish and bytes that are not UTF-8 become U+FFFD, since a random model writes mostly such.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Sequence

from harness.errors import UsageError
from harness.refengine.model import BYTE_VOCABULARY

BOS_ID = 256
EOS_ID = 257


def encode(text: str) -> list[int]:
    """UTF-8 bytes of `text` after BOS, so that even an empty text has a token to start from.

    Lone surrogates, which JSON can carry and UTF-8 cannot, become "?".
    """
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
    """Decodes one answer token by token; the pieces joined are exactly `decode` of all tokens."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    @property
    def in_character(self) -> bool:
        """Whether bytes of an unfinished character are held back."""
        return bool(self._decoder.getstate()[0])

    def push(self, token: int) -> str:
        """Text that is certain after this token; empty in the middle of a character."""
        return self._decoder.decode(bytes([token])) if token < BOS_ID else ""

    def finish(self) -> str:
        """What an unfinished last character comes to."""
        return self._decoder.decode(b"", final=True)
