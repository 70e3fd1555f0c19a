"""Measures what each of many agents costs the launcher and itself before the first frame.

All agents are started once. A chain of as many layers is distributed over the first ten of them,
the first thirty, then all. The first deployment uploads and prepares subnets; the measured ones
follow it, and only the control plane works in them: greeting, queries for blobs, deploying,
rehearsing, starting, stopping.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.limits.chain import Chain, Frames, made_chain, started
from benchmarks.processes import cpu_s, pss_bytes, rss_bytes
from benchmarks.report import Figure, Table, report
from launcher.run.processes import LocalAgents
from launcher.run.runtime import Node

COUNTS, REPETITIONS = (10, 30, 100), 3
ELEMENTS, FRAMES = 256, 20
ASKED_LINEAR = 1.5
"""How much more one agent of the most may cost than one of the fewest."""


@dataclass(frozen=True)
class Deployed:
    """One run: CPU seconds per agent of the launcher and of the agents, from the first greeting to
    the last goodbye; seconds until frames could stream; bytes per agent."""

    launcher_s: float
    agent_s: float
    ready_s: float
    rss_bytes: float
    pss_bytes: float


COLUMNS: dict[str, tuple[str, Callable[[Deployed], float]]] = {
    "launcher's CPU each, ms": ("{:.2f}", lambda one: one.launcher_s * 1e3),
    "agent's own CPU, ms": ("{:.1f}", lambda one: one.agent_s * 1e3),
    "ready after, s": ("{:.2f}", lambda one: one.ready_s),
    "resident each, MB": ("{:.1f}", lambda one: one.rss_bytes / 1e6),
    "of that its part of shared pages, MB": ("{:.1f}", lambda one: one.pss_bytes / 1e6),
}


def measure() -> dict[str, Any]:
    """The report (`benchmarks.report`)."""
    fewest, most = min(COUNTS), max(COUNTS)
    nodes = tuple(Node(f"n{number}") for number in range(most))
    found: dict[int, list[Deployed]] = {}
    with (
        tempfile.TemporaryDirectory(prefix="many-") as directory,
        started(nodes, Path(directory), "ipc") as agents,
    ):
        for count in COUNTS:
            with made_chain(ELEMENTS, count) as chain:
                _deploy(chain, agents)
                found[count] = [_deploy(chain, agents) for _ in range(REPETITIONS)]
    every = {n: [one.launcher_s * 1e3 for one in found[n]] for n in COUNTS}
    ratio = median(every[most]) / median(every[fewest])
    rows = tuple(
        (str(n), *(form.format(median(map(read, runs))) for form, read in COLUMNS.values()))
        for n, runs in found.items()
    )
    figures = [
        *(Figure.of(f"launcher's CPU per agent, {n} agents", every[n], "ms", digits=2)
          for n in COUNTS),
        Figure(f"the same, {most} agents ÷ {fewest}", round(ratio, 2), at_most=ASKED_LINEAR),
    ]  # fmt: skip
    return report(
        "many_agents",
        "Many agents on one machine",
        figures,
        settings={"repetitions": REPETITIONS, "frames": FRAMES, "transport": "ipc"},
        notes=[
            "From the first greeting to the last goodbye. Linear: an agent costs the launcher as "
            "much among many as among few."
        ],
        tables=[Table("One deployment of subnets that are there", ("agents", *COLUMNS), rows)],
        data={"runs": {n: [asdict(one) for one in runs] for n, runs in found.items()}},
    )


def _deploy(chain: Chain, agents: LocalAgents) -> Deployed:
    count = len(chain.nodes)
    pids = [agents[node.name].pid for node in chain.nodes]
    before_s, began_s = sum(map(cpu_s, pids)), time.process_time()
    held: list[tuple[int, int]] = []

    def last(number: int, _: object) -> None:
        if number == FRAMES - 1:
            held.extend((rss_bytes(pid), pss_bytes(pid)) for pid in pids)

    result = chain.stream(agents, Frames(chain, FRAMES), last)
    return Deployed(
        launcher_s=(time.process_time() - began_s) / count,
        agent_s=(sum(map(cpu_s, pids)) - before_s) / count,
        ready_s=result.sent_s[0],
        rss_bytes=sum(rss for rss, _ in held) / count,
        pss_bytes=sum(pss for _, pss in held) / count,
    )
