"""Prove that a new environment works: import the modules that matter, in a cold process of its own."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from harness.environments.model import Proof
from harness.environments.pip import run
from harness.environments.workplace import Workplace

# Runs in the environment, which has no harness: module names in, one JSON line out. Imports print much, so the
# answer is marked.
MARK = "harness-proof:"
SCRIPT = f"""
import importlib, json, sys, time
from importlib.metadata import version
started, imported, failed = time.monotonic(), [], {{}}
for name in sys.argv[1:]:
    try:
        importlib.import_module(name)
    except BaseException as error:
        failed[name] = f"{{type(error).__name__}}: {{error}}"[:300]
    else:
        imported.append(name)
print("{MARK}" + json.dumps(dict(imported=imported, failed=failed, seconds=round(time.monotonic() - started, 1),
    torch=version("torch"), transformers=version("transformers"), python=sys.version.split()[0])))
"""
# Nothing may ask a model hub, and no GPU has to be there. CUDA_VISIBLE_DEVICES stays as it is: the engine's test
# utilities do not accept an empty one.
SETTINGS = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Smoke:
    """What imported, and under what."""

    proof: Proof
    torch: str
    transformers: str
    python: str


def import_all(
    python: Path, modules: tuple[str, ...], *, workplace: Workplace, source: Path | None = None
) -> Smoke:
    """Import these modules in that environment, those of `source` first on its path."""
    settings = dict(SETTINGS)
    if source is not None:
        # somebody's checkout gets nothing written into it
        settings |= {"PYTHONPATH": str(source), "PYTHONDONTWRITEBYTECODE": "1"}
    said = run(
        [str(python), "-W", "ignore", "-c", SCRIPT, *modules],
        doing=f"importing {len(modules)} modules",
        workplace=workplace,
        environment=settings,
    )
    found = json.loads(said.rsplit(MARK, 1)[1])
    proof = Proof(imported=tuple(found["imported"]), failed=found["failed"], seconds=found["seconds"])
    return Smoke(
        proof=proof, torch=found["torch"], transformers=found["transformers"], python=found["python"]
    )
