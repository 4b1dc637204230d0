"""`harness eval`: one check against an engine that is already running."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from harness.checks import Baseline, Check, CheckResult
    from harness.suites import CheckParams

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
    """Run one check against a running engine. Exit 0 passed, 1 failed, 3 when it proves nothing.

    Example: harness eval parity --url http://127.0.0.1:30000 --baseline-url http://127.0.0.1:30001
    """
    from harness.cli.output import print_json
    from harness.suites import parse_duration

    module, parsed = _resolve(check, params or [])
    result = _run(
        module, parsed, check=check, url=url, baseline_url=baseline_url, seconds=parse_duration(timeout)
    )
    if as_json:
        figures = {"name": check, "outcome": result.outcome.value, "message": result.message}
        print_json({"schema": 1, **figures, "figures": result.figures})
    else:
        print(f"{check} {result.outcome.value}: {result.message}")
    raise typer.Exit({"passed": 0, "failed": 1, "error": 1}.get(result.outcome.value, 3))


def _resolve(check: str, given: list[str]) -> tuple[Check, CheckParams]:
    """The check and its parameters. Raises UsageError with near names, or the parameter that is wrong."""
    from difflib import get_close_matches

    import yaml
    from pydantic import ValidationError

    from harness.checks import CHECKS
    from harness.errors import UsageError
    from harness.suites import CHECK_PARAMS

    if check not in CHECKS:
        near = ", ".join(get_close_matches(check, CHECKS, cutoff=0.5)) or ", ".join(CHECKS)
        raise UsageError(f"no check {check!r}; near names: {near}")
    values: dict[str, Any] = {}
    for item in given:
        name, equals, text = item.partition("=")
        if not equals:
            raise UsageError(f"--param is {item!r}; allowed: NAME=YAML")
        try:
            values[name] = yaml.safe_load(text)
        except yaml.YAMLError as error:
            raise UsageError(f"--param {name}: {text!r} is no YAML: {error}") from error
    try:
        return CHECKS[check], CHECK_PARAMS[check].model_validate(values)
    except ValidationError as error:
        told = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors())
        raise UsageError(f"parameters of {check}: {told}") from error


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
