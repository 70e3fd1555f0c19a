"""Table 3 in the laboratory: what its log keeps, in which order cells come, what turns say."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, replace
from itertools import takewhile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.lab.turns import steady_rate
from benchmarks.results import FOLDER
from benchmarks.table3.log import Log
from benchmarks.table3.order import FEWEST_RESULTS, cells_of, groups_of, guess_s, results_of
from benchmarks.table3.paper import PAPER, VGG16, VGG16_LARGEST_LAYER_PERCENT
from benchmarks.table3.summary import summaries
from benchmarks.table3.table import both_columns, figures, tables
from benchmarks.table3.turn import AgentMemory, Boards, Cell, Planned, Refused, Turn
from benchmarks.turn_log import origin
from cnn.model import read
from launcher.errors import BadInputError
from partition.pricing.paper_equations import layer_beta_bytes

BOARDS = Boards("accelerator", 0.12, 125e6)
CELL = Cell("resnet50", 2, "auto", "both")
MADE_BY = {"code": "12ab", "processor": "this one"}
MB = 1_000_000


def turn(cell: Cell = CELL, *, rate: float = 1.9, peak_mb: int = 100, **changes: object) -> Turn:
    """A turn beside replicas of 1 frame/s each, on agents that hold 40 MB when idle."""
    memory = AgentMemory(60 * MB, 110 * MB, peak_mb * MB, 40 * MB, 90 * MB, 50 * MB)
    made = Turn(
        cell=cell,
        boards=BOARDS,
        seconds=10.0,
        planned=Planned("two segments", 2, 4.0, 1.98, 0.5, 3 * MB),
        rate=rate,
        replicas=(0.9 * cell.devices, 1.1 * cell.devices),
        latency_s=1.5,
        foreseen_rate=1.95,
        foreseen_latency_s=1.4,
        sent_bytes_per_frame=3.1 * MB,
        busiest_slice=0.98,
        other_s_per_frame=0.01,
        difference=1e-7,
        others=0.1,
        machine_use=0.7,
        memory={"node1": memory, "node2": replace(memory, peak=60 * MB)},
    )
    return replace(made, **changes)  # type: ignore[arg-type]


def alone(peak_mb: int) -> Turn:
    return turn(Cell("resnet50", 1, "sequential", "both"), rate=0.99, peak_mb=peak_mb)


def test_a_log_gives_back_what_was_added(tmp_path: Path) -> None:
    path = tmp_path / "new" / "log.jsonl"
    refused = Refused(replace(CELL, strategy="tiles"), BOARDS, "no prefix can be tiled")
    log = Log(path, MADE_BY, resume=False)
    log.add(turn())
    log.add(refused)
    again = Log(path, MADE_BY, resume=True)
    assert again.of(BOARDS) == [turn()]
    assert again.refusals(BOARDS) == [refused]


def test_turns_on_other_boards_do_not_count(tmp_path: Path) -> None:
    log = Log(tmp_path / "log.jsonl", MADE_BY, resume=False)
    log.add(turn())
    slower = replace(BOARDS, cpu=0.1)
    assert log.of(slower) == []
    assert log.missing([CELL], slower, 1) == [CELL]


def test_what_was_interrupted_goes_on_with_the_turns_that_are_missing(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    other, tiles = replace(CELL, strategy="sequential"), replace(CELL, strategy="tiles")
    log = Log(path, MADE_BY, resume=False)
    log.add(turn())
    log.add(Refused(tiles, BOARDS, "no"))
    with path.open("a") as file:
        file.write('{"cell": {"network": "resn')
    log = Log(path, MADE_BY, resume=True)
    assert Counter(log.missing([CELL, other, tiles], BOARDS, 3)) == {CELL: 2, other: 3}
    log.add(turn())
    assert len(Log(path, MADE_BY, resume=True).turns) == 3


def test_a_log_is_not_overwritten_unasked(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    Log(path, MADE_BY, resume=False).add(turn())
    with pytest.raises(BadInputError, match="--resume"):
        Log(path, MADE_BY, resume=False)


@pytest.mark.parametrize("line", ["{}", "7", "no JSON", json.dumps({"cell": {}, "boards": {}})])
def test_a_log_of_something_else_is_refused_with_its_line(tmp_path: Path, line: str) -> None:
    path = tmp_path / "log.jsonl"
    Log(path, MADE_BY, resume=False).add(turn())
    path.write_text(path.read_text() + line + "\n")
    with pytest.raises(BadInputError, match="line 3: this is not a turn"):
        Log(path, MADE_BY, resume=True)


@pytest.mark.parametrize("text", ["", "7\n", json.dumps(turn().as_json()) + "\n"])
def test_a_log_that_does_not_say_who_made_it_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text(text)
    with pytest.raises(BadInputError, match="does not begin as the log of a table"):
        Log(path, MADE_BY, resume=True)


def test_turns_of_other_code_or_another_machine_are_not_mixed_with_those_of_this(
    tmp_path: Path,
) -> None:
    path = tmp_path / "log.jsonl"
    Log(path, MADE_BY, resume=False).add(turn())
    with pytest.raises(BadInputError, match="measured with another code"):
        Log(path, {**MADE_BY, "code": "34cd"}, resume=True)
    assert set(origin()) >= {"code", "processor", "onnxruntime"}
    assert origin() == origin()


def test_one_board_is_always_measured_and_objectives_follow_a_colon() -> None:
    cells = cells_of(["resnet50"], [1, 2], ["auto", "auto:memory"])
    assert [(cell.devices, cell.how) for cell in cells] == [
        (1, "sequential"),
        (2, "auto"),
        (2, "auto:memory"),
    ]


def test_groups_hold_every_turn_once_in_rounds_and_in_another_order_for_another_seed() -> None:
    cells = cells_of(["resnet50", "vgg16"], range(2, 11), ["auto", "sequential", "hybrid"])
    missing = [cell for cell in cells for _ in range(3)]
    groups = groups_of(missing, seed=1)
    assert Counter(cell for group in groups for cell in group) == Counter(missing)
    for group in groups:
        assert len({(cell.network, cell.devices) for cell in group}) == 1
        kinds = len(set(group))
        for start in range(0, len(group), kinds):
            assert len(set(group[start : start + kinds])) == kinds, "all once before any again"
    assert groups == groups_of(missing, seed=1)
    assert groups != groups_of(missing, seed=2)
    assert guess_s(groups, BOARDS, 12.0) > guess_s(groups, BOARDS, 6.0) > len(missing) * 12


def test_a_pipelines_rate_leaves_out_filling_and_draining() -> None:
    """A result every second from the third on; the last frame departs at 9.5, what follows is
    drained twice as fast."""
    received = [5.0, 5.5, 6.0, 7.0, 8.0, 9.0, 9.6, 10.1, 10.6]
    sent = [0.0, 1.0, 2.0, 3.0, 4.0, 6.5, 7.5, 8.5, 9.5]
    assert steady_rate(sent, received, skipped=2) == pytest.approx(1.0)


def test_a_pipeline_deeper_than_its_run_is_measured_to_its_end() -> None:
    assert steady_rate([0.0] * 5, [1.0, 2.0, 3.0, 4.0, 5.0], skipped=1) == pytest.approx(1.0)


@given(st.integers(2, 10), st.integers(4, 12), st.integers(0, 12), st.floats(0.0, 0.05))
def test_results_that_come_in_bursts_count_in_whole_cycles(cycle, rounds, skipped, apart_s):
    """Copies that began together end together: a burst more or less would be a wrong rate."""
    count = cycle * rounds
    received = [k // cycle + 1.0 + k % cycle * apart_s for k in range(count)]
    sent = [max(0.0, k // cycle - 2.0) for k in range(count)]
    skipped = min(skipped, count - 2 * cycle)
    assert steady_rate(sent, received, skipped, cycle) == pytest.approx(cycle)


def test_medians_and_spread_of_turns() -> None:
    (found,) = summaries([turn(rate=1.8), turn(rate=1.9), turn(rate=1.7)])
    efficiency = found.efficiency
    assert (efficiency.median, efficiency.low, efficiency.high) == pytest.approx((0.9, 0.85, 0.95))
    assert found.speedup == pytest.approx(1.8)
    assert found.saving_percent is None, "nothing to compare with"


def test_memory_saved_is_that_of_the_fullest_board_above_idle_against_one_board() -> None:
    found = {one.cell.devices: one for one in summaries([turn(peak_mb=90), alone(peak_mb=140)])}
    saving = found[2].saving_percent
    assert saving is not None
    assert saving.median == pytest.approx(50.0)
    assert found[2].of_prediction.median == pytest.approx(90 / 110)
    assert found[2].eq2_saving_percent == pytest.approx(0.0)


def test_figures_say_what_was_asked_of_both_columns_and_whether_it_holds() -> None:
    four = Cell("resnet50", 4, "auto", "both")
    found = summaries([turn(four, rate=3.6), alone(peak_mb=220)])
    asked = {one.what: one for one in figures(found, "accelerator")}
    efficiency = asked["resnet50, 4 boards, auto: efficiency"]
    assert (efficiency.at_least, efficiency.holds) == (0.95, False)
    saved = asked["resnet50, 4 boards, auto: memory saved, measured"]
    assert (saved.measured, saved.at_least, saved.holds) == (66.6667, 66.0, True)
    assert asked["resnet50, 4 boards, auto: fullest agent ÷ prediction"].holds is True
    assert asked["resnet50, 1 board, sequential: fullest agent ÷ prediction"].holds is False
    slower = {one.what: one for one in figures(found, "cpu")}
    assert slower["resnet50, 4 boards, auto: efficiency"].at_least == 0.92


def test_of_the_period_alone_more_is_asked_of_the_efficiency_and_nothing_of_memory() -> None:
    period = Cell("resnet50", 2, "auto", "period")
    found = summaries([turn(period, rate=1.8), alone(peak_mb=160)])
    asked = {one.what: one for one in figures(found, "accelerator")}
    assert asked["resnet50, 2 boards, auto:period: efficiency"].at_least == 0.95
    assert "resnet50, 2 boards, auto:period: memory saved, measured" not in asked


def test_of_hybrid_on_the_other_networks_at_least_085_is_asked() -> None:
    cell = Cell("vgg16", 10, "hybrid", "both")
    (found,) = summaries([turn(cell, rate=8.4)])
    (asked,) = figures([found], "accelerator")
    assert (asked.at_least, asked.holds) == (0.85, False)
    assert figures([found], "cpu") == []


def test_the_table_shows_the_paper_beside_the_measurement() -> None:
    found = summaries([turn(), alone(peak_mb=140)])
    refused = [Refused(replace(CELL, strategy="tiles"), BOARDS, "no prefix can be tiled")]
    both, not_measured = tables(found, refused)
    assert both.rows == (
        ("resnet50", "2", "auto", "1.90 (1.95)", "0.950", "1.90× (1.9×)", "40.0 %", "0.0 (48.1) %"),
    )
    assert not_measured.rows[0][-1] == "no prefix can be tiled"


@pytest.mark.parametrize(
    ("most", "counts"),
    [(9, range(2, 11)), (8, (2, 4, 6, 8, 10)), (4, (4, 10)), (1, (10,))],
)
def test_a_short_table_has_fewer_numbers_of_boards(most: int, counts: Sequence[int]) -> None:
    cells = [
        asdict(one) for one in summaries([turn(replace(CELL, devices=n)) for n in range(2, 11)])
    ]
    shown = both_columns(cells, most).rows
    assert [row[1] for row in shown] == list(map(str, counts))


def test_stored_tables_have_what_their_commands_measure() -> None:
    """A strategy without an objective has the default one, which may have changed since."""
    for path in FOLDER.glob("table3*.json"):
        stored = json.loads(path.read_text("utf-8"))
        words = stored["command"].split()
        given = words[words.index("--strategies") + 1 :]
        strategies = list(takewhile(lambda word: not word.startswith("--"), given))
        for cell in stored["data"]["cells"]:
            found = Cell(**cell["cell"])
            assert found.devices == 1 or found.how in strategies, path.name


def test_a_slow_pipeline_has_turns_no_longer_than_the_replicas() -> None:
    assert results_of(4.0, 12.0, speedup=10.0, boards=10) == 48
    assert results_of(4.0, 12.0, speedup=2.5, boards=10) == 12
    assert results_of(4.0, 12.0, speedup=12.0, boards=10) == 48
    assert results_of(0.4, 12.0, speedup=0.1, boards=10) == FEWEST_RESULTS


def test_one_layer_of_vgg16_has_more_of_eq_2_than_the_paper_leaves_a_device() -> None:
    beta_bytes = layer_beta_bytes(read(str(VGG16)).network)
    largest_percent = 100 * beta_bytes.max() / beta_bytes.sum()
    assert largest_percent == pytest.approx(VGG16_LARGEST_LAYER_PERCENT, abs=0.05)
    assert 100 - largest_percent < PAPER["vgg16"][10].saving_percent


def test_boards_of_no_given_size_share_half_a_core() -> None:
    shared = Boards("accelerator", None, 125e6)
    assert [shared.cores(count) for count in (1, 4, 10)] == [0.5, 0.125, 0.05]
    assert BOARDS.cores(10) == 0.12
