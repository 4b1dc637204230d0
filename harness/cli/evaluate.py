"""`harness eval`: one check against an engine that is already running."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from harness.cli.options import timeout_seconds

if TYPE_CHECKING:
    from harness.checks import Check
    from harness.suites import CheckParams, MarkedDict

# Long enough for any check at small size, short enough that a hung engine is noticed.
DEFAULT_SECONDS = 600.0


def evaluate(
    check: Annotated[str, typer.Argument(help="Check, such as parity or rows.")],
    url: Annotated[str, typer.Option(help="Engine under test, such as http://127.0.0.1:30000.")],
    baseline_url: Annotated[
        str | None, typer.Option(help="The same engine at dcp 1; needed by checks that compare.")
    ] = None,
    task: Annotated[
        str | None, typer.Option(help="For accuracy: sums or gsm8k; the same as -p task=NAME.")
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(help="For accuracy: path or URL of the data; the same as -p data=PLACE."),
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="What the engine serves, where it does not say so itself.")
    ] = None,
    baselines: Annotated[
        Path | None, typer.Option(help="File of recorded baselines (default: configs/baselines.yaml).")
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

    Example: harness eval accuracy --url http://127.0.0.1:30000 --task gsm8k --data test.jsonl
    """
    from harness.cli.evaluation import Engines, evaluate_check
    from harness.cli.output import print_json

    short = {"task": task, "data": data}
    given = [
        *(params or []),
        *(f"{name}={json.dumps(value)}" for name, value in short.items() if value is not None),
    ]
    module, parsed = _resolve(check, given)
    engines = Engines(url=url, baseline_url=baseline_url, model=model, baselines=baselines)
    engines.check(check, module.baseline_use)
    result = evaluate_check(check, module, parsed, engines=engines, seconds=timeout_seconds(timeout))
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
        raise UsageError(f"check {check!r} does not exist; near names: {near}")
    model, values = CHECK_PARAMS[check], _values(given)
    if model.kills:
        raise UsageError(
            f"check {check} kills the engines it runs on; allowed: in a suite, whose jobs launch their own, such as "
            "harness run dcp/pd_dcp4"
        )
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
