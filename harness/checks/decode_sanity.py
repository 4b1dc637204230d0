"""`decode_sanity`: simple questions get the right content, in sane text, the same twice, and end as they say.

Upstream's probes for what breaks a model wholesale (weights, sampling, KV rows, graphs of one-token answers),
with two rules of our own: finish reasons and stop strings. What a model cannot show is not judged, and the
message says so; an engine that can show nothing is `unproven`.
"""

from __future__ import annotations

from harness.checks.answer_text import quote
from harness.checks.asks import RequestGroup
from harness.checks.base import BaselineUse, CheckContext, CheckResult, failed, passed, unproven
from harness.checks.probes import Probe, Repeat, probe_set_of, probes_of
from harness.checks.sanity_rules import REASONS, Asked, Cut, Ruling, Transcript, judge, stop_piece
from harness.engines import NO_ENDPOINT, Completion, EngineClient
from harness.errors import EngineDiedError, EngineError, RequestRefusedError
from harness.suites import DecodeSanityParams

baseline_use = BaselineUse.NEVER

SHOWN = 4


def baseline_asks(params: DecodeSanityParams) -> list[RequestGroup]:
    return []


def run(params: DecodeSanityParams, context: CheckContext) -> CheckResult:
    name, origin = _probe_set(params, context)
    try:
        answers = _ask_all(probes_of(params, name=name), params, context.client)
    except RequestRefusedError as error:
        return unproven(f"the engine continues no text, so that it talks sense cannot be proven: {error}")
    return _result(answers, list(judge(answers, params)), probes=name, origin=origin)


def _probe_set(params: DecodeSanityParams, context: CheckContext) -> tuple[str, str]:
    """The name of the probes to ask, and who chose it."""
    if params.probes is not None:
        return params.probes, "as asked for"
    model = context.model or _loaded_model(context.client)
    return probe_set_of(model), f"for model {quote(model)}" if model else "for a model without a name"


def _loaded_model(client: EngineClient) -> str:
    """What the engine says it has loaded; empty where it does not say."""
    try:
        return client.server_info().model
    except EngineDiedError:
        raise
    except EngineError:  # vLLM has no /server_info
        return ""


def _ask_all(probes: tuple[Probe, ...], params: DecodeSanityParams, client: EngineClient) -> Transcript:
    """Everything that the rules look at. Raises RequestRefusedError where the engine has no such endpoint."""
    asker = _Asker(client, most=params.max_new_tokens)
    asked = tuple(one for probe in probes if (one := asker.ask(probe)))
    return Transcript(
        asked=asked,
        one_token=asker.cut_after_one(asked),
        stopped=asker.cut_at_stop(asked),
        refused=tuple(asker.refused),
    )


class _Asker:
    """Asks an engine for at most `most` new tokens; `refused` are sentences about what it did not answer."""

    def __init__(self, client: EngineClient, *, most: int) -> None:
        self._client = client
        self._most = most
        self._answered = False
        self.refused: list[str] = []

    def ask(self, probe: Probe) -> Asked | None:
        """The probe's answer, and a second one where it wants to see the same twice."""
        answer = self._complete(probe)
        if answer is None:
            return None
        again = None if probe.repeat is Repeat.NONE else self._complete(probe)
        return Asked(probe=probe, answer=answer, again=again)

    def cut_after_one(self, asked: tuple[Asked, ...]) -> Cut | None:
        """The first probe's answer at one new token."""
        answer = self._complete(asked[0].probe, limit=1) if asked else None
        return Cut(asked=asked[0], answer=answer) if answer else None

    def cut_at_stop(self, asked: tuple[Asked, ...]) -> Cut | None:
        """The first answer that offers a piece of itself to stop at, stopped there."""
        for one in asked:
            if piece := stop_piece(one):
                answer = self._complete(one.probe, stop=(piece,))
                return Cut(asked=one, answer=answer, piece=piece) if answer else None
        return None

    def _complete(
        self, probe: Probe, *, limit: int | None = None, stop: tuple[str, ...] = ()
    ) -> Completion | None:
        """The answer, or None where the engine gave none. Raises where it died or never completed anything."""
        limit = limit or probe.limit(self._most)
        try:
            answer = self._client.complete(probe.prompt, max_new_tokens=limit, stop=stop)
        except EngineDiedError:
            raise
        except EngineError as error:
            if not self._answered and isinstance(error, RequestRefusedError) and error.status in NO_ENDPOINT:
                raise
            self.refused.append(f"{quote(probe.prompt)}, asked for {limit} tokens, was not answered: {error}")
            return None
        self._answered = True
        return answer


def _result(answers: Transcript, rulings: list[Ruling], *, probes: str, origin: str) -> CheckResult:
    faults = [fault for ruling in rulings for fault in ruling.faults]
    unjudged = {ruling.rule: ruling.unjudged for ruling in rulings if ruling.unjudged}
    figures = {
        "probes": probes,
        "answers": [_figures(one) for one in answers.asked],
        "faults": faults,
        "not_judged": unjudged,
    }
    about = f"probes {probes} {origin}"
    left = (
        "; not judged: " + ", ".join(f"{rule} ({why})" for rule, why in unjudged.items()) if unjudged else ""
    )
    if faults:
        more = f"; and {len(faults) - SHOWN} more" if len(faults) > SHOWN else ""
        return failed(f"{'; '.join(faults[:SHOWN])}{more} ({about}){left}", **figures)
    if len(unjudged) == len(rulings):
        return unproven(f"{len(answers.asked)} questions proved nothing ({about}){left}", **figures)
    seen = ", ".join(ruling.seen for ruling in rulings if not ruling.unjudged)
    return passed(f"{len(answers.asked)} questions ({about}): {seen}{left}", **figures)


def _figures(one: Asked) -> dict[str, str | int]:
    reason = one.answer.finish_reason
    return {
        "prompt": quote(one.probe.prompt),
        "expected": quote(one.probe.expect) if one.probe.expect else "",
        "answer": quote(one.answer.text),
        "tokens": one.answer.tokens,
        "finish_reason": reason if reason in REASONS else quote(reason),
    }
