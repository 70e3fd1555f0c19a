"""Measures the CPU time and the wake-ups of an idle agent.

It measures agents without any connection, and agents that have loaded a network, are connected with
each other and wait for a frame that does not arrive.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from benchmarks.limits.chain import Chain, Frames, agents_of, made_chain
from benchmarks.processes import Ran, threads
from benchmarks.report import Figure, report
from launcher.run.processes import LocalAgents
from launcher.run.runtime import Array

ASKED_PERCENT = 1.0
ELEMENTS = 256
SETTLED_S = 1.0


@dataclass(frozen=True)
class Idle:
    """Of the busiest agent: per cent of a core, and wake-ups per second of all its threads."""

    percent: float
    wakes_per_s: float


class Held(Frames):
    """Two frames; before the second is handed out, the agents are looked at for `watch_s`."""

    def __init__(self, chain: Chain, agents: LocalAgents, watch_s: float) -> None:
        super().__init__(chain, 2)
        self._agents = agents
        self._watch_s = watch_s
        self.found: Idle | None = None

    def __getitem__(self, index: int) -> Mapping[str, Array]:
        if index == 1:
            self.found = watched(self._agents, self._watch_s)
        return super().__getitem__(index)


def measure(agents: int, watch_s: float, rounds: int) -> dict[str, Any]:
    """The report (`benchmarks.report`)."""
    free, waiting = [], []
    with made_chain(ELEMENTS, agents, agents) as chain, agents_of(chain) as running:
        chain.stream(running, Frames(chain, 10))
        for _ in range(rounds):
            free.append(watched(running, watch_s))
            held = Held(chain, running, watch_s)
            chain.stream(running, held)
            assert held.found is not None
            waiting.append(held.found)
    figures = []
    for what, found in (("nothing deployed", free), ("deployed and connected", waiting)):
        percents, wakes = [one.percent for one in found], [one.wakes_per_s for one in found]
        figures += [
            Figure.of(f"CPU of an idle agent, {what}", percents, "% of a core",
                      at_most=ASKED_PERCENT),
            Figure.of(f"wake-ups of an idle agent, {what}", wakes, "per s", digits=2),
        ]  # fmt: skip
    return report(
        "idle",
        "Idle agents",
        figures,
        settings={"agents": agents, "seconds": watch_s, "rounds": rounds},
        notes=["Of the busiest agent; wake-ups are voluntary context switches of all its threads."],
    )


def watched(agents: LocalAgents, watch_s: float) -> Idle:
    """What the busiest agent does in `watch_s` seconds."""
    time.sleep(SETTLED_S)
    before = {name: threads(agent.pid) for name, agent in agents.items()}
    time.sleep(watch_s)
    used = [_between(before[name], threads(agent.pid)) for name, agent in agents.items()]
    return Idle(
        percent=max(one.cpu_s for one in used) / watch_s * 100,
        wakes_per_s=max(one.sleeps for one in used) / watch_s,
    )


def _between(before: Mapping[str, Ran], after: Mapping[str, Ran]) -> Ran:
    """Of all threads together."""
    nothing = Ran(0.0, 0)
    return Ran(
        sum(ran.cpu_s - before.get(name, nothing).cpu_s for name, ran in after.items()),
        sum(ran.sleeps - before.get(name, nothing).sleeps for name, ran in after.items()),
    )
