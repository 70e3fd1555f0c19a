"""Under a limit of memory, the board that is worst in any run counts."""

from __future__ import annotations

import pytest

from benchmarks.memory_limit import figures


@pytest.mark.parametrize(("codes", "holds"), [((-9, -9), True), ((-9, 0), False)])
def test_the_worst_board_of_any_run_counts(codes: tuple[int, int], holds: bool) -> None:
    boards = {
        "held_bytes": {"node1": 50, "node2": 80},
        "of_prediction": {"node1": 0.9, "node2": 0.8},
        "oom_kills": 0,
        "difference": 0.0,
    }
    rounds = [{**boards, "forced_exit_code": code} for code in codes]
    found = {"limit_bytes": 100, "whole_bytes": 250, "refusal": "needs more", "rounds": rounds}
    told = {one.what: one for one in figures(found)}
    held = told["most that a board held and no file backs ÷ its limit"]
    assert (held.measured, held.low, held.holds) == (0.8, 0.5, True)
    assert told["ONNX Runtime, made to load the whole on one board: killed"].holds is holds
