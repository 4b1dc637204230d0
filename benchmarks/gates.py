"""Whether every gate keeps its word: false alarms at most as stated, drops found at least as often as stated.

Plays nights: good engines, which a gate may fail with probability alpha at most, and engines that are as bad as
the gate says it finds with 95 %. Prints a line for each setting with the measured rates and their one-sided 99.9 %
bounds, and the published numbers beside those computed now. Exit 1 when a rate is significantly worse than stated,
or a number is another.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from functools import partial

import gate_nights as nights
import gate_stops as stops
import numpy as np
from gate_facts import P0, Fact, computed, simulated
from gate_nights import Dice, Row
from rich.console import Console
from rich.progress import Progress

EXAMPLE = """example:
  python benchmarks/gates.py --nights 20000 --seed 7
"""

Setting = Callable[[Dice], Row]
SIZES = (200, 1319)
# Fewer nights tell no rate of one in a thousand, and no mean to 2 %.
LEAST_NIGHTS = 1000
# Two good runs of a deterministic engine differ in no question, with floating-point noise in some, and with a
# sampling temperature in a tenth.
NOISES = (0.0, 0.001, 0.002, 0.005, 0.01, 0.02, 0.04, 0.08)
# A GPU engine is fed in batches of this size here: smaller ones stop earlier, larger ones run faster.
BATCHES = {200: 32, 1319: 64}


def one_sample() -> Iterator[Setting]:
    for n in SIZES:
        yield partial(nights.exact, n=n, p0=P0)
    for n, questions, p0 in [
        (200, 200, P0),
        (200, 1319, P0),
        (1319, 1319, P0),
        (200, 1319, 0.98),
        (1319, 1319, 0.6),
    ]:
        yield partial(nights.recorded, n=n, questions=questions, p0=p0)  # fmt: skip
    yield partial(nights.two_stage, n=200, of=1319, p0=P0)


def pairs() -> Iterator[Setting]:
    for n in SIZES:
        for discordance in (0.0, 0.01, 0.04, 0.08):
            yield partial(nights.paired, n=n, discordance=discordance)
    for n, questions in [(200, 200), (200, 1319), (1319, 1319)]:
        for noise in NOISES:
            yield partial(nights.flips_against_record, n=n, questions=questions, discordance=noise)
    for noise in (0.005, 0.02):
        yield partial(nights.flips_against_record, n=200, questions=200, discordance=noise, torn=0.2)
    for runs in (1, 5):
        for noise in (0.002, 0.005, 0.01, 0.02):
            yield partial(nights.flips_against_tonight, n=200, runs=runs, discordance=noise)
    for n in SIZES:
        for noise in (0.0, 0.001, 0.002):
            yield partial(nights.flips_unmeasured, n=n, discordance=noise)


def sequential() -> Iterator[Setting]:
    for n in SIZES:
        for questions in (None, 200 if n == 200 else 1319):
            for stop_when_fine in (True, False):
                yield partial(
                    stops.stopped_early,
                    n=n,
                    batch=BATCHES[n],
                    p0=P0,
                    stop_when_fine=stop_when_fine,
                    questions=questions,
                )


def families() -> Iterator[Setting]:
    yield partial(stops.holm_of_one_sample, n=200, questions=200, p0=P0, discordance=0.01)
    for gates in (3, 20):
        yield partial(stops.holm_of_suites, gates=gates, n=200, p0=P0)


def play(settings: list[Setting], *, count: int, seed: int) -> Iterator[Row]:
    """Each setting with random numbers of its own, so that a new one changes no other."""
    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        for number, setting in enumerate(progress.track(settings, description="nights")):
            yield setting(Dice(np.random.default_rng([seed, number]), count))


def told(row: Row) -> str:
    def rates(rate: tuple[float, float, float] | None, shape: str) -> str:
        return "" if rate is None else f"{rate[0]:{shape}} [{rate[1]:{shape}}, {rate[2]:{shape}}]"

    power = "" if row.found is None else f"{row.power:.2f}"
    asked = "" if row.asked is None else f"{row.asked:.0f}"
    return (
        f"{row.gate:<20} {row.setting:<68} {row.alpha:>7.1e}  {rates(row.alarm_rate, '.1e'):<28}"
        f"{power:>5}  {rates(row.found_rate, '.3f'):<22}{asked:>6}  {'ok' if row.holds else 'NOT HELD'}"
    )


def told_fact(fact: Fact) -> str:
    verdict = "ok" if fact.holds else "ANOTHER"
    return f"{fact.name:<60} {fact.published:>12.6g} {fact.now:>12.6g}  {verdict}"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, epilog=EXAMPLE, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--nights", type=int, default=100_000, help="simulated nights per setting")
    parser.add_argument("--seed", type=int, default=1, help="of the random numbers")
    args = parser.parse_args()
    if args.nights < LEAST_NIGHTS or args.seed < 0:
        parser.error(f"allowed: at least {LEAST_NIGHTS:,} nights, and a seed of 0 or more")
    settings = [*one_sample(), *pairs(), *sequential(), *families()]
    print(f"{'gate':<20} {'setting (drops in points)':<68} {'alpha':>7}  {'false alarms':<28}"
          f"{'power':>5}  {'found':<22}{'asked':>6}")  # fmt: skip
    holds = []
    for row in play(settings, count=args.nights, seed=args.seed):
        print(told(row), flush=True)
        holds.append(row.holds)
    print(f"\n{'published number':<60} {'published':>12} {'now':>12}")
    for fact in [*computed(), *simulated(np.random.default_rng(args.seed))]:
        print(told_fact(fact), flush=True)
        holds.append(fact.holds)
    print(f"\n{sum(holds)} of {len(holds)} hold, {args.nights:,} nights a setting, seed {args.seed}")
    return 0 if all(holds) else 1


if __name__ == "__main__":
    raise SystemExit(main())
