"""The page of results is short and what the benchmarks' files say; a file that is no result is
refused."""

import json
import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from benchmarks import report as report_module
from benchmarks import results, turn_log
from benchmarks.report import Figure, Table, report, show, without_folder
from tests.docs.markdown import ROOT


def test_the_page_is_drawn_from_the_committed_files() -> None:
    assert results.PAGE.read_text(encoding="utf-8") == results.page(results.read_all())


def test_the_page_is_short_enough_to_be_read() -> None:
    assert len(results.PAGE.read_text(encoding="utf-8").split()) <= 6000


@pytest.mark.parametrize("name", results.read_all())
def test_every_option_with_which_a_result_was_measured_still_exists(name: str) -> None:
    words = shlex.split(results.read_all()[name]["command"])
    place = ROOT.joinpath(*words[words.index("-m") + 1].split("."))
    found = sorted(place.glob("*.py")) if place.is_dir() else [place.with_suffix(".py")]
    shared = map(Path, (report_module.__file__, turn_log.__file__))
    text = "".join(path.read_text("utf-8") for path in (*found, *shared))
    for option in (word for word in words if word.startswith("--")):
        assert f'"{option}"' in text, option


def test_no_result_names_a_place_of_the_machine_that_measured_it() -> None:
    for path in results.FOLDER.iterdir():
        found = re.findall(
            r"(?<![\w.])/(?:home|root|tmp|var|work)/[^\s\"]*", path.read_text("utf-8")
        )
        assert not found, path.name
        assert str(ROOT) not in path.read_text("utf-8"), path.name


@pytest.mark.parametrize(
    ("figure", "holds"),
    [
        (Figure("a", 0.95, at_least=0.95), True),
        (Figure("a", 0.949, at_least=0.95), False),
        (Figure("a", 2, at_most=2), True),
        (Figure("a", 2.1, at_most=2), False),
        (Figure("a", 1.0, at_least=0.9, at_most=1.1), True),
        (Figure("a", 1.2, at_least=0.9, at_most=1.1), False),
        (Figure("a", 1.2), None),
        (Figure("a", "none", at_least=1), None),
    ],
)
def test_whether_a_figure_holds_is_computed(figure: Figure, holds: bool | None) -> None:
    assert figure.holds is holds


def made(
    title: str, figures: Sequence[Figure] = (), command: str = "-m tests.fuzz", **more: Any
) -> dict[str, Any]:
    """A result as a file has it, of a benchmark that exists."""
    found = report("fuzz", title, figures, **more)
    return {**json.loads(json.dumps(found)), "command": f"python {command}"}


def test_a_result_whose_benchmark_does_not_exist_is_refused() -> None:
    with pytest.raises(results.ResultError, match="there is no such benchmark"):
        results.page({"gone": made("A", command="-m benchmarks.gone --json")})


@pytest.mark.parametrize(
    ("name", "text", "complaint"),
    [
        ("a.json", "{", "a.json is not JSON"),
        ("a.json", "[]", "a.json lacks benchmark, title"),
        ("a.json", '{"benchmark": "a", "title": "A"}', "a.json lacks command, date, machine, rows"),
        ("b.json", json.dumps(report("a", "A", [])), "b.json says that it is 'a'"),
        ("ab.json", json.dumps(report("a", "A", [])), "ab.json says that it is 'a'"),
    ],
)
def test_a_file_that_is_not_a_result_is_refused(
    tmp_path: Path, name: str, text: str, complaint: str
) -> None:
    (tmp_path / name).write_text(text, "utf-8")
    with pytest.raises(results.ResultError, match=re.escape(complaint)):
        results.read_all(tmp_path)


def test_a_benchmark_that_ran_in_two_ways_has_one_section_with_two_parts(tmp_path: Path) -> None:
    for name, title in (("fuzz", "A: quick"), ("fuzz-slow", "A: slowly")):
        (tmp_path / f"{name}.json").write_text(json.dumps(made(title)), "utf-8")
    text = results.page(results.read_all(tmp_path))
    assert re.findall("^##+ .+$", text, re.MULTILINE) == ["## A", "### quick", "### slowly"]
    (tmp_path / "fuzz-again.json").write_text(json.dumps(made("A: quick")), "utf-8")
    with pytest.raises(results.ResultError, match="several results are called 'A: quick'"):
        results.page(results.read_all(tmp_path))


def test_a_command_says_what_was_typed_but_no_folder_of_the_machine() -> None:
    typed = [
        "--json",
        "--output",
        "/srv/here/out.json",
        "--model=/srv/net.onnx",
        "a/b",
        "tcp://h:1",
    ]
    assert list(map(without_folder, typed)) == [
        *("--json", "--output", "out.json", "--model=net.onnx", "a/b", "tcp://h:1")
    ]


def test_a_row_that_is_not_a_figure_is_refused() -> None:
    result = {**made("A"), "rows": [{"what": "x", "measured": 1, "asked": "≥ 1"}]}
    with pytest.raises(results.ResultError, match="is no figure"):
        results.page({"fuzz": result})


@pytest.mark.parametrize(("measured", "held"), [(1.0, "reached"), (2.0, "MISSED")])
def test_a_report_in_words_says_what_was_asked_and_ends_with_1_if_it_is_missed(
    measured: float, held: str, capsys: pytest.CaptureFixture[str]
) -> None:
    figures = [Figure.of("wait", [measured, 0.5, 3], "s", at_most=1.5), Figure("frames", 7)]
    tables = [Table("All", ("n", "s"), (("1", "0.5"),))]
    result = report("waiting", "How long it waits", figures, tables=tables, notes=["Said once."])
    assert show(result, as_json=False) == (held == "MISSED")
    said = capsys.readouterr().out
    assert said == (
        f"All\nn  s\n1  0.5\n\nwait    {measured:g} s  0.5 to 3  ≤ 1.5  {held}\nframes  7\n"
        "Said once.\n"
    )
    assert show(result, as_json=True) == (held == "MISSED")
    assert json.loads(capsys.readouterr().out) == json.loads(json.dumps(result))
