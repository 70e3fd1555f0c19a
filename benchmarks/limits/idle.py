"""Measures the CPU time of an idle agent.

It measures agents without any connection, and agents that have loaded a network, are connected with
each other and wait for a frame that does not arrive.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from benchmarks.limits.chain import Chain, Frames, agents_of, made_chain
from benchmarks.processes import computed_s
from benchmarks.report import Figure, report
from launcher.run.processes import LocalAgents
from nodes.protocol.payload import Array

ASKED_PERCENT = 1.0
AGENTS, ELEMENTS, ROUNDS = 3, 256, 3
SETTLED_S, WATCH_S = 1.0, 8.0


class Held(Frames):
    """Two frames; before the second is handed out, the agents are looked at."""

    def __init__(self, chain: Chain, agents: LocalAgents) -> None:
        super().__init__(chain, 2)
        self._agents = agents
        self.percent = 0.0

    def __getitem__(self, index: int) -> Mapping[str, Array]:
        if index == 1:
            self.percent = busiest_percent(self._agents)
        return super().__getitem__(index)


def measure() -> dict[str, Any]:
    """The report (`benchmarks.report`)."""
    free, waiting = [], []
    with made_chain(ELEMENTS, AGENTS) as chain, agents_of(chain) as running:
        chain.stream(running, Frames(chain, 10))
        for _ in range(ROUNDS):
            free.append(busiest_percent(running))
            held = Held(chain, running)
            chain.stream(running, held)
            waiting.append(held.percent)
    what = {"nothing deployed": free, "deployed and connected": waiting}
    return report(
        "idle",
        "Idle agents",
        [
            Figure.of(f"CPU of an idle agent, {how}", found, "% of a core", at_most=ASKED_PERCENT)
            for how, found in what.items()
        ],
        settings={"agents": AGENTS, "seconds": WATCH_S, "rounds": ROUNDS},
        notes=["Of the busiest agent."],
    )


def busiest_percent(agents: LocalAgents) -> float:
    """Per cent of a core that the busiest agent uses within `WATCH_S` seconds."""
    time.sleep(SETTLED_S)
    pids = [agent.pid for agent in agents.values()]
    before = list(map(computed_s, pids))
    time.sleep(WATCH_S)
    spent = (computed_s(pid) - then for pid, then in zip(pids, before, strict=True))
    return max(spent) / WATCH_S * 100
