"""`harness eval`: one check against an engine that is already running."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from harness.checks import Baseline, Check, CheckResult
    from harness.suites import CheckParams, MarkedDict

# Long enough for any check at small size, short enough that a hung engine is noticed.
DEFAULT_SECONDS = 600.0


def evaluate(
    check: Annotated[str, typer.Argument(help="Check, such as parity or rows.")],
    url: Annotated[str, typer.Option(help="Engine under test, such as http://127.0.0.1:30000.")],
    baseline_url: Annotated[
        str | None, typer.Option(help="The same engine at dcp 1; needed by checks that compare.")
    ] = None,
    params: Annotated[
        list[str] | None,
        typer.Option(
            "--param", "-p", help="Parameter of the check as NAME=YAML, such as lengths=[1,65]; repeatable."
        ),
    ] = None,
    timeout: Annotated[
        str, typer.Option(help="Deadline of the check, such as 90s or 5m.")
    ] = f"{DEFAULT_SECONDS:g}s",
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Run one check against a running engine. Exit 0 passed, 1 failed or not reachable, 3 when it proves nothing.

    Example: harness eval parity --url http://127.0.0.1:30000 --baseline-url http://127.0.0.1:30001
    """
    from rich.console import Console

    from harness.cli.output import print_json

    module, parsed = _resolve(check, params or [])
    seconds = _seconds(timeout)
    _check_urls(check, url, baseline_url, compares=module.needs_baseline)
    with Console(stderr=True).status(f"{check} on {url}"):
        result = _run(module, parsed, check=check, url=url, baseline_url=baseline_url, seconds=seconds)
    if as_json:
        figures = {"name": check, "outcome": result.outcome.value, "message": result.message}
        print_json({"schema": 1, **figures, "figures": result.figures})
    else:
        print(f"{check} {result.outcome.value}: {result.message}")
    raise typer.Exit({"passed": 0, "failed": 1, "error": 1}.get(result.outcome.value, 3))


def _resolve(check: str, given: list[str]) -> tuple[Check, CheckParams]:
    """The check and its parameters. Raises UsageError with near names, or the parameter that is wrong."""
    from difflib import get_close_matches

    from pydantic import ValidationError

    from harness.checks import CHECKS
    from harness.errors import UsageError
    from harness.suites import CHECK_PARAMS, describe

    if check not in CHECKS:
        near = ", ".join(get_close_matches(check, CHECKS, cutoff=0.5)) or ", ".join(CHECKS)
        why = "is not implemented by this release" if check in CHECK_PARAMS else "does not exist"
        raise UsageError(f"check {check!r} {why}; near names: {near}")
    model, values = CHECK_PARAMS[check], _values(given)
    try:
        return CHECKS[check], model.model_validate(values)
    except ValidationError as error:
        raise UsageError("; ".join(f"--param {told}" for told in describe(error, values, model))) from None


def _values(given: list[str]) -> MarkedDict:
    """`["sizes=[2, 2]"]` → `{"sizes": [2, 2]}`, read by the rules of suite files. Raises UsageError."""
    from harness.errors import Mark, SourceError, UsageError
    from harness.suites import MarkedDict, parse_yaml

    values = MarkedDict(Mark(Path("--param"), 1, 1))
    for item in given:
        name, equals, text = item.partition("=")
        if not (name and equals and text.strip()):
            raise UsageError(f"--param is {item!r}; allowed: NAME=YAML, such as lengths=[1,65]")
        if name in values:
            raise UsageError(f"--param {name} is given twice; allowed: each parameter once")
        try:
            value, errors = parse_yaml(text, Path("--param"))
        except SourceError as error:
            errors = [error]
        if errors:
            raise UsageError(f"--param {name}={text}: {errors[0].message}")
        values.put(name, value, key_mark=values.mark, value_mark=values.mark)
    return values


def _seconds(timeout: str) -> float:
    from harness.errors import UsageError
    from harness.suites import parse_duration

    try:
        return parse_duration(timeout)
    except ValueError as error:
        raise UsageError(f"--timeout: {error}") from None


def _check_urls(check: str, url: str, baseline_url: str | None, *, compares: bool) -> None:
    from urllib.parse import urlsplit

    from harness.errors import UsageError

    if compares and baseline_url is None:
        raise UsageError(f"check {check} compares with an engine at dcp 1; give it with --baseline-url")
    for option, given in (("--url", url), ("--baseline-url", baseline_url)):
        try:
            parts = urlsplit(given or "http://none")
            right = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        except ValueError:  # a port or an IPv6 address that is none
            right = False
        if not right or given == "":
            raise UsageError(f"{option} is {given!r}; allowed: an address such as http://127.0.0.1:30000")


def _run(
    module: Check, params: CheckParams, *, check: str, url: str, baseline_url: str | None, seconds: float
) -> CheckResult:
    from harness.checks import CheckContext
    from harness.engines import EngineClient

    baseline = _ask_baseline(module, params, url=baseline_url, seconds=seconds) if baseline_url else None
    client = EngineClient(url)
    try:
        with client.deadline(f"check {check}", seconds):
            return module.run(params, CheckContext(client=client, baseline=baseline))
    finally:
        client.close()


def _ask_baseline(module: Check, params: CheckParams, *, url: str, seconds: float) -> Baseline:
    from harness.checks import Baseline
    from harness.engines import EngineClient
    from harness.errors import UsageError

    client = EngineClient(url)
    try:
        with client.deadline("baseline", seconds):
            info = client.server_info()
            if info.dcp_size != 1:
                raise UsageError(
                    f"--baseline-url {url} runs at dcp {info.dcp_size}; a baseline runs at dcp 1"
                )
            groups = module.baseline_groups(params)
            answers = {group: tuple(client.generate_batch(list(group))) for group in groups}
            return Baseline(info=info, answers=answers, origin=f"asked now at {url}")
    finally:
        client.close()
