"""A session of benchmarks: what it would measure exists, and only whole results are kept."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from benchmarks.session import MEASUREMENTS, Measurement, is_there, listed, measure


def test_every_measurement_has_a_name_of_its_own_and_a_program() -> None:
    names = [one.name for one in MEASUREMENTS]
    assert len(set(names)) == len(names)
    for one in MEASUREMENTS:
        assert importlib.util.find_spec(one.arguments[0]) is not None, one.arguments[0]
        assert one.limit_s > one.guess_s


def test_the_list_adds_up_minutes() -> None:
    lines = listed([Measurement("a", 60, ("x",)), Measurement("b", 90, ("y", "--z"))])
    assert lines[0].split() == ["a", "60", "s", "1.0", "min", "python", "-m", "x"]
    assert lines[1].split() == ["b", "90", "s", "2.5", "min", "python", "-m", "y", "--z"]


@pytest.mark.parametrize(
    ("text", "there"), [('{"a": 1}', True), ("[1]", False), ('{"a', False), (None, False)]
)
def test_only_a_whole_object_is_a_result(tmp_path: Path, text: str | None, there: bool) -> None:
    file = tmp_path / "a.json"
    if text is not None:
        file.write_text(text, "utf-8")
    assert is_there(file) is there


def test_a_benchmark_that_fails_leaves_its_words_and_no_result(tmp_path: Path) -> None:
    (tmp_path / "log").mkdir()
    code = measure(Measurement("a", 1, ("calendar", "--no-such")), tmp_path / "a.json")
    assert code == 2
    assert [path.name for path in tmp_path.glob("a.*")] == []
    assert "--no-such" in (tmp_path / "log" / "a.txt").read_text("utf-8")
