"""What the fake engine says to a text: right answers to the probes, unless it is told to break a rule."""

from __future__ import annotations

import re
from collections.abc import Set

from harness.engines import Completion
from harness.errors import RequestRefusedError

# By a word of the question.
ANSWERS = {
    "France": " Paris.\nQuestion: What is the capital of Spain?\nAnswer: Madrid.",
    "17 x 23": " 391",
    "colour": " Yellow.",
    "park": " The sun shone on the children who played in the park until the evening came.",
    "gravity": " Gravity is the force by which all bodies that have a mass attract each other.",
    "46 + 37 = ": "83 and what was never learned",
    "93 - 48 = ": "45 and what was never learned",
    "7 * 8 = ": "56 and what was never learned",
    "72 / 9 = ": "8 and what was never learned",
    "shells": " 5 * 8 = 40\n40 - 12 = 28\n28 / 4 = 7\n#### 7",
}
# Faults of `decode_sanity`, by name: the word of the question that is answered otherwise, and with what.
OTHERWISE = {
    "wrong-content": ("17 x 23", " 401"),
    "empty-answer": ("park", ""),
    "one-word": ("France", " Paris"),
    "not-printable": ("park", " Die Sonne schien" + " ☀\x1b[31m\x00" * 20),
    "loops": ("gravity", " the" * 40),
    "never-ends": ("shells", " 5 * 8 = 40" * 40 + "\n#### 7"),
}


class FakeText:
    """Continues texts, a word a token. `calls` counts them, for faults that need a second call."""

    def __init__(self, faults: Set[str]) -> None:
        self._faults = faults
        self._calls: dict[str, int] = {}

    def complete(self, prompt: str, *, max_new_tokens: int, stop: tuple[str, ...]) -> Completion:
        self._refuse(max_new_tokens)
        self._calls[prompt] = self._calls.get(prompt, 0) + 1
        words = re.findall(r"\s*\S+", self._answer(prompt))
        text = "".join(words[:max_new_tokens])
        reason = "length" if len(words) > max_new_tokens else "stop"
        found = [text.find(end) for end in stop if end in text]
        if found and "ignores-stop" not in self._faults:
            text, reason = text[: min(found)], "stop"
        if "aborts-later" in self._faults and self._calls[prompt] == 2:
            reason = "abort"
        return self._told(text, reason, limit=max_new_tokens)

    def _refuse(self, limit: int) -> None:
        if "no-completions" in self._faults:
            raise RequestRefusedError("/v1/completions: status 404: Not Found", status=404)
        if "lost-later" in self._faults and self._calls:
            raise RequestRefusedError("/v1/completions: status 404: Not Found", status=404)
        if "refuses-one-token" in self._faults and limit == 1:
            raise RequestRefusedError("/v1/completions: status 500: captured graph", status=500)

    def _answer(self, prompt: str) -> str:
        said = next(
            (answer for word, answer in ANSWERS.items() if word in prompt), f" {prompt[::-1]} of noise"
        )
        for fault, (word, other) in OTHERWISE.items():
            if fault in self._faults and word in prompt:
                said = other
        if "unsteady" in self._faults and self._calls[prompt] == 2:
            said = said[:-1] + "!"
        if "drifts" in self._faults:
            said = f" {self._calls[prompt]}{said}"
        return "" if "silent" in self._faults else said

    def _told(self, text: str, reason: str, *, limit: int) -> Completion:
        if {"silent-at-one", "mark-first"} & self._faults and limit == 1:
            text = ""
        if "always-stop" in self._faults:
            reason = "stop"
        if "always-length" in self._faults:
            reason = "length"
        if "aborts" in self._faults:
            reason = "abort"
        tokens = max(1, len(text.split())) if "mark-first" in self._faults else len(text.split())
        tokens += limit if "overlong" in self._faults else 0
        tokens = 0 if "counts-no-tokens" in self._faults else tokens
        return Completion(text=text, tokens=tokens, finish_reason=reason, prompt_tokens=3)
