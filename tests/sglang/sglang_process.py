"""Ask a real SGLang something: a snippet runs in a process of its environment, and its answer comes back.

The process that runs these tests never imports the engine.
"""

from __future__ import annotations

import json
import os
import subprocess
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harness.environments import EngineSource, Environment

CHECKOUT = Path(__file__).resolve().parents[2]
MARK = "harness-answer:"
# Imports take ten seconds on two busy cores; a snippet that hangs must end some day.
SECONDS = 300


def ask(
    environment: Environment,
    snippet: str,
    *,
    source: EngineSource | None = None,
    settings: Mapping[str, str] | None = None,
) -> Any:
    """What the snippet leaves in `answer`, through JSON. The engine is that of the environment, or of `source`.
    A snippet that fails fails the test with all it printed."""
    code = f"{textwrap.dedent(snippet)}\nimport json\nprint({MARK!r} + json.dumps(answer))\n"
    done = run_python(environment, "-c", code, source=source, settings=settings)
    assert done.returncode == 0, f"{environment.name} exit {done.returncode}\n{done.stdout}\n{done.stderr}"
    return json.loads(done.stdout.rsplit(MARK, 1)[1])


def run_python(
    environment: Environment,
    *words: str,
    source: EngineSource | None = None,
    settings: Mapping[str, str] | None = None,
    cwd: Path = CHECKOUT,
) -> subprocess.CompletedProcess[str]:
    """`python WORDS` of that environment, with harness (and the source, first) on its path, as a job has it."""
    path = [str(source.package_root)] if source is not None else []
    # The engine's own test utilities read the first character of CUDA_VISIBLE_DEVICES: empty is worse than unset.
    inherited = {name: value for name, value in os.environ.items() if name != "CUDA_VISIBLE_DEVICES"}
    environ = {**inherited, "PYTHONPATH": os.pathsep.join([*path, str(CHECKOUT)]), "HF_HUB_OFFLINE": "1"}
    command = [str(environment.python), "-W", "ignore", *words]
    return subprocess.run(
        command,
        env={**environ, **(settings or {})},
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
