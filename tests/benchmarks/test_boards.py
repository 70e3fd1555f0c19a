"""The benchmark of launches on boards: which turns its log lacks, and its figures."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.boards.cells import KNOWLEDGE, NETWORKS, SETTINGS, Cell, Kind
from benchmarks.boards.figures import figures
from benchmarks.boards.session import Extent, lacking
from benchmarks.boards.turn import BoardUse, Launched, Refused, Turn, from_json
from benchmarks.lab import cluster_file
from benchmarks.report import Figure
from benchmarks.turn_log import TurnLog
from launcher.errors import BadInputError
from tests.lab.layouts import layout

CELL = Cell("accelerators", "resnet50")
EQUAL = Cell("equal", "resnet50")
EXTENT = Extent(rounds=3, frames_per_board=8, seconds=1.0, quick=False)
MB = 1_000_000


def turn(kind: Kind, rate: float, cell: Cell = CELL, *, peak_mb: int = 100, **changes: object):
    """A launch that made `rate` frames per second, predicted exactly."""
    launched = Launched(
        strategy="auto",
        explanation="runs: seven segments",
        rate=rate,
        period_planned_s=0.5,
        period_predicted_s=1 / rate,
        period_measured_s=1 / rate,
        first_result_s=3.0,
        boards={"b1": BoardUse(2, 0.9, 110 * MB, peak_mb * MB, 40 * MB, 60 * MB)},
        said=("planned",),
    )
    return Turn(cell, kind, quick=False, launched=replace(launched, **changes))


def named(rows: list[Figure], what: str) -> Figure:
    return next(row for row in rows if row.what.endswith(what))


@given(st.sampled_from(KNOWLEDGE), st.sampled_from(("", "sequential", "runs", "auto:memory")))
def test_a_kind_is_read_as_it_is_written(knowledge, strategy):
    kind = Kind(knowledge, strategy)
    assert Kind.read(str(kind)) == kind


@pytest.mark.parametrize("text", ["", "third", "first:nothing", ":runs", "first:auto:beauty"])
def test_a_kind_that_there_is_not_is_refused(text):
    with pytest.raises(BadInputError, match="is not a kind of launch"):
        Kind.read(text)


@pytest.mark.parametrize("name", SETTINGS)
def test_every_setting_is_a_laboratory_whose_boards_launch_takes(name, tmp_path):
    setting = SETTINGS[name]
    config = setting.config(NETWORKS["resnet50"], 1e8)
    nodes = cluster_file.cluster(layout(config, tmp_path))["nodes"]
    assert len(nodes) == len(setting.cores)
    fastest = [node["name"] for node in nodes].index(setting.fastest)
    assert setting.cores[fastest] == max(setting.cores)


def test_a_turn_is_read_as_it_was_written(tmp_path: Path):
    log = TurnLog[Turn | Refused](tmp_path / "log.jsonl", {}, from_json, resume=False)
    written = [turn(Kind("first"), 3.0), Refused(CELL, Kind("alone"), True, "no room")]
    for one in written:
        log.add(one)
    again = TurnLog[Turn | Refused](tmp_path / "log.jsonl", {}, from_json, resume=True)
    assert again.turns == written
    assert json.loads((tmp_path / "log.jsonl").read_text().splitlines()[1])["launched"]


@given(
    st.lists(st.sampled_from(KNOWLEDGE), min_size=1, max_size=5, unique=True),
    st.lists(st.sampled_from(KNOWLEDGE), max_size=8),
)
def test_what_is_lacking_completes_every_kind_and_second_follows_first(wanted, there):
    kinds = [Kind(name) for name in wanted]
    log = TurnLog[Turn | Refused](Path("none"), {}, from_json, resume=False)
    log.turns += [turn(Kind(name), 1.0) for name in there]
    due = list(lacking(log, CELL, kinds, EXTENT))
    for kind in kinds:
        assert there.count(kind.knowledge) + due.count(kind) >= EXTENT.rounds
    for number, kind in enumerate(due):
        if kind == Kind("second"):
            assert due[number - 1] == Kind("first")


def test_what_was_refused_and_other_cells_are_not_measured_again():
    log = TurnLog[Turn | Refused](Path("none"), {}, from_json, resume=False)
    log.turns.append(Refused(CELL, Kind("alone"), False, "no room"))
    wanted = [Kind("alone")]
    assert not list(lacking(log, CELL, wanted, EXTENT))
    assert len(list(lacking(log, EQUAL, wanted, EXTENT))) == EXTENT.rounds


def test_ratios_are_of_launches_in_turns_and_have_their_bounds():
    turns = [turn(Kind("first"), rate) for rate in (3.0, 8.0, 6.0)]
    turns += [turn(Kind("profiled"), 10.0) for _ in range(3)]
    turns += [turn(Kind("alone"), 5.0) for _ in range(3)]
    rows = figures(turns)
    ratio = named(rows, "first ÷ profiled")
    assert (ratio.measured, ratio.low, ratio.high, ratio.holds) == (0.6, 0.3, 0.8, False)
    assert named(rows, "first ÷ alone").holds is True
    assert named(rows, "first: rate").measured == 6.0


def test_the_default_is_compared_with_the_fastest_strategy_that_knows_as_much():
    turns = [
        turn(Kind("profiled"), 9.0),
        turn(Kind("profiled", "vertical"), 8.0),
        turn(Kind("profiled", "sequential"), 10.0),
        turn(Kind("first", "sequential"), 100.0),
        turn(Kind("alone"), 100.0),
    ]
    best = named(figures(turns), "profiled: default ÷ the best single strategy")
    assert (best.measured, best.note, best.holds) == (0.9, "sequential", True)


def test_equal_boards_are_compared_with_replicas_and_with_one_board():
    whole = replace(turn(Kind("alone"), 1.0, EQUAL, peak_mb=240), replicas=(4.0, 4.0))
    first = replace(turn(Kind("first"), 3.6, EQUAL, peak_mb=100), replicas=(3.9, 4.1))
    rows = figures([whole, first])
    assert named(rows, "first: efficiency").measured == 0.9
    assert named(rows, "first: efficiency").holds is False
    assert named(rows, "first: memory saved").measured == 70.0
    assert named(rows, "first: memory saved").holds is True


def test_predictions_of_all_launches_count():
    good = turn(Kind("first"), 4.0)
    bad = turn(Kind("first"), 4.0, period_predicted_s=0.1)
    row = figures([good, good, good, bad])[-1]
    assert (row.measured, row.holds) == (75.0, False)


def test_local_agents_are_judged_by_their_first_result():
    cell = Cell("local", "resnet50")
    rows = figures([turn(Kind("first"), 4.0, cell), turn(Kind("second"), 4.0, cell)])
    first = named(rows, "to the first result, first time")
    assert (first.measured, first.at_most, first.holds) == (3.0, 8.0, True)
    assert named(rows, "second time").at_most == 4.0
