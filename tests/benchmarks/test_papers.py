"""`python -m benchmarks.papers`: verdicts follow from numbers, and what was reproduced stays so."""

from __future__ import annotations

import json
from pathlib import Path
from typing import get_args

import pytest

from benchmarks import results
from benchmarks.networks import convolutions
from benchmarks.papers import batches, exact, segments, stages, vertical
from benchmarks.papers.__main__ import COLUMNS, main
from benchmarks.papers.rows import (
    COMPUTED,
    FITTED,
    RECOMPUTED,
    Row,
    Section,
    Source,
    Values,
    compared,
    impossible,
)
from benchmarks.papers.sub_batches import measure
from benchmarks.table3.paper import PAPER


def values(*numbers: float) -> Values:
    return Values.of(numbers, " ".join(["{}"] * len(numbers)))


@pytest.mark.parametrize(
    ("theirs", "ours", "better", "kind"),
    [
        ((4.0, 9.0), (4.1, 9.0), None, "computed here"),
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
        COMPUTED,
        within=[0.1, 0.1],
        better=better,  # type: ignore[arg-type]
        because="it is so",
    )
    assert row.kind == kind
    assert row.verdict == ("differs because it is so" if kind == "differs" else kind)


def test_better_needs_a_strategy_at_the_head_of_the_table() -> None:
    row = Row("x", "7", "8", "better")
    assert Section("paper", "table", (row,), "vertical").head == "table, by vertical"
    with pytest.raises(ValueError, match="'x' is better by a strategy without a name"):
        Section("paper", "table", (row,))


def test_a_figure_that_cannot_be_compared_gives_its_reason() -> None:
    assert impossible("x", "7", "it is a curve").verdict == "not possible because it is a curve"


def kinds(section: Section) -> set[str]:
    return {row.kind for row in section.rows}


def by_title(found: list[Section], start: str) -> Section:
    return next(section for section in found if section.title.startswith(start))


@pytest.mark.slow
@pytest.mark.further
def test_the_compilers_rule_reproduces_tables_2_4_and_6_and_the_first_drop_of_figure_4() -> None:
    found = list(segments.sections(quick=True))
    for title, kind in (
        ("Table 2", FITTED),
        ("Table 4", COMPUTED),
        ("Table 6", COMPUTED),
        ("Figure 4", COMPUTED),
    ):
        assert kinds(by_title(found, title)) == {kind}, title


def test_the_ratios_and_the_re_balancing_of_coin_are_reproduced() -> None:
    examples, table = batches.sections(quick=True)
    assert kinds(examples) == {RECOMPUTED}
    assert {row.what for row in table.rows if row.kind == RECOMPUTED} == {
        "MobileNet: CcT's ratio",
        "mean of the table's speed-ups",
    }


def test_sub_batches_are_computed_by_two_processes(tmp_path: Path) -> None:
    """What is measured differs from run to run; what is dealt out adds up."""
    network = convolutions(tmp_path / "net.onnx", layers=3, filters=16, side=48)
    found = measure(str(network), largest=4, repetitions=1)
    assert sum(found.shares) == 12
    assert found.error >= 0
    assert min(found.coin_s, found.cct_s, found.tight_s, found.alone_s) > 0
    table = list(batches.measured({"SqueezeNet": found, "MobileNet": found}))
    assert [row.what.partition(":")[0] for row in table[1:3]] == ["SqueezeNet", "MobileNet"]


@pytest.mark.parametrize("name", ["EfficientNetLiteB0", "EfficientNetLiteB4", "InceptionV4"])
def test_exported_networks_have_the_parameters_and_operations_of_table_1(name: str) -> None:
    assert segments.table_1(name, segments.network_of(name)).kind == COMPUTED


def test_the_nine_cuts_of_figure_3_are_where_the_sizes_of_table_2_say() -> None:
    cuts = [*exact.nine_cuts()]
    assert [row.kind for row in cuts] == [COMPUTED] * 9 + ["differs"]


@pytest.mark.further
def test_two_stages_reach_the_rates_of_table_5_as_random_times_of_layers_do() -> None:
    found = list(stages.sections())
    table = by_title(found, "Table 5")
    assert kinds(table) == {RECOMPUTED}
    for row, case in zip(table.rows, stages.TABLE_5, strict=True):
        assert abs(float(row.null.split()[0]) / case.pipeline - 1) <= stages.RATE
    assert by_title(found, "Algorithm 2").rows[1].kind == RECOMPUTED


def test_algorithm_2_walks_on_as_long_as_the_slowest_stage_gets_faster() -> None:
    """The published run: from 23 it tries 24 to 27, and 26 is the best."""
    best, tried = stages.dynamic_cut(23, 31, lambda cut: abs(cut - 26) + 1.0)
    assert (best, tried) == (26, [23, 24, 25, 26, 27])


def test_algorithm_2_turns_round_if_the_first_step_is_worse() -> None:
    best, tried = stages.dynamic_cut(5, 9, lambda cut: abs(cut - 3) + 1.0)
    assert (best, tried) == (3, [5, 6, 4, 3, 2])


def test_a_filter_makes_algorithm_2_see_less_of_a_change_in_one_run() -> None:
    """Cut 3 was best, cut 7 is now; with a small α the old times still count most."""

    def before(cut: int) -> float:
        return abs(cut - 3) + 1.0

    def now(cut: int) -> float:
        return abs(cut - 7) + 1.0

    assert stages.dynamic_cut(3, 9, now, 1.0, before)[0] == 7
    assert stages.dynamic_cut(3, 9, now, 0.1, before)[0] == 3


def test_measured_columns_are_those_of_the_strategy_at_the_tables_head() -> None:
    cells = vertical.stored_cells()
    assert cells
    for (network, count, how), cell in cells.items():
        if network in PAPER:
            row = vertical.measured(network, count, how, cells)
            speedup = cell["efficiency"]["median"] * count
            assert row.ours.startswith(f"{cell['eq2_saving_percent']:.1f} %, {speedup:.2f}×")
            assert cell["file"] in row.ours
            assert row.kind != "better"
    row = vertical.measured("resnet50", 4, "no strategy", cells)
    assert row.kind == "not possible"


def test_a_null_model_saves_as_much_as_the_papers_search_where_no_layer_is_large() -> None:
    """A saving alone is not a merit: longest-first has it without any search."""
    assert "longest-first 47.5 %" in vertical.null_models("vgg16", 2)


def test_the_command_prints_tables_and_one_object(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--papers", "001,004", "--quick"]) == 0
    text = capsys.readouterr().out
    assert "Table III, CoIn against CcT" in text
    assert "not possible because" in text
    assert main(["--papers", "004", "--quick", "--json"]) == 0
    made = json.loads(capsys.readouterr().out)
    made["command"] = "python -m benchmarks.papers"  # workers of pytest are started otherwise
    assert "Table III" in results.page({"papers": made})
    assert all(tuple(table["columns"]) == COLUMNS for table in made["tables"])
    with pytest.raises(SystemExit) as refused:
        main(["--papers", "007"])
    assert refused.value.code == 2


@pytest.mark.slow
@pytest.mark.further
@pytest.mark.parametrize("paper", ["002", "003"])
def test_a_quick_run_has_rows_of_every_paper(
    paper: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--papers", paper, "--quick", "--json"]) == 0
    tables = json.loads(capsys.readouterr().out)["tables"]
    assert all(table["rows"] for table in tables)
    verdicts = {row[4].partition(" because")[0] for table in tables for row in table["rows"]}
    assert verdicts <= {*get_args(Source), "better", "differs", "not possible"}
    assert verdicts & {*get_args(Source)}
