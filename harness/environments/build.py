"""Build what is missing: base, then environment, then proof, then its name. Called by the command alone.

A build that is killed at any point leaves nothing that looks finished, and the next one starts that part anew; a
base that was finished stays. Two builders in one folder take turns. What is there already is left as it is, unless
its pins are no longer those of this harness: then it is built again in place, so run no job meanwhile.
"""

from __future__ import annotations

import platform
import sys
import time
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from harness.environments import releases
from harness.environments.folder import RECORD, list_environments, read_record
from harness.environments.install import (
    fill_base,
    fill_environment,
    site_packages,
    write_record,
)
from harness.environments.match import environment_for, wanted_pins
from harness.environments.model import (
    SGLANG,
    EngineSource,
    Environment,
    EnvironmentBuildError,
    EnvironmentMissingError,
)
from harness.environments.progress import Steps
from harness.environments.smoke import Smoke, import_all
from harness.environments.workplace import Workplace, held
from harness.errors import UsageError

# Measured with the pins of this harness and a CPU build of torch, rounded up; torch with CUDA takes 4 GiB more.
BASE_GIB = 3.2
RELEASE_GIB = 0.5
CUDA_GIB = 4.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """One environment to build. `source` is the code it is proven with where it holds no package itself."""

    name: str
    version: str
    pins: releases.Pins
    source: Path | None

    @property
    def requirements(self) -> tuple[str, ...]:
        package = (f"{SGLANG}=={self.version}",) if self.version else ()
        return (*package, *self.pins.requirements)


def build_release(release: str, *, folder: Path, torch_index: str, steps: Steps) -> Environment:
    """The environment of that release, which becomes the current one. Raises UsageError for a release that is
    not known or a machine that cannot hold it, EnvironmentBuildError where a step fails."""
    recipe = Recipe(
        name=f"{SGLANG}-{release}", version=release, pins=releases.pins_of_release(release), source=None
    )
    environment = _build(recipe, folder=folder, torch_index=torch_index, steps=steps)
    _make_current(environment, folder)
    return environment


def build_for_source(source: EngineSource, *, folder: Path, torch_index: str, steps: Steps) -> Environment:
    """An environment with the dependencies of that source: one that is there and fits, or a new one without the
    package. The current release stays what it is. Raises as `build_release` does."""
    pins = wanted_pins(source)
    try:
        found = environment_for(source, folder=folder)
        steps.say(f"{found.name} has the dependencies of {source.root}")
        return found
    except EnvironmentMissingError:
        pass
    recipe = Recipe(
        name=f"{SGLANG}-source-transformers-{pins.transformers}",
        version="",
        pins=pins,
        source=source.package_root,
    )
    return _build(recipe, folder=folder, torch_index=torch_index, steps=steps)


def _build(recipe: Recipe, *, folder: Path, torch_index: str, steps: Steps) -> Environment:
    base = releases.base()
    found = _finished(recipe, base, folder)
    if found is not None:
        steps.say(f"{found.name} is there already")
        return found
    waiting = f"another build is at work in {folder}; waiting for it"
    with held(folder, on_wait=lambda: steps.say(waiting)) as workplace:
        found = _finished(recipe, base, folder)
        if found is None:
            _make_base(base, torch_index=torch_index, workplace=workplace, steps=steps)
            _make_environment(recipe, base, workplace=workplace, steps=steps)
    (environment,) = (e for e in list_environments(folder) if e.name == recipe.name)
    return environment


def _finished(recipe: Recipe, base: releases.Base, folder: Path) -> Environment | None:
    for environment in list_environments(folder):
        if environment.name == recipe.name and _base_fits(base, folder):
            same = read_record(folder / recipe.name)["requirements"] == list(recipe.requirements)
            return environment if same else None
    return None


def _base_fits(base: releases.Base, folder: Path) -> bool:
    place = folder / base.name
    return (place / RECORD).is_file() and read_record(place)["digest"] == base.digest


def _make_base(base: releases.Base, *, torch_index: str, workplace: Workplace, steps: Steps) -> None:
    if _base_fits(base, workplace.folder):
        return
    check_machine(base)
    cuda = CUDA_GIB if _brings_cuda(torch_index) else 0.0
    workplace.need(BASE_GIB + RELEASE_GIB + cuda, what="building the shared base and the first environment")
    steps.say(f"building the shared base in {workplace.folder} ({BASE_GIB + cuda:.1f} GiB, once)")
    if cuda:
        steps.say("hint: no NVIDIA driver here; TORCH_INDEX=URL takes torch from an index of CPU builds")
    started = time.monotonic()
    place = workplace.making(base.name)
    fill_base(place, base=base, torch_index=torch_index, workplace=workplace, steps=steps)
    write_record(
        place,
        {
            "name": base.name,
            "torch": base.torch,
            "digest": base.digest,
            "python": platform.python_version(),
            "build_seconds": round(time.monotonic() - started),
        },
    )
    workplace.finish(base.name)


def _make_environment(recipe: Recipe, base: releases.Base, *, workplace: Workplace, steps: Steps) -> None:
    workplace.need(RELEASE_GIB, what=f"building {recipe.name}")
    steps.say(f"building {recipe.name} ({RELEASE_GIB:.1f} GiB)")
    started = time.monotonic()
    place = workplace.making(recipe.name)
    base_python = workplace.folder / base.name / "bin" / "python"
    fill_environment(
        place,
        base_python=base_python,
        requirements=recipe.requirements,
        workplace=workplace,
        steps=steps,
    )
    with steps.step(f"importing {len(recipe.pins.imports)} modules that matter"):
        smoke = import_all(
            place / "bin" / "python", recipe.pins.imports, workplace=workplace, source=recipe.source
        )
    _demand_proof(recipe, smoke)
    write_record(
        place, _record(recipe, base, smoke, site=site_packages(place).relative_to(place), started=started)
    )
    workplace.finish(recipe.name)


def _demand_proof(recipe: Recipe, smoke: Smoke) -> None:
    """All modules of a release, whose pins were proven once. A source may have moved some; one that imports
    nothing has the wrong dependencies."""
    failed = smoke.proof.failed
    if failed and (recipe.source is None or not smoke.proof.imported):
        raise EnvironmentBuildError(
            f"{recipe.name} does not work: {len(failed)} of {len(recipe.pins.imports)} modules do not import",
            detail="\n".join(f"  {name}: {why}" for name, why in failed.items()),
        )


def _record(
    recipe: Recipe, base: releases.Base, smoke: Smoke, *, site: Path, started: float
) -> dict[str, object]:
    return {
        "name": recipe.name,
        "engine": SGLANG,
        "version": recipe.version,
        "generation": recipe.pins.generation,
        "requirements": list(recipe.requirements),
        "base": base.name,
        "package": site.as_posix(),
        "python": smoke.python,
        "torch": smoke.torch,
        "transformers": smoke.transformers,
        "proof": {
            "imported": list(smoke.proof.imported),
            "failed": smoke.proof.failed,
            "seconds": smoke.proof.seconds,
        },
        "build_seconds": round(time.monotonic() - started),
    }


def check_machine(base: releases.Base) -> None:
    """Raises UsageError where no wheel of SGLang fits this interpreter or machine."""
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    machine = f"{platform.system()} {platform.machine()}"
    if python in base.pythons and machine == "Linux x86_64":
        return
    raise UsageError(
        f"SGLang has wheels for Python {', '.join(base.pythons)} on Linux x86_64; this is Python {python} on "
        f"{machine}. Make harness's own environment with one of these: make clean run PYTHON=python3.12"
    )


def _brings_cuda(torch_index: str) -> bool:
    """Whether the index at hand would give torch with CUDA to a machine that has no use for it. What it gave to
    harness's own environment it gives again."""
    try:
        cpu_build = version("torch").endswith("+cpu")
    except PackageNotFoundError:
        cpu_build = False
    return not (torch_index or cpu_build or Path("/proc/driver/nvidia/version").exists())


def _make_current(environment: Environment, folder: Path) -> None:
    new = folder / f".current-{environment.engine}"
    new.write_text(f"{environment.name}\n", "utf-8")
    new.replace(folder / f"current-{environment.engine}")
