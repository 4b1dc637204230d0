"""The steps that fill an environment: the shared base, and one release or its dependencies on top of it.

Each function works in a folder in the making; `build` decides what is needed and gives it its name.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

from harness.environments import releases
from harness.environments.folder import RECORD
from harness.environments.pip import pip_install, run
from harness.environments.progress import Steps
from harness.environments.workplace import Workplace

SHIM = Path(__file__).resolve().parent / "shims" / "harness_torchvision_schemas.py"
# Nothing is built from source: that takes compilers and an hour, and a release that has no wheel here would do it.
WHEELS_ONLY = ("--no-deps", "--only-binary", ":all:")


def fill_base(
    place: Path, *, base: releases.Base, torch_index: str, workplace: Workplace, steps: Steps
) -> None:
    """A virtual environment with torch and everything that all releases share."""
    python = place / "bin" / "python"
    index = ("--index-url", torch_index) if torch_index else ()
    with steps.step("shared base: virtual environment"):
        run(
            [sys.executable, "-m", "venv", str(place)],
            doing="making a virtual environment",
            workplace=workplace,
        )
    with steps.step(f"shared base: torch {base.torch}"):
        pip_install(
            python,
            f"torch=={base.torch}",
            *index,
            doing=f"installing torch {base.torch}",
            workplace=workplace,
        )
    pins = [line for line in base.pins.read_text("utf-8").splitlines() if "==" in line]
    with steps.step(f"shared base: {len(pins)} packages"):
        pip_install(
            python,
            *WHEELS_ONLY,
            "-r",
            str(base.pins),
            doing="installing the shared packages",
            workplace=workplace,
        )
    install_shim(site_packages(place))
    _drop_scripts(place / "bin")


def fill_environment(
    place: Path, *, base_python: Path, requirements: tuple[str, ...], workplace: Workplace, steps: Steps
) -> None:
    """A virtual environment which sees the base, with these packages of its own before it."""
    with steps.step(f"installing {' '.join(requirements)}"):
        run(
            [str(base_python), "-m", "venv", "--without-pip", str(place)],
            doing="making a virtual environment",
            workplace=workplace,
        )
        site = site_packages(place)
        pip_install(
            base_python,
            *WHEELS_ONLY,
            *("--target", str(site)),
            *requirements,
            doing=f"installing {requirements[0]}",
            workplace=workplace,
        )
        shutil.rmtree(site / "bin", ignore_errors=True)
        _see_base(site, site_packages(base_python.parent.parent))


def site_packages(place: Path) -> Path:
    """Where packages lie in that virtual environment."""
    found = sorted((place / "lib").glob("python3*/site-packages"))
    return found[0]


def write_record(place: Path, record: dict[str, Any]) -> None:
    """The last thing written to a folder in the making: it is finished when it has this."""
    (place / RECORD).write_text(json.dumps({"schema": 1, **record}, indent=1) + "\n", "utf-8")


def install_shim(site: Path) -> None:
    """Our own one-module package, with the entry point by which torch finds it."""
    shutil.copyfile(SHIM, site / SHIM.name)
    info = site / f"{SHIM.stem}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {SHIM.stem}\nVersion: 1.0\n", "utf-8")
    (info / "entry_points.txt").write_text(f"[torch.backends]\n{SHIM.stem} = {SHIM.stem}:load\n", "utf-8")
    files = [SHIM.name, *(f"{info.name}/{name}" for name in ("METADATA", "entry_points.txt", "RECORD"))]
    (info / "RECORD").write_text("".join(f"{file},,\n" for file in files), "utf-8")


def _see_base(site: Path, base_site: Path) -> None:
    """A line in a `.pth` file puts the base behind the environment's own packages. It is relative, so that the
    folder of environments may be moved as a whole; the name sorts last."""
    line = os.path.relpath(base_site, site)
    (site / "zz_harness_base.pth").write_text(f"{line}\n", "utf-8")


def _drop_scripts(folder: Path) -> None:
    """Commands of packages name the interpreter by the path it had while it was made; nobody needs them, since
    everything is started as `python -m`."""
    for script in folder.iterdir():
        if not script.name.lower().startswith(("python", "activate")):
            script.unlink()
