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
from benchmarks import results
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
    text = "".join(path.read_text("utf-8") for path in (*found, Path(report_module.__file__)))
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


def test_a_section_shows_the_figures_of_which_something_was_asked_and_a_short_table() -> None:
    result = made(
        "How long it waits",
        [
            Figure("wait", 1.23456, "s", at_most=1.0, low=1.2, high=1.3, note="with a|b"),
            Figure("frames", 20000),
        ],
        "-m tests.fuzz --inputs 7 --json",
        settings={"boards": 4},
        notes=["Said once."],
        tables=[Table("All", ("n", "s"), (("1", "0.5"),)), Table("More", ("m",), (("2",),))],
    )
    text = results.page({"fuzz": result})
    assert "## How long it waits\n\n`make fuzz`: feeds bad inputs to every reader" in text
    assert (
        f"`python -m tests.fuzz --inputs 7`, {result['date']}, version {result['version']}" in text
    )
    assert "`fuzz.json`" in text
    assert f"python {result['machine']['python']}" in text
    assert "| wait (with a\\|b) | ≤ 1 | 1.235 s (1.2 to 1.3) | **no** |" in text
    assert "All:\n\n| n | s |\n|---|---|\n| 1 | 0.5 |" in text
    for left_out in ("frames", "boards 4", "Said once.", "More", "--json`"):
        assert left_out not in text.partition("## ")[2]


def test_figures_of_one_kind_that_hold_are_one_row_and_those_missed_have_one_each() -> None:
    values = {"resnet50": 0.97, "vgg16": 0.96, "yolov2": 1.2, "slow": 0.5}
    figures = [Figure(f"{name}: rate", one, "n", at_least=0.95) for name, one in values.items()]
    figures += [Figure("left: frames lost", 0, at_most=0), Figure("frames doubled", 0, at_most=0)]
    text = results.page({"fuzz": made("A", figures)})
    assert re.findall(r"^\| (?!what)(.+) \|$", text, re.MULTILINE) == [
        "vgg16: rate, nearest of 3 | ≥ 0.95 | 0.96 n (0.96 to 1.2) | yes",
        "slow: rate | ≥ 0.95 | 0.5 n | **no**",
        "left: frames lost | ≤ 0 | 0 | yes",
        "frames doubled | ≤ 0 | 0 | yes",
    ]


def test_many_figures_of_one_bound_are_one_row_though_their_names_have_no_kind() -> None:
    figures = [Figure(f"fault {k}", k / 10, "s", at_most=10) for k in range(9)]
    text = results.page({"fuzz": made("A", figures)})
    assert "| fault 8, nearest of 9 | ≤ 10 | 0.8 s (0 to 0.8) | yes |" in text
    assert "fault 7" not in text
    assert "fault 5 |" in results.page({"fuzz": made("A", figures[: results.MOST_ALIKE])})


def test_a_long_table_stays_in_its_file() -> None:
    rows = tuple((str(k),) for k in range(results.MOST_ROWS + 1))
    for count, is_shown in ((results.MOST_ROWS, True), (results.MOST_ROWS + 1, False)):
        result = made("A", tables=[Table("All", ("number",), rows[:count])])
        assert ("| number |" in results.page({"fuzz": result})) == is_shown


def test_verdicts_of_papers_are_counted() -> None:
    verdicts = ("differs because a (b)", "differs because c", "better", "computed here (why)")
    rows = tuple((f"row {k}", verdict) for k, verdict in enumerate(verdicts))
    result = made("A", tables=[Table("Table 7", ("what", "verdict"), rows)])
    text = results.page({"fuzz": result})
    assert "| Table 7 | 2 differs, 1 better, 1 computed here |" in text


def test_a_date_before_that_of_the_newest_measurement_is_bold() -> None:
    old = {**made("A: one"), "date": "2026-01-02 03:04 UTC"}
    new = {**made("A: two"), "date": "2026-01-03 00:00 UTC"}
    text = results.page({"fuzz": old, "fuzz-two": new})
    assert "older than those of 2026-01-03" in text
    assert "**2026-01-02 03:04 UTC**" in text
    assert "`, 2026-01-03 00:00 UTC" in text


def test_the_machine_is_named_once_and_where_it_differs_each_time() -> None:
    one, two = made("A: one"), made("A: two")
    for result, numpy in ((one, "8.0"), (two, "9.0")):
        result["machine"] = {"processor": "P", "numpy": numpy, "load": numpy}
    text = results.page({"fuzz": one, "fuzz-two": two})
    assert text.count("processor P") == 1
    assert (text.count("numpy 8.0"), text.count("numpy 9.0")) == (1, 1)
    assert "load 8" not in text


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
def test_a_file_that_is_no_result_is_refused(
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


def test_a_row_that_is_no_figure_is_refused() -> None:
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
