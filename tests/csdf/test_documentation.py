"""What docs/csdf.md shows is what happens."""

from __future__ import annotations

import re
from fractions import Fraction
from pathlib import Path

import pytest

from csdf.cli.command import main
from csdf.formats import json_format
from csdf.timing.throughput import throughput

ROOT = Path(__file__).parent.parent.parent
TEXT = (ROOT / "docs" / "csdf.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", TEXT, re.DOTALL)


def test_the_commands_print_what_is_shown(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    for shown in blocks("console"):
        command, _, expected = shown.partition("\n")
        assert main(command.removeprefix("$ csdf ").split()) == 0
        assert capsys.readouterr().out == expected


def test_the_library_does_what_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reference = ROOT / "tests" / "fixtures" / "csdf_reference" / "cnnrows_2_3_4.xml"
    (tmp_path / "graph.xml").write_bytes(reference.read_bytes())
    monkeypatch.chdir(tmp_path)
    (code,) = blocks("python")
    found = dict[str, object]()
    # The graph shown is bounded, so there is nothing left to size.
    exec(code.replace("CapacitySearch(graph", "CapacitySearch(graph, []"), found)
    shown = re.search(r"period +# Fraction\((\d+), 1\)", code)
    assert shown is not None
    assert throughput(found["graph"]).period == Fraction(shown[1])  # type: ignore[operator]


def test_the_json_shown_is_a_graph() -> None:
    text, parametric = blocks("json")
    assert json_format.parse(text.encode()).channels[0].capacity == 4
    graph = json_format.parse_parametric(parametric.encode()).at({"p": 3})
    assert graph.channels[0].production == (6,)
