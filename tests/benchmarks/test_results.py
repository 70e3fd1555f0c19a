"""The page of results is what the benchmarks' files say; a file that is no result is refused."""

import json
import re
from pathlib import Path

import pytest

from benchmarks import results
from benchmarks.report import Figure, Table, report, show, without_folder
from tests.docs.markdown import ROOT


def test_the_page_is_drawn_from_the_committed_files() -> None:
    assert results.PAGE.read_text(encoding="utf-8") == results.page(results.read_all())


def test_every_picture_lies_beside_its_file() -> None:
    for result in results.read_all():
        for name in result.get("pictures", {}):
            assert (results.FOLDER / name).is_file(), f"{result['benchmark']}: {name}"


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


def test_a_section_shows_figures_beside_what_was_asked() -> None:
    made = report(
        "waiting",
        "How long it waits",
        [
            Figure("wait", 1.23456, "s", at_most=1.0, low=1.2, high=1.3, note="with a|b"),
            Figure("frames", 20000),
        ],
        settings={"boards": 4},
        notes=["Said once."],
        tables=[Table("All", ("n", "s"), (("1", "0.5"),))],
        pictures={"waiting.svg": "waits"},
    )
    text = results.page([json.loads(json.dumps(made))])
    assert "## How long it waits" in text
    assert made["command"] in text
    assert made["date"] in text
    assert f"python {made['machine']['python']}" in text
    assert "| wait (with a\\|b) | 1.235 s | 1.2 to 1.3 | ≤ 1 | **no** |" in text
    assert "| frames | 20000 | – | – | – |" in text
    assert "### All\n\n| n | s |\n| --- | --- |\n| 1 | 0.5 |" in text
    assert "![waits](../benchmarks/results/waiting.svg)" in text


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
def test_a_file_that_is_no_result_is_refused(
    tmp_path: Path, name: str, text: str, complaint: str
) -> None:
    (tmp_path / name).write_text(text, "utf-8")
    with pytest.raises(results.ResultError, match=re.escape(complaint)):
        results.read_all(tmp_path)


def test_a_benchmark_that_ran_in_two_ways_has_two_sections(tmp_path: Path) -> None:
    for name, title in (("a", "A"), ("a-slow", "A, slowly")):
        (tmp_path / f"{name}.json").write_text(json.dumps(report("a", title, [])), "utf-8")
    text = results.page(results.read_all(tmp_path))
    assert re.findall("^## (.+)$", text, re.MULTILINE) == ["A", "A, slowly"]
    (tmp_path / "a-again.json").write_text(json.dumps(report("a", "A", [])), "utf-8")
    with pytest.raises(results.ResultError, match="several results are called 'A'"):
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


def test_a_row_that_is_no_figure_is_refused() -> None:
    made = {**report("a", "A", []), "rows": [{"what": "x", "measured": 1, "asked": "≥ 1"}]}
    with pytest.raises(results.ResultError, match="is no figure"):
        results.page([made])


@pytest.mark.parametrize(("measured", "held"), [(1.0, "reached"), (2.0, "MISSED")])
def test_a_report_in_words_says_what_was_asked_and_ends_with_1_if_it_is_missed(
    measured: float, held: str, capsys: pytest.CaptureFixture[str]
) -> None:
    figures = [Figure.of("wait", [measured, 0.5, 3], "s", at_most=1.5), Figure("frames", 7)]
    tables = [Table("All", ("n", "s"), (("1", "0.5"),))]
    made = report("waiting", "How long it waits", figures, tables=tables, notes=["Said once."])
    assert show(made, as_json=False) == (held == "MISSED")
    said = capsys.readouterr().out
    assert said == (
        f"All\nn  s\n1  0.5\n\nwait    {measured:g} s  0.5 to 3  ≤ 1.5  {held}\nframes  7\n"
        "Said once.\n"
    )
    assert show(made, as_json=True) == (held == "MISSED")
    assert json.loads(capsys.readouterr().out) == json.loads(json.dumps(made))
