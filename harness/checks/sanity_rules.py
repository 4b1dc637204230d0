"""The rules of `decode_sanity`, over answers that have been given. Pure.

Each rule looks at all answers and returns one `Ruling`: what is wrong, or what was seen, or why these answers
cannot show it. A rule that had nothing to look at never counts as kept.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from harness.checks.answer_text import (
    MEASURED,
    first_line,
    inner_letter,
    measurable,
    printable_share,
    quote,
    quote_parting,
    repeat_share,
)
from harness.checks.probes import Probe, Repeat
from harness.engines import Completion
from harness.suites import DecodeSanityParams

REASONS = ("stop", "length")
TOO_SHORT = f"all answers together have less than {MEASURED} characters of text"
NO_TEXT = "no answer has any text"
NOISE = "random weights write noise"
NO_ANSWER = "nothing was answered"


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A probe and its answer; `again` is the second answer to the same question, where one was asked for."""

    probe: Probe
    answer: Completion
    again: Completion | None = None

    @property
    def steady(self) -> bool:
        """Whether the second answer says the same as the first, as far as the probe demands."""
        return self.again is not None and self.compared(self.answer) == self.compared(self.again)

    def compared(self, answer: Completion) -> str:
        """The part of an answer that must be the same each time."""
        return answer.text if self.probe.repeat is Repeat.WHOLE else first_line(answer.text)

    def told(self) -> str:
        return f"{quote(self.probe.prompt)} was answered {quote(self.answer.text)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """The first answer of `asked` once more, but cut off: after one token, or at the stop string `piece`."""

    asked: Asked
    answer: Completion
    piece: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Transcript:
    """All that an engine said. `refused` are sentences about questions that it did not answer."""

    asked: tuple[Asked, ...]
    refused: tuple[str, ...] = ()
    one_token: Cut | None = None
    stopped: Cut | None = None

    @property
    def why_no_text(self) -> str:
        """Why there is no text to judge, where no answer is one."""
        return NOISE if self.asked else NO_ANSWER

    def measurable(self) -> tuple[list[str], str]:
        """The texts whose characters can be judged, or why there are none."""
        if not any(one.probe.text for one in self.asked):
            return [], self.why_no_text
        texts = measurable(one.answer.text for one in self.asked if one.probe.text)
        return texts, "" if texts else TOO_SHORT


@dataclass(frozen=True, slots=True, kw_only=True)
class Ruling:
    """One rule's word: `faults`, or what was `seen`; with `unjudged`, why it could not say."""

    rule: str
    seen: str = ""
    faults: tuple[str, ...] = ()
    unjudged: str = ""


def _content(answers: Transcript, params: DecodeSanityParams) -> Ruling:
    graded = [one for one in answers.asked if one.probe.expect]
    faults = [
        f"{one.told()}, expected {quote(one.probe.expect)}"
        for one in graded
        if not re.search(one.probe.expect, one.answer.text)
    ]
    faults += [
        one.told()
        for one in answers.asked
        if one.probe.text and not one.probe.expect and not one.answer.text.strip()
    ]
    return Ruling(
        rule="content",
        seen=f"{len(graded)} of {len(graded)} answers right",
        faults=tuple(faults),
        unjudged="" if graded else answers.why_no_text,
    )


def _printable(answers: Transcript, params: DecodeSanityParams) -> Ruling:
    texts, why = answers.measurable()
    faults = [
        f"only {share:.2f} of {quote(text)} is printable ASCII, more than {params.printable_share:g} is healthy"
        for text in texts
        if (share := printable_share(text)) <= params.printable_share
    ]
    least = min(map(printable_share, texts), default=0.0)
    return Ruling(
        rule="printable share",
        seen=f"printable share {least:.2f} or more",
        faults=tuple(faults),
        unjudged=why,
    )


def _repetition(answers: Transcript, params: DecodeSanityParams) -> Ruling:
    texts, why = answers.measurable()
    faults = [
        f"{share:.2f} of {quote(text)} repeats one piece of 5 characters, less than {params.repeat_share:g} is healthy"
        for text in texts
        if (share := repeat_share(text)) >= params.repeat_share
    ]
    most = max(map(repeat_share, texts), default=0.0)
    return Ruling(
        rule="repetition",
        seen=f"repeated share {most:.2f} or less",
        faults=tuple(faults),
        unjudged=why,
    )


def _sameness(answers: Transcript, params: DecodeSanityParams) -> Ruling:
    pairs = [
        (one, one.again)
        for one in answers.asked
        if one.again is not None and (one.answer.text or one.again.text)
    ]
    faults = []
    for one, again in pairs:
        if not one.steady:
            first, second = quote_parting(one.compared(one.answer), one.compared(again))
            faults.append(f"{quote(one.probe.prompt)} was answered {first} and, asked again, {second}")
    return Ruling(
        rule="same answer twice",
        seen=f"{len(pairs)} the same twice",
        faults=tuple(faults),
        unjudged="" if pairs else NO_TEXT,
    )


def _endings(answers: Transcript, params: DecodeSanityParams) -> Ruling:
    given = [
        (one, answer)
        for one in answers.asked
        for answer in (one.answer, one.again)
        if answer is not None and (answer.text or answer.tokens)
    ]
    faults = [
        f"{quote(one.probe.prompt)} was answered with {why}"
        for one, answer in given
        if (why := _wrong_end(answer, limit=one.probe.limit(params.max_new_tokens), ends=one.probe.ends))
    ]
    return Ruling(
        rule="finish reasons",
        seen="finish reasons right",
        faults=tuple(dict.fromkeys(faults)),
        unjudged="" if given else NO_TEXT,
    )


def _wrong_end(answer: Completion, *, limit: int, ends: bool) -> str:
    """What is wrong with the length and the end of an answer; an engine that counts no tokens says 0."""
    reason = answer.finish_reason
    if reason not in REASONS:
        return f"finish reason {quote(reason)}; there are {' and '.join(REASONS)}"
    if answer.tokens > limit:
        return f"{answer.tokens} tokens, asked for at most {limit}"
    if reason == "length" and 0 < answer.tokens < limit:
        return f"finish reason 'length' after {answer.tokens} of {limit} tokens"
    if reason == "length" and ends:
        return f"{quote(answer.text)}, which the model did not end within {limit} tokens"
    return ""


def _one_token(answers: Transcript, params: DecodeSanityParams) -> Ruling:
    cut = answers.one_token
    if cut is None or not (cut.asked.answer.text or cut.asked.probe.text):
        return Ruling(rule="one new token", unjudged=NO_TEXT)
    fault = _wrong_first_token(cut.answer, whole=cut.asked.answer, text=cut.asked.probe.text)
    told = f"{quote(cut.asked.probe.prompt)}, asked for one token, was answered with {fault}"
    return Ruling(rule="one new token", seen="one token answered", faults=(told,) if fault else ())


def _wrong_first_token(short: Completion, *, whole: Completion, text: bool) -> str:
    """What is wrong with an answer of one token. Of noise that token may be a mark without text."""
    if not short.text and (text or (whole.tokens and not short.tokens)):
        return "nothing"
    if why := _wrong_end(short, limit=1, ends=False):
        return why
    if len(whole.text) > len(short.text) and short.finish_reason != "length":
        reason = quote(short.finish_reason)
        return f"{quote(short.text)} and finish reason {reason}, though {quote(whole.text)} goes on"
    return ""


def _stop_string(answers: Transcript, params: DecodeSanityParams) -> Ruling:
    cut = answers.stopped
    if cut is None:
        return Ruling(rule="stop string", unjudged="no repeated answer has a letter to stop at")
    whole, got = cut.asked.answer.text, cut.answer
    expected = whole[: whole.find(cut.piece)]
    faults = []
    if got.text.strip() != expected.strip():
        faults.append(f"{quote(got.text)} instead of {quote(expected)}")
    if got.finish_reason != "stop":
        faults.append(f"finish reason {quote(got.finish_reason)} instead of 'stop'")
    told = f"{quote(cut.asked.probe.prompt)}, stopped at {quote(cut.piece)}, was answered with "
    return Ruling(
        rule="stop string", seen="a stop string stops", faults=tuple(told + fault for fault in faults)
    )


RULES: tuple[Callable[[Transcript, DecodeSanityParams], Ruling], ...] = (
    _content,
    _printable,
    _repetition,
    _sameness,
    _one_token,
    _endings,
    _stop_string,
)


def judge(answers: Transcript, params: DecodeSanityParams) -> Iterator[Ruling]:
    """Every rule's word; the first one tells what was not answered at all."""
    if answers.refused:
        yield Ruling(rule="answers", faults=answers.refused)
    for rule in RULES:
        yield rule(answers, params)


def stop_piece(asked: Asked) -> str:
    """What to stop the answer of a steady probe at; empty where it offers nothing."""
    return inner_letter(asked.compared(asked.answer)) if asked.steady else ""
