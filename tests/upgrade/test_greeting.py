"""While a board is upgraded, its agents are asked now and then, and left alone in between."""

from __future__ import annotations

import math
import time
from itertools import pairwise

from launcher.config.access import Access
from launcher.upgrade import greeting
from launcher.upgrade.greeting import AGAIN_S, Health, ask, wait_until_healthy
from tests.nodes.doctor.examined import agent

HERE = "tcp://127.0.0.1:0"
PATIENCE_S = 2.5


def test_an_agent_that_a_run_is_to_take_again_is_left_to_it(tmp_path, monkeypatch):
    """Else nobody else ever gets its session."""
    asked_s: list[float] = []

    def noted(*given: object) -> Health:
        asked_s.append(time.monotonic())
        return ask(*given)

    monkeypatch.setattr(greeting, "ask", noted)
    with agent("--listen", HERE, "--cache", tmp_path) as address:
        fault = wait_until_healthy("a", address, Access(), "", True, PATIENCE_S)
    assert "did not take it again within 2.5 s" in fault
    assert 2 <= len(asked_s) <= 1 + math.ceil(PATIENCE_S / AGAIN_S)
    between_s = [b - a for a, b in pairwise(asked_s)]
    assert min(between_s) >= AGAIN_S
