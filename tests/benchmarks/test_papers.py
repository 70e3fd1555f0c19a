"""`python -m benchmarks.papers`: verdicts follow from numbers, and what was reproduced stays so."""

from __future__ import annotations

import json

import pytest

from benchmarks import results
from benchmarks.papers import batches, segments, stages, vertical
from benchmarks.papers.__main__ import COLUMNS, main
from benchmarks.papers.rows import Section, Values, compared, impossible
from benchmarks.table3.paper import PAPER


def values(*numbers: float) -> Values:
    return Values.of(numbers, " ".join(["{}"] * len(numbers)))


@pytest.mark.parametrize(
    ("theirs", "ours", "better", "kind"),
    [
        ((4.0, 9.0), (4.1, 9.0), None, "reproduced"),
        ((4.0, 9.0), (4.2, 9.0), None, "differs"),
        ((4.0, 9.0), (4.2, 9.1), "more", "better"),
        ((4.0, 9.0), (4.2, 8.0), "more", "differs"),
        ((4.0, 9.0), (3.0, 9.1), "less", "better"),
        ((4.0, 9.0), (4.2, 8.0), "less", "differs"),
    ],
)
def test_a_verdict_follows_from_the_numbers_and_is_better_only_if_no_number_is_worse(
    theirs: tuple[float, ...], ours: tuple[float, ...], better: str | None, kind: str
) -> None:
    row = compared(
        "x",
        values(*theirs),
        values(*ours),
        within=[0.1, 0.1],
        better=better,  # type: ignore[arg-type]
        because="it is so",
    )
    assert row.kind == kind
    assert row.verdict == ("differs because it is so" if kind == "differs" else kind)


def test_a_figure_that_cannot_be_compared_gives_its_reason() -> None:
    assert impossible("x", "7", "it is a curve").verdict == "not possible because it is a curve"


def kinds(section: Section) -> set[str]:
    return {row.kind for row in section.rows}


def by_title(found: list[Section], start: str) -> Section:
    return next(section for section in found if section.title.startswith(start))


@pytest.mark.slow
def test_the_compilers_rule_reproduces_tables_2_4_and_6_and_the_first_drop_of_figure_4() -> None:
    found = list(segments.sections(quick=True))
    for title in ("Table 2", "Table 4", "Table 6", "Figure 4"):
        assert kinds(by_title(found, title)) == {"reproduced"}, title


def test_the_ratios_and_the_re_balancing_of_coin_are_reproduced() -> None:
    examples, table = batches.sections()
    assert kinds(examples) == {"reproduced"}
    assert {row.what for row in table.rows if row.kind == "reproduced"} == {
        "MobileNet: CcT's ratio",
        "mean of the table's speed-ups",
    }


def test_two_stages_reach_the_rates_of_table_5_from_each_processors_own_rate() -> None:
    found = list(stages.sections())
    assert kinds(by_title(found, "Table 5")) == {"reproduced"}
    assert by_title(found, "Algorithm 2").rows[1].kind == "reproduced"


def test_algorithm_2_walks_on_as_long_as_the_slowest_stage_gets_faster() -> None:
    """The published run: from 23 it tries 24 to 27, and 26 is the best."""
    best, tried = stages.dynamic_cut(23, 31, lambda cut: abs(cut - 26) + 1.0)
    assert (best, tried) == (26, [23, 24, 25, 26, 27])


def test_algorithm_2_turns_round_if_the_first_step_is_worse() -> None:
    best, tried = stages.dynamic_cut(5, 9, lambda cut: abs(cut - 3) + 1.0)
    assert (best, tried) == (3, [5, 6, 4, 3, 2])


def test_both_columns_are_those_of_one_stored_plan() -> None:
    cells = vertical.stored_cells()
    assert cells
    for name, counts in PAPER.items():
        for count in counts:
            row = vertical.both_columns(name, count, cells)
            own = [cell for cell in cells if (cell.network, cell.devices) == (name, count)]
            if not own:
                assert row.kind == "not possible"
                continue
            shown = [f"{c.saving_percent:.1f} %, {c.speedup:.2f}×" for c in own]
            assert row.ours.partition(" (")[0] in shown
            assert any(cell.file in row.ours and cell.date in row.ours for cell in own)


def test_without_stored_results_both_columns_are_not_possible() -> None:
    row = vertical.both_columns("resnet50", 4, ())
    assert row.verdict == "not possible because no stored laboratory run has this number of boards"


def test_the_command_prints_tables_and_one_object(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--papers", "001,004", "--quick"]) == 0
    text = capsys.readouterr().out
    assert "Table III, CoIn against CcT" in text
    assert "| not possible because" in text
    assert main(["--papers", "004", "--json"]) == 0
    made = json.loads(capsys.readouterr().out)
    assert "Table III" in results.page([made])
    assert all(tuple(table["columns"]) == COLUMNS for table in made["tables"])
    with pytest.raises(SystemExit) as refused:
        main(["--papers", "007"])
    assert refused.value.code == 2


@pytest.mark.slow
@pytest.mark.parametrize("paper", ["002", "003"])
def test_a_quick_run_has_rows_of_every_paper(
    paper: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--papers", paper, "--quick", "--json"]) == 0
    tables = json.loads(capsys.readouterr().out)["tables"]
    assert all(table["rows"] for table in tables)
    kinds_of_rows = {row[3].partition(" because")[0] for table in tables for row in table["rows"]}
    assert kinds_of_rows <= {"reproduced", "better", "differs", "not possible"}
    assert "better" in kinds_of_rows or "reproduced" in kinds_of_rows
