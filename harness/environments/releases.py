"""What is known of SGLang's releases: the pins each needs, the modules that prove it works.

The data lies beside this module in `sglang_releases.yaml`, the pins of the shared base in `sglang_base.txt`.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from harness.errors import UsageError

HERE = Path(__file__).resolve().parent
BASE_PINS = HERE / "sglang_base.txt"
RELEASES = HERE / "sglang_releases.yaml"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pins:
    """What an environment holds beside the base, and the modules that must import in it."""

    transformers: str
    generation: str
    requirements: tuple[str, ...]
    imports: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Base:
    """What all environments share. `digest` changes with any pin, so that an old base is told from a new one."""

    torch: str
    pythons: tuple[str, ...]
    pins: Path
    digest: str

    @property
    def name(self) -> str:
        return f"base-torch-{self.torch}"


@cache
def _data() -> dict[str, Any]:
    # BaseLoader leaves every scalar a string: 3.10 is no number here
    loaded: dict[str, Any] = yaml.load(RELEASES.read_text("utf-8"), Loader=yaml.BaseLoader)
    return loaded


def default_release() -> str:
    """The release that is built when none is named."""
    return str(_data()["default"])


def known_releases() -> tuple[str, ...]:
    return tuple(_data()["releases"])


def base() -> Base:
    """The shared base, as this harness wants it."""
    data = _data()
    digest = hashlib.sha256(f"{data['torch']}\n".encode() + BASE_PINS.read_bytes()).hexdigest()
    return Base(torch=data["torch"], pythons=tuple(data["pythons"]), pins=BASE_PINS, digest=digest)


def pins_of_release(version: str) -> Pins:
    """Raises UsageError for a release whose pins are not known."""
    release = _data()["releases"].get(version)
    if release is None:
        raise UsageError(
            f"no pins are known for SGLang {version}; allowed: {', '.join(known_releases())}. "
            "For other code give its checkout: --source PATH"
        )
    return _pins(release["transformers"], release["generation"])


def pins_of_transformers(transformers: str, *, generation: str) -> Pins:
    """Raises UsageError where no release that is known needs that one."""
    if transformers not in _data()["dependencies"]:
        allowed = ", ".join(_data()["dependencies"])
        raise UsageError(f"the source wants transformers {transformers}; pins are known for: {allowed}")
    return _pins(transformers, generation)


def transformers_of_generation(generation: str) -> str:
    """That of the newest release of the generation: for a source which says no more of itself."""
    of_it = [r["transformers"] for r in _data()["releases"].values() if r["generation"] == generation]
    return str(of_it[-1])


def live_only_module() -> str:
    """The module by which the generations are told apart."""
    return str(_data()["live_only"])


def _pins(transformers: str, generation: str) -> Pins:
    data = _data()
    live_only = [data["live_only"]] if generation == "live" else []
    return Pins(
        transformers=transformers,
        generation=generation,
        requirements=tuple(data["dependencies"][transformers]),
        imports=(*data["imports"], *live_only),
    )
