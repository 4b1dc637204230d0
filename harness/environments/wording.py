"""How environments are told about, by their own command and by `harness doctor`."""

from __future__ import annotations

from harness.environments.model import SGLANG, Environment
from harness.environments.releases import default_release


def describe(environment: Environment) -> str:
    """What it is and what was proven when it was built, in one line."""
    kind = environment.generation if environment.has_package else "dependencies only"
    facts = f"Python {environment.python_version}, transformers {environment.transformers}"
    return f"{kind}, {facts}; {worth(environment)}"


def worth(environment: Environment) -> str:
    """What its proof says, in words."""
    proof = environment.proof
    if proof is None:
        return "not proven"
    asked = len(proof.imported) + len(proof.failed)
    lacking = f", not {', '.join(proof.failed)}" if proof.failed else ""
    return f"{len(proof.imported)} of {asked} modules import in {proof.seconds:.0f} s{lacking}"


def build_command() -> str:
    """What to type where there is no environment at all."""
    return f"make {SGLANG} VERSION={default_release()}"
