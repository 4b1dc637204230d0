"""The catalogue names real seams, helps with typing errors, costs no torch, and feeds the engine's zygote."""

from __future__ import annotations

import subprocess
import sys

import pytest

from harness.errors import UsageError
from harness.faults import FAULTS, get_fault
from harness.faults import zygote as faulty_zygote
from harness.refengine import attention, layout_seams, seams, zygote

pytestmark = pytest.mark.usefixtures("healthy_afterwards")


@pytest.mark.parametrize("fault_id", FAULTS)
def test_a_fault_patches_the_seams_it_names_and_no_other(fault_id: str) -> None:
    fault = get_fault(fault_id)
    assert fault.id == fault_id
    table = dict(seams._IMPLEMENTATIONS)
    fault.install()
    changed = {name for name, function in seams._IMPLEMENTATIONS.items() if table[name] is not function}
    assert changed == set(fault.seams)


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("lse-bas", "did you mean lse-base"),
        ("len_ceil", "did you mean len-ceil"),
        ("zzz", "there are: lse-base, lse-log2, lse-bf16"),
    ],
)
def test_unknown_faults_get_near_names(typed: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        get_fault(typed)


def test_listing_faults_does_not_import_torch() -> None:
    code = "import sys, harness.faults; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_zygote_gets_the_rest_and_the_names(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[object] = []

    def fake_main(argv: list[str], *, faults: list[str]) -> int:
        healthy = attention.lse_weights.__wrapped__
        seen.extend([argv, faults, seams._IMPLEMENTATIONS[attention.LSE_WEIGHTS] is healthy])
        return 7

    monkeypatch.setattr(zygote, "main", fake_main)
    argv = ["--fault", "lse-base", "--fault", "len-ceil", "--wiring", '{"tp": 4}']
    assert faulty_zygote.main(argv) == 7
    assert seen == [["--wiring", '{"tp": 4}'], ["lse-base", "len-ceil"], False]


def test_an_unknown_fault_ends_the_zygote_before_anything_is_planted(
    capsys: pytest.CaptureFixture[str],
) -> None:
    before = seams._IMPLEMENTATIONS[layout_seams.LOCAL_KV_LEN]
    assert faulty_zygote.main(["--fault", "len-ceil", "--fault", "len-floor"]) == 2
    assert "unknown fault 'len-floor'; did you mean" in capsys.readouterr().err
    assert seams._IMPLEMENTATIONS[layout_seams.LOCAL_KV_LEN] is before
