"""The environments that `make sglang` builds, for real."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from sglang_process import ask, run_python

from harness.environments import Environment
from harness.environments.releases import base, known_releases, pins_of_release

Environments = Callable[[str], Environment]


@pytest.mark.parametrize("version", known_releases())
def test_the_environment_holds_that_release_with_its_pins_and_the_shared_base(
    version: str, sglang_environment: Environments
) -> None:
    environment = sglang_environment(version)
    answer = ask(
        environment,
        """
        from importlib.metadata import version
        import importlib.util, pathlib
        answer = {name: version(name) for name in ("sglang", "transformers", "tokenizers", "openai", "torch")}
        answer["package"] = str(pathlib.Path(importlib.util.find_spec("sglang").origin).parent.parent)
        """,
    )
    pins = dict(pin.split("==") for pin in pins_of_release(version).requirements)
    assert answer["sglang"] == version
    assert answer["package"] == str(environment.package)
    assert {name: answer[name] for name in ("transformers", "tokenizers", "openai")} == {
        name: pins[name] for name in ("transformers", "tokenizers", "openai")
    }
    assert answer["torch"].split("+")[0] == base().torch


@pytest.mark.parametrize("version", ["0.5.18"])
def test_every_module_that_matters_imports_without_a_gpu(
    version: str, sglang_environment: Environments
) -> None:
    environment = sglang_environment(version)
    modules = pins_of_release(version).imports
    answer = ask(
        environment,
        f"""
        import importlib
        answer = {{}}
        for name in {modules!r}:
            try:
                importlib.import_module(name)
            except Exception as error:
                answer[name] = repr(error)
        """,
    )
    assert answer == {}


def test_torchvision_imports_and_its_operators_have_no_body(sglang_environment: Environments) -> None:
    """What the shim is for, and what it does not pretend."""
    answer = ask(
        sglang_environment("0.5.18"),
        """
        import torch, torchvision
        try:
            torchvision.ops.nms(torch.zeros(1, 4), torch.zeros(1), 0.5)
            answer = "ran"
        except (NotImplementedError, RuntimeError) as error:
            answer = type(error).__name__
        """,
    )
    assert answer in ("NotImplementedError", "RuntimeError")


def test_a_job_of_harness_runs_there_with_the_plugin_loaded_once(
    sglang_environment: Environments, tmp_path: Path
) -> None:
    (tmp_path / "test_one.py").write_text(
        "def test_one(request, subtests):\n"
        "    plugins = request.config.pluginmanager.get_plugins()\n"
        "    names = [p.__name__ for p in plugins if getattr(p, '__name__', '') == 'harness.pytest_plugin']\n"
        "    assert names == ['harness.pytest_plugin']\n"
        "    with subtests.test('one'):\n"
        "        assert True\n"
    )
    plugin = ("-p", "no:harness", "-p", "harness.pytest_plugin", "-p", "no:cacheprovider")
    done = run_python(
        sglang_environment("0.5.18"), "-m", "pytest", "-q", *plugin, "test_one.py", cwd=tmp_path
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed, 1 subtests passed" in done.stdout
