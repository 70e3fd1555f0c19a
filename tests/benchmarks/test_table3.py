"""Table 3 in the laboratory: what its launches say, beside the paper."""

from __future__ import annotations

import json
from itertools import takewhile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.boards.cells import Cell as Boards
from benchmarks.boards.cells import Kind, Setting
from benchmarks.boards.rates import steady_rate
from benchmarks.boards.turn import BoardUse, Launched, Turn
from benchmarks.results import FOLDER
from benchmarks.table3.paper import NETWORKS, PAPER, VGG16_LARGEST_LAYER_PERCENT
from benchmarks.table3.table import Cell, figures, summaries
from cnn.model import read
from partition.pricing.paper_equations import layer_beta_bytes

MB = 1_000_000


def turn(
    how: str = "described:auto", count: int = 2, *, rate: float = 1.9, peak_mb: int = 100,
    network: str = "resnet50", board: str = "accelerator",
) -> Turn:  # fmt: skip
    """A launch beside replicas of 1 frame/s each, on agents that hold 40 MB when idle."""
    uses = {
        f"b{number + 1}": BoardUse(1, 0.9, 110 * MB, peak * MB, 40 * MB, 60 * MB)
        for number, peak in enumerate([peak_mb, 60][:count])
    }
    cell = Boards.equal(network, board, count, 0.5 / count)  # type: ignore[arg-type]
    launched = Launched("auto", "two segments", rate, 0.5, 1 / rate, 1 / rate, 3.0, uses, ())
    replicas = (0.9 * count, 1.1 * count)
    return Turn(cell, Kind.read(how), False, launched, replicas)


def alone(peak_mb: int) -> Turn:
    return turn("described:sequential", 1, rate=0.99, peak_mb=peak_mb)


@pytest.mark.parametrize("board", ["accelerator", "cpu"])
@pytest.mark.parametrize("count", [1, 3, 10])
def test_equal_boards_need_no_setting_of_their_own(board: str, count: int) -> None:
    cell = Boards.equal("resnet50", board, count, 0.5 / count)  # type: ignore[arg-type]
    assert cell.boards == Setting(board, (pytest.approx(0.5 / count, rel=1e-3),) * count)  # type: ignore[arg-type]


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


def test_medians_and_spread_of_launches() -> None:
    (found,) = summaries([turn(rate=1.8), turn(rate=1.9), turn(rate=1.7)])
    assert found["efficiency"] == pytest.approx({"median": 0.9, "low": 0.85, "high": 0.95})
    assert found["saving_percent"] is None, "nothing to compare with"


def test_memory_saved_is_that_of_the_fullest_board_above_idle_against_one_board() -> None:
    one, two = summaries([turn(peak_mb=90), alone(peak_mb=140)])
    assert (one["cell"]["devices"], two["cell"]["devices"]) == (1, 2)
    assert two["saving_percent"]["median"] == pytest.approx(50.0)
    assert two["of_prediction"]["median"] == pytest.approx(90 / 110)
    assert two["eq2_saving_percent"] == pytest.approx(0.0)


def test_figures_say_what_was_asked_of_both_columns_and_whether_it_holds() -> None:
    found = summaries([turn(count=4, rate=3.6), alone(peak_mb=220)])
    asked = {one.what: one for one in figures(found)}
    efficiency = asked["resnet50, 4 boards, auto: efficiency"]
    assert (efficiency.at_least, efficiency.holds) == (0.95, False)
    saved = asked["resnet50, 4 boards, auto: memory saved, measured"]
    assert (saved.measured, saved.at_least, saved.holds) == (66.6667, 66.0, True)
    assert asked["resnet50, 4 boards, auto: fullest agent ÷ prediction"].holds is True
    assert asked["resnet50, 1 board, sequential: fullest agent ÷ prediction"].holds is False
    slower = figures(summaries([turn(count=4, rate=3.6, board="cpu"), alone(peak_mb=220)]))
    assert slower[0].at_least == 0.92


def test_of_another_objective_nothing_is_asked_of_both_columns() -> None:
    found = summaries([turn("described:auto:memory", rate=1.8), alone(peak_mb=160)])
    asked = {one.what: one for one in figures(found)}
    assert "resnet50, 2 boards, auto:memory: fullest agent ÷ prediction" in asked
    assert not any("efficiency" in what or "saved" in what for what in asked)


def test_of_hybrid_on_the_other_networks_at_least_085_is_asked() -> None:
    found = summaries([turn("described:hybrid", 10, rate=8.4, network="vgg16")])
    (asked,) = figures(found)
    assert (asked.at_least, asked.holds) == (0.85, False)
    assert figures([{**found[0], "board": "cpu"}]) == []


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


@pytest.mark.further
def test_one_layer_of_vgg16_has_more_of_eq_2_than_the_paper_leaves_a_device() -> None:
    beta_bytes = layer_beta_bytes(read(NETWORKS["vgg16"]).network)
    largest_percent = 100 * beta_bytes.max() / beta_bytes.sum()
    assert largest_percent == pytest.approx(VGG16_LARGEST_LAYER_PERCENT, abs=0.05)
    assert 100 - largest_percent < PAPER["vgg16"][10].saving_percent
