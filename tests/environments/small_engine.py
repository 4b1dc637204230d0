"""An engine and its dependencies of a few lines each, as wheels in a folder, so that real pip builds in seconds.

The engine's module waits for the named pipe SMALL_ENGINE_GATE where that is set: a test can hold a builder at its last
step, kill it there, or start another beside it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]

GATED = """
import os
if os.environ.get("SMALL_ENGINE_GATE"):
    open(os.environ["SMALL_ENGINE_GATE"]).read()
"""

RELEASES = """
default: 0.5.18
pythons: {pythons}
torch: 2.13.0
dependencies:
  5.12.1: [transformers==5.12.1]
  5.19.0: [transformers==5.19.0]
  6.0.0: [transformers==6.0.0]
releases:
  0.5.9: {{transformers: 5.12.1, generation: live}}
  0.5.18: {{transformers: 5.12.1, generation: live}}
  0.5.23: {{transformers: 5.19.0, generation: published}}
  0.5.24: {{transformers: 6.0.0, generation: published}}
live_only: sglang.srt.distributed.parallel_state_wrapper
imports: [sglang.srt.runtime_context, shared_thing]
"""

# The child does what `python -m harness.environments` does, with the small data.
CHILD = """
import sys
from pathlib import Path
from harness.environments import command, releases
releases.RELEASES, releases.BASE_PINS = Path(sys.argv[1]), Path(sys.argv[2])
sys.exit(command.main(sys.argv[3:]))
"""


@dataclass(frozen=True)
class SmallEngine:
    """Wheels, and the data of harness that fits them."""

    folder: Path

    @property
    def releases(self) -> Path:
        return self.folder / "releases.yaml"

    @property
    def pins(self) -> Path:
        return self.folder / "base.txt"

    def settings(self) -> dict[str, str]:
        """pip sees these wheels and nothing else of this machine's configuration."""
        return {
            "PIP_CONFIG_FILE": os.devnull,
            "PIP_NO_INDEX": "1",
            "PIP_FIND_LINKS": str(self.folder),
            "PIP_CONSTRAINT": "",
        }

    def start(self, *words: str, envs: Path, gate: Path | None = None) -> subprocess.Popen[str]:
        """`python -m harness.environments WORDS` in a process of its own."""
        settings = {**os.environ, **self.settings(), "HARNESS_ENVS": str(envs), "PYTHONPATH": str(CHECKOUT)}
        if gate is not None:
            settings["SMALL_ENGINE_GATE"] = str(gate)
        command = [sys.executable, "-c", CHILD, str(self.releases), str(self.pins), *words]
        return subprocess.Popen(
            command, env=settings, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )


def make_small_engine(folder: Path) -> SmallEngine:
    """Write the wheels and the data. Release 0.5.23 lacks a module that must import; 0.5.24 has no wheel."""
    engine = SmallEngine(folder)
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    engine.releases.write_text(RELEASES.format(pythons=json.dumps([python])))
    engine.pins.write_text("# a comment\nshared-thing==1.0\n")
    wheel(folder, "torch", "2.13.0", {"torch.py": ""})
    wheel(folder, "shared_thing", "1.0", {"shared_thing.py": "", "shared_thing_main.py": ""})
    for transformers in ("5.12.1", "5.19.0", "6.0.0"):
        wheel(folder, "transformers", transformers, {"transformers.py": ""})
    for release in ("0.5.9", "0.5.18"):
        wheel(folder, "sglang", release, package(release))
    wheel(folder, "sglang", "0.5.23", {"sglang/__init__.py": "", "sglang/srt/__init__.py": ""})
    return engine


def package(release: str, *, live: bool = True) -> dict[str, str]:
    """The files of the engine, as a wheel or a source tree holds them."""
    files = {
        "sglang/__init__.py": "",
        "sglang/_version.py": f"version: str\n__version__: str\n\n__version__ = version = '{release}'\n",
        "sglang/srt/__init__.py": "",
        "sglang/srt/runtime_context.py": GATED,
        "sglang/srt/distributed/__init__.py": "",
    }
    if live:
        files["sglang/srt/distributed/parallel_state_wrapper.py"] = ""
    return files


def write_tree(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        file = root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return root


def wheel(folder: Path, name: str, version: str, files: dict[str, str]) -> None:
    info = f"{name}-{version}.dist-info"
    entries = {
        **files,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": f"[console_scripts]\n{name}-run = {name}:main\n",
    }
    entries[f"{info}/RECORD"] = "".join(f"{entry},,\n" for entry in [*entries, f"{info}/RECORD"])
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as archive:
        for entry, text in entries.items():
            archive.writestr(entry, text)


def fake_environment(
    envs: Path, version: str, *, transformers: str = "5.12.1", name: str | None = None, base: bool = True
) -> Path:
    """What a finished environment looks like to those who only look."""
    place = envs / (name or f"sglang-{version}")
    (place / "bin").mkdir(parents=True)
    (place / "bin" / "python").symlink_to(sys.executable)
    record = {
        "schema": 1,
        "name": place.name,
        "engine": "sglang",
        "version": version,
        "generation": "live",
        "requirements": [],
        "base": "base-torch-2.13.0",
        "package": "lib/site-packages",
        "python": "3.11.0",
        "transformers": transformers,
        "proof": {"imported": ["a", "b"], "failed": {}, "seconds": 7.2},
    }
    (place / "environment.json").write_text(json.dumps(record))
    if base:
        base_place = envs / "base-torch-2.13.0"
        base_place.mkdir(exist_ok=True)
        (base_place / "environment.json").write_text('{"schema": 1, "name": "base", "digest": "d"}')
    return place
