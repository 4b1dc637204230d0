"""The report, the JSON document, and workflow commands that GitHub reads as they were meant."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from planted import RULES, write_tree

from harness.ratchet import Baseline, as_json, github_lines, judge, scan, text_lines

SOURCE = """\
class TpWorker:
    def f(self, server_args):
        self.n = server_args.dcp_size
        return server_args.tp_size
"""


def test_a_line_opens_the_site_and_says_what_to_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(write_tree(tmp_path, {"engine/a.py": SOURCE}))
    lines = list(text_lines(judge(scan(Path("engine"), RULES), RULES, None), RULES))
    assert lines[:2] == [
        (
            "engine/a.py:3:18 dcp copied server_args.dcp_size kept as self.n -> "
            "should read ps.attn_dcp_size where it is used, and no copy"
        ),
        "engine/a.py:4:16 tp direct server_args.tp_size -> should read get_parallel().tp_size",
    ]
    assert "dcp: direct 0 / alias 0 / defensive 0 / copied 1 / early 0" in lines
    assert lines[-1] == "1 files, 1 parsed; 0 reads exempt"


def test_changes_are_told_by_site(tmp_path: Path) -> None:
    found = scan(write_tree(tmp_path, {"a.py": SOURCE}), RULES)
    up = list(text_lines(judge(found, RULES, Baseline()), RULES))
    assert "more dcp copied 0 -> 1" in up
    assert any(line.startswith("  new  ") and "a.py:3:18" in line for line in up)
    empty = scan(write_tree(tmp_path / "b", {"a.py": "pass"}), RULES)
    down = list(text_lines(judge(empty, RULES, Baseline.of(found.sites)), RULES))
    assert "fewer tp direct 1 -> 0" in down
    assert down[-1].endswith("run --update to keep it so")


def test_the_document_is_json_and_whole(tmp_path: Path) -> None:
    found = scan(write_tree(tmp_path, {"a.py": SOURCE, "bad.py": "server_args.dcp_size ("}), RULES)
    document = json.loads(json.dumps(as_json(judge(found, RULES, Baseline()), RULES)))
    assert document["totals"]["dcp"] == {"direct": 0, "aliased": 0, "defensive": 0, "copied": 1, "early": 0}
    assert [(site["file"], site["line"], site["column"]) for site in document["sites"]] == [
        ("a.py", 3, 18),
        ("a.py", 4, 16),
    ]
    assert [each["file"] for each in document["unparsed"]] == ["bad.py"]
    assert {(each["axis"], each["before"], each["after"]) for each in document["changes"]} == {
        ("dcp", 0, 1),
        ("tp", 0, 1),
    }
    assert document["exit_code"] == 1


def parsed(command: str) -> tuple[str, dict[str, str], str]:
    """A workflow command, read by GitHub's rules."""
    match = re.fullmatch(r"::(\w+)(?: ([^:]*))?::(.*)", command)
    assert match, command

    def unescaped(text: str) -> str:
        for escaped, plain in (("%2C", ","), ("%3A", ":"), ("%0A", "\n"), ("%0D", "\r"), ("%25", "%")):
            text = text.replace(escaped, plain)
        return text

    properties = dict(each.split("=", 1) for each in match[2].split(","))
    return match[1], {name: unescaped(value) for name, value in properties.items()}, unescaped(match[3])


def test_annotations_survive_any_name_and_expression(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = "o,d:d/100%25.py"
    source = "def f(server_args):\n    return getattr(server_args, 'tp_size', ':: %0A,\\n%')\n"
    monkeypatch.chdir(write_tree(tmp_path, {name: source}))
    lines = list(github_lines(judge(scan(Path(), RULES), RULES, None), RULES, baseline=False))
    level, properties, words = parsed(lines[0])
    assert (level, properties["file"], properties["line"], properties["col"]) == ("warning", name, "2", "12")
    assert properties["title"] == "topology read: tp defensive"
    assert words.startswith("getattr(server_args, 'tp_size', ':: %0A,\\n%') should read")


def test_with_a_baseline_only_what_is_new_is_annotated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    old = scan(write_tree(tmp_path / "old", {"a.py": SOURCE}), RULES)
    new = scan(write_tree(tmp_path / "new", {"a.py": SOURCE + "        return server_args.tp_size\n"}), RULES)
    judgement = judge(new, RULES, Baseline.of(old.sites))
    commands = [line for line in github_lines(judgement, RULES, baseline=True) if line.startswith("::")]
    assert [line.split("::")[1].split(",")[:2] for line in commands[:1]] == [
        ["error file=new/a.py", "line=5"]
    ]
    assert commands[1:] == ["::error title=topology ratchet::tp direct 1 -> 2: more than the baseline allows"]
