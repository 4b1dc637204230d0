"""`python -m harness.environments`: build, list and remove environments of engines. `make sglang` runs this."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from harness.environments import releases
from harness.environments.build import build_for_source, build_release
from harness.environments.folder import envs_folder, is_current, list_environments
from harness.environments.model import SGLANG
from harness.environments.progress import Steps
from harness.environments.removal import remove_environment
from harness.environments.source import read_source
from harness.environments.wording import build_command, describe, worth
from harness.errors import HarnessError, UsageError

EXAMPLES = """examples:
  python -m harness.environments sglang --version 0.5.18
  python -m harness.environments sglang --source ~/sglang   (its dependencies; the code is given to each run)
  python -m harness.environments --list
  python -m harness.environments --remove sglang-0.5.17
"""


def main(argv: Sequence[str] | None = None) -> int:
    """The exit code: 0, 2 for what cannot be, 3 for a build that failed, 130 when interrupted."""
    options = _parser().parse_args(argv)
    try:
        _do(options)
    except HarnessError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("interrupted; nothing half-built is left", file=sys.stderr)
        return 130
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m harness.environments",
        description="Build, list or remove the virtual environments that hold a real engine. "
        "They lie in HARNESS_ENVS, else in .envs of the checkout.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("engine", nargs="?", choices=[SGLANG], help="the engine to build for")
    what = parser.add_mutually_exclusive_group()
    known = ", ".join(releases.known_releases())
    what.add_argument(
        "--version", metavar="V", help=f"a release: {known}; {releases.default_release()} if none is named"
    )
    what.add_argument("--source", type=Path, metavar="PATH", help="build for a checkout: its dependencies")
    what.add_argument("--list", action="store_true", help="show what is built")
    what.add_argument("--remove", metavar="NAME", help="remove one that is built")
    parser.add_argument("--torch-index", default="", metavar="URL", help="take torch from that index")
    return parser


def _do(options: argparse.Namespace) -> None:
    folder = envs_folder()
    if options.list:
        print("\n".join(_table(folder)))
    elif options.remove:
        remove_environment(options.remove, folder=folder)
        print(f"removed {options.remove}")
    elif options.engine is None:
        raise UsageError(f"say what to do: {SGLANG} to build, --list or --remove NAME (see --help)")
    else:
        _build(options, folder)


def _build(options: argparse.Namespace, folder: Path) -> None:
    steps = Steps()
    if options.source is None:
        release = options.version or releases.default_release()
        environment = build_release(release, folder=folder, torch_index=options.torch_index, steps=steps)
        print(f"{environment.name}: {worth(environment)}; it is the current one now")
    else:
        source = read_source(options.source)
        environment = build_for_source(source, folder=folder, torch_index=options.torch_index, steps=steps)
        print(f"{environment.name}: {worth(environment)}")


def _table(folder: Path) -> list[str]:
    found = list_environments(folder)
    if not found:
        return [f"no environments in {folder}; build one with: {build_command()}"]
    # the star stands where `git branch` has it
    marks = ["*" if is_current(environment, folder) else " " for environment in found]
    return [f"{mark} {e.name:36} {describe(e)}" for mark, e in zip(marks, found, strict=True)]
