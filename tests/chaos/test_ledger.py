"""What the chaos benchmark counts: it would tell of a frame that is lost, doubled or wrong."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.chaos.cases import CASES
from benchmarks.chaos.ledger import Ledger
from benchmarks.chaos.proxy import Harm

EXPECTED = [{"y": np.full(3, float(value), np.float32)} for value in (1, 2, 3)]


def taken(*frames: int) -> Ledger:
    ledger = Ledger(EXPECTED)
    for place, frame in enumerate(frames):
        ledger.take(frame, EXPECTED[frame % 3], now_s=place * 1.0)
    return ledger


def test_a_stream_without_faults_is_whole() -> None:
    ledger = taken(*range(7))
    assert (ledger.lost(7), ledger.doubled, ledger.wrong, ledger.out_of_order) == (0, 0, 0, 0)


def test_a_lost_frame_is_counted() -> None:
    assert taken(0, 1, 3).lost(5) == 2


def test_a_doubled_frame_is_counted() -> None:
    ledger = taken(0, 1, 1, 2)
    assert ledger.doubled == 1
    assert ledger.results == 3


def test_results_in_another_order_are_counted() -> None:
    assert taken(0, 2, 1).out_of_order == 2


@pytest.mark.parametrize(
    "outputs",
    [
        {"y": EXPECTED[1]["y"]},
        {"y": np.array([1.0, np.nan, 1.0], np.float32)},
        {"y": np.ones(3, np.float64)},
        {"y": np.ones(4, np.float32)},
        {"z": np.ones(3, np.float32)},
        {},
    ],
)
def test_a_wrong_result_is_counted(outputs: dict[str, np.ndarray]) -> None:
    ledger = Ledger(EXPECTED)
    ledger.take(0, outputs, 0.0)
    assert ledger.wrong == 1


def test_the_longest_pause_is_that_since_the_fault() -> None:
    ledger = Ledger(EXPECTED)
    for frame, time_s in enumerate((0.0, 5.0, 5.1, 7.1, 7.2)):
        ledger.take(frame, EXPECTED[frame % 3], time_s)
    assert ledger.longest_pause_s(since_s=5.05) == pytest.approx(2.0)


@pytest.mark.parametrize(("kind", "size"), [("flip", 100), ("drop", 97), ("add", 105)])
def test_the_proxy_harms_only_once_it_is_switched_on(kind: str, size: int) -> None:
    harm, piece = Harm(kind, seed=1), bytes(100)
    assert harm(piece) == piece
    harm.on = True
    changed = harm(piece)
    assert changed is not None
    assert (len(changed), changed != piece) == (size, True)


def test_every_case_has_a_unique_name() -> None:
    names = [case.name for case in CASES]
    assert len(set(names)) == len(names)
