"""`python -m harness.environments`: what it says, its exit codes, and removal; and the data it ships."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
import yaml
from small_engine import fake_environment

from harness.environments import EnvironmentBuildError, releases
from harness.environments.command import main
from harness.environments.pip import run
from harness.environments.workplace import held

CHECKOUT = Path(__file__).resolve().parents[2]


def test_help_has_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        main(["--help"])
    assert "python -m harness.environments sglang --version 0.5.18" in capsys.readouterr().out


def test_the_list_says_what_is_there_and_which_is_current(
    envs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--list"]) == 0
    assert capsys.readouterr().out.endswith("build one with: make sglang VERSION=0.5.18\n")
    fake_environment(envs, "0.5.17")
    fake_environment(envs, "0.5.18")
    assert main(["--list"]) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith("  sglang-0.5.17 ") and second.startswith("* sglang-0.5.18 ")
    assert second.endswith("live, Python 3.11.0, transformers 5.12.1; 2 of 2 modules import in 7 s")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "say what to do: sglang to build"),
        (
            ["sglang", "--version", "0.5.3"],
            "no pins are known for SGLang 0.5.3; allowed: 0.5.17, 0.5.18, 0.5.23",
        ),
        (["sglang", "--source", "/nowhere"], "source /nowhere is no folder"),
        (["--remove", "sglang-0.5.17"], "no environment 'sglang-0.5.17'; allowed: none is built"),
        (["--remove", "../envs"], "no environment '../envs'"),
    ],
)
def test_what_cannot_be_is_one_line_and_exit_2(
    envs: Path, capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    assert main(words) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and captured.err.startswith("error: ") and said in captured.err
    assert captured.err.count("\n") == 1


def test_removal_takes_one_and_the_base_only_when_nothing_needs_it(
    envs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fake_environment(envs, "0.5.18")
    assert main(["--remove", "base-torch-2.13.0"]) == 2
    assert "is needed by sglang-0.5.18" in capsys.readouterr().err
    assert main(["--remove", "sglang-0.5.18"]) == 0
    assert main(["--remove", "base-torch-2.13.0"]) == 0
    assert {path.name for path in envs.iterdir()} == {".lock"}


def test_what_pip_says_is_shown_without_warnings_and_without_the_address_of_an_index(tmp_path: Path) -> None:
    said = (
        "WARNING: something else\n"
        "Looking in indexes: https://user:secret@packages.example/simple, https://other.example/x\n"
        "ERROR: HTTPSConnectionPool(host='packages.example', port=443): gone\n"
    )
    with held(tmp_path, on_wait=lambda: None) as workplace, pytest.raises(EnvironmentBuildError) as raised:
        code = f"import sys; sys.stderr.write({said!r}); sys.exit(1)"
        run([sys.executable, "-c", code], doing="installing it", workplace=workplace)
    assert str(raised.value).splitlines() == [
        "installing it failed (exit 1)",
        "  Looking in indexes: https://<host>/simple, https://<host>/x",
        "  ERROR: HTTPSConnectionPool(host='<host>', port=443): gone",
    ]


def pins(file: Path) -> dict[str, str]:
    lines = [line for line in file.read_text().splitlines() if line and not line.startswith("#")]
    return {re.sub(r"[-_.]+", "-", name).lower(): v for name, v in (line.split("==") for line in lines)}


def test_the_base_pins_everything_once_and_as_harness_does() -> None:
    base, own = pins(releases.BASE_PINS), pins(CHECKOUT / "constraints.txt")
    # An extra: nothing of harness that runs in an engine's environment imports it, so there it is the engine's choice.
    del own["triton"]
    assert {name: base[name] for name in base.keys() & own.keys()} == {
        name: own[name] for name in base.keys() & own.keys()
    }
    assert releases.base().torch == own["torch"]
    # what differs by release must not be in the base: an environment would see two
    data = yaml.safe_load(releases.RELEASES.read_text())
    differing = {pin.split("==")[0] for pins in data["dependencies"].values() for pin in pins}
    assert differing == {"transformers", "tokenizers", "openai", "xgrammar"}
    assert not differing & base.keys()


def test_every_release_has_its_dependencies_and_the_default_is_one_of_them() -> None:
    assert releases.default_release() in releases.known_releases()
    for release in releases.known_releases():
        found = releases.pins_of_release(release)
        assert f"transformers=={found.transformers}" in found.requirements
        assert (releases.live_only_module() in found.imports) == (found.generation == "live")


def test_the_data_is_shipped_with_the_package() -> None:
    patterns = re.search(r'"harness\.environments" = \[(.*)\]', (CHECKOUT / "pyproject.toml").read_text())
    assert patterns is not None
    shipped = {
        f for p in re.findall(r'"([^"]+)"', patterns[1]) for f in (CHECKOUT / "harness/environments").glob(p)
    }
    from harness.environments.install import SHIM

    assert {releases.BASE_PINS, releases.RELEASES, SHIM} <= shipped
