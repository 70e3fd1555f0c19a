"""A session of benchmarks: what it would measure exists, and only whole results are kept."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from benchmarks.session import MEASUREMENTS, is_there, limit_s, measure


def test_every_measurement_has_a_program_and_some_time_to_spare() -> None:
    for guess_s, arguments in MEASUREMENTS.values():
        module = arguments.split()[0]
        assert importlib.util.find_spec(module) is not None, module
        assert limit_s(guess_s) > guess_s


@pytest.mark.parametrize(
    ("text", "there"), [('{"a": 1}', True), ("[1]", False), ('{"a', False), (None, False)]
)
def test_only_a_whole_object_is_a_result(tmp_path: Path, text: str | None, there: bool) -> None:
    file = tmp_path / "a.json"
    if text is not None:
        file.write_text(text, "utf-8")
    assert is_there(file) is there


def test_a_benchmark_that_fails_leaves_its_words_and_no_result(tmp_path: Path) -> None:
    code = measure(["calendar", "--no-such"], tmp_path / "a.json", 60.0)
    assert code == 2
    assert [path.name for path in tmp_path.glob("a.*")] == []
    assert "--no-such" in (tmp_path / "log" / "a.txt").read_text("utf-8")
