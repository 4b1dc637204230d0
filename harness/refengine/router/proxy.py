"""One request from a client to its answer: attempts until one succeeds, then the answer or the stream of it."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import dataclass
from itertools import count

import httpx
from fastapi import Request
from fastapi.responses import Response

from harness.refengine.http_errors import CLIENT_CLOSED_REQUEST
from harness.refengine.router.attempt import Attempt, AttemptError, Reply
from harness.refengine.router.bodies import ClientBody
from harness.refengine.router.config import RouterConfig
from harness.refengine.router.errors import error_response
from harness.refengine.router.flight import EndedError, Ending, Flight, Flights
from harness.refengine.router.policy import Cause, Pair, backoff_s, choose, told
from harness.refengine.router.relay import RelayResponse
from harness.refengine.router.sides import Engine, Sides

ATTEMPTS_HEADER = "x-harness-attempts"
# This share of a request's time, at most so many seconds, is kept to find out who does not answer.
PROBE_SHARE = 0.1
LONGEST_PROBE_S = 1.0


@dataclass(slots=True, kw_only=True)
class Counters:
    """Requests that clients sent, attempts after the first of each, requests that ended with an error of 500 up."""

    requests: int = 0
    retries: int = 0
    failed: int = 0


class GivenUpError(Exception):
    """There is no further attempt; the flight's `met` tells why. Never leaves the router."""


class Proxy:
    """Serves requests through the pairs of `sides`."""

    def __init__(self, config: RouterConfig, *, sides: Sides, http: httpx.AsyncClient) -> None:
        self.counters = Counters()
        self.flights = Flights()
        self._config = config
        self._sides = sides
        self._http = http
        self._turns = count()
        self._left: set[asyncio.Task[bytes]] = set()
        self._probe_s = min(LONGEST_PROBE_S, PROBE_SHARE * config.request_timeout)

    async def serve(self, request: Request, body: ClientBody) -> Response:
        """The client's answer, or the error that the last attempt met."""
        self.counters.requests += 1
        flight = self.flights.open(names=body.names, seconds=self._config.request_timeout - self._probe_s)
        leaving = asyncio.create_task(_end_when_gone(request, flight))
        response: Response | None = None
        try:
            response = await self._answer(flight, body)
        finally:
            leaving.cancel()
            # A stream is over when it has been sent.
            if not isinstance(response, RelayResponse):
                self.flights.close(flight)
        response.headers[ATTEMPTS_HEADER] = str(flight.attempts)
        return response

    async def close(self) -> None:
        """End the calls that are left."""
        for task in self._left:
            task.cancel()
        await asyncio.gather(*self._left, return_exceptions=True)

    async def _answer(self, flight: Flight, body: ClientBody) -> Response:
        try:
            reply = await flight.unless_ended(self._attempts(flight, body))
        except GivenUpError:
            return self._tell_last(flight)
        except EndedError as error:
            if error.ending is Ending.CLIENT_GONE:
                return Response(status_code=CLIENT_CLOSED_REQUEST)
            self._count_failed()
            return error_response(*await self._explain(flight, error.ending))
        if reply.events is None:
            return Response(reply.body, media_type="application/json")
        return RelayResponse(
            reply,
            flight=flight,
            explain=self._explain,
            over=self.flights.close,
            broken=self._count_failed,
        )

    async def _attempts(self, flight: Flight, body: ClientBody) -> Reply:
        """Raises GivenUpError after the last attempt."""
        turn = next(self._turns)
        while (pair := self._choose(flight, turn)) is not None:
            flight.attempts += 1
            try:
                return await self._attempt(flight, body, pair)
            except AttemptError as error:
                failure = error.failure
            flight.waiting = []
            flight.met.append(failure)
            again = failure.retried and not flight.aborted and flight.attempts < self._config.attempts
            self._log(flight, body, again=again)
            if not again:
                break
            await asyncio.sleep(backoff_s(flight.attempts))
            if flight.aborted:
                break
            self.counters.retries += 1
        raise GivenUpError

    def _choose(self, flight: Flight, turn: int) -> Pair | None:
        sides = self._sides
        return choose([*sides.prefill], [*sides.decode], turn=turn, met=flight.met, well=sides.is_well)

    async def _attempt(self, flight: Flight, body: ClientBody, pair: Pair) -> Reply:
        engines = self._sides.engines(pair)
        flight.waiting = list(engines)
        if (failure := await self._sides.check(pair)) is not None:
            raise AttemptError(failure)
        attempt = Attempt(
            http=self._http, pair=pair, engines=engines, body=body, flight=flight, left=self._left
        )
        return await attempt.run()

    def _log(self, flight: Flight, body: ClientBody, *, again: bool) -> None:
        """What the client got wrong is between it and the engine."""
        failure = flight.met[-1]
        if failure.cause is Cause.REFUSED and failure.status < 500:
            return
        number = f"attempt {flight.attempts} of {self._config.attempts}"
        then = "trying again" if again else "giving up"
        print(f"router: {body.endpoint.value}: {number}: {failure}; {then}", file=sys.stderr, flush=True)

    def _tell_last(self, flight: Flight) -> Response:
        """The engine's own words where it refused the request, else what each attempt met."""
        last = flight.met[-1]
        if last.status >= 500:
            self._count_failed()
        if last.cause is Cause.REFUSED:
            return Response(last.body, status_code=last.status, media_type="application/json")
        return error_response(last.status, told(flight.met))

    async def _explain(self, flight: Flight, ending: Ending) -> tuple[int, str]:
        """Status and words for a request that was ended from outside."""
        if ending is not Ending.DEADLINE:
            return 503, "the router is stopping"
        words = f"no answer within {self._config.request_timeout:g} s"
        before = f"; before that, {told(flight.met)}" if flight.met else ""
        return 504, f"{words}: {await self._who_is_late(flight.waiting)}{before}"

    async def _who_is_late(self, engines: list[Engine]) -> str:
        """Those of `engines` that do not even say that they are well: the other only waits for them."""
        if not engines:
            return "the time ran out between two attempts"
        well = await asyncio.gather(*(self._answers_health(engine) for engine in engines))
        silent = [str(engine) for engine, is_well in zip(engines, well, strict=True) if not is_well]
        if silent:
            return f"{' and '.join(silent)} had not answered, and GET /health is not answered either"
        return f"{' and '.join(map(str, engines))} had not answered, though GET /health is answered"

    async def _answers_health(self, engine: Engine) -> bool:
        try:
            async with asyncio.timeout(self._probe_s):
                return (await self._http.get(f"{engine.url}/health")).is_success
        except (TimeoutError, httpx.HTTPError):
            return False

    def _count_failed(self) -> None:
        self.counters.failed += 1


async def _end_when_gone(request: Request, flight: Flight) -> None:
    """End the request when its client closes the connection; its body has been read before."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
    flight.end(Ending.CLIENT_GONE)
