"""Measures what each of many agents costs the launcher and itself before the first frame.

All agents are started once. A chain of as many layers is distributed over the first ten of them,
the first thirty, then all. The first deployment uploads and prepares subnets; the measured ones
follow it, and only the control plane works in them: greeting, queries for blobs, deploying,
rehearsing, starting, stopping.
"""

from __future__ import annotations

import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.limits.chain import Chain, Frames, made_chain, started
from benchmarks.processes import cpu_s, pss_bytes, rss_bytes
from benchmarks.report import Figure, Table, report
from launcher.run.processes import LocalAgents
from launcher.run.runtime import Node

ELEMENTS = 256
FRAMES = 20
ASKED_LINEAR = 1.5
"""How much more one agent of the most may cost than one of the fewest."""


@dataclass(frozen=True)
class Deployed:
    """One run on `agents`: CPU seconds per agent of the launcher and of the agents, from the first
    greeting to the last goodbye; seconds until frames could stream; bytes per agent."""

    agents: int
    launcher_s: float
    agent_s: float
    ready_s: float
    rss_bytes: float
    pss_bytes: float


def measure(counts: tuple[int, ...], repetitions: int) -> dict[str, Any]:
    """The report (`benchmarks.report`)."""
    nodes = tuple(Node(f"n{number}") for number in range(max(counts)))
    found: dict[int, list[Deployed]] = {}
    with (
        tempfile.TemporaryDirectory(prefix="many-") as directory,
        started(nodes, Path(directory), "ipc") as agents,
    ):
        for count in counts:
            with made_chain(ELEMENTS, count, count) as chain:
                _deploy(chain, agents, count)
                found[count] = [_deploy(chain, agents, count) for _ in range(repetitions)]
    rows = tuple(_row(count, found[count]) for count in counts)
    fewest, most = min(counts), max(counts)
    every = {n: [one.launcher_s * 1e3 for one in found[n]] for n in counts}
    ratio = median(every[most]) / median(every[fewest])
    held = median(one.pss_bytes for one in found[most]) * most / 1e9
    figures = [
        *(Figure.of(f"launcher's CPU per agent, {n} agents", every[n], "ms", digits=2)
          for n in counts),
        Figure(f"the same, {most} agents ÷ {fewest}", round(ratio, 2), at_most=ASKED_LINEAR),
        Figure(f"resident memory of {most} agents, shared pages once", round(held, 2), "GB"),
    ]  # fmt: skip
    columns = (
        "agents", "launcher's CPU each, ms", "agent's own CPU, ms", "ready after, s",
        "resident each, MB", "of that its part of shared pages, MB",
    )  # fmt: skip
    return report(
        "many_agents",
        "Many agents on one machine",
        figures,
        settings={"repetitions": repetitions, "frames": FRAMES, "transport": "ipc"},
        notes=[
            "From the first greeting to the last goodbye. Linear: an agent costs the launcher as "
            "much among many as among few."
        ],
        tables=[Table("One deployment of subnets that are there", columns, rows)],
        data={"runs": [asdict(one) for count in counts for one in found[count]]},
    )


def _row(count: int, runs: list[Deployed]) -> tuple[str, ...]:
    return (
        str(count),
        f"{median(one.launcher_s for one in runs) * 1e3:.2f}",
        f"{median(one.agent_s for one in runs) * 1e3:.1f}",
        f"{median(one.ready_s for one in runs):.2f}",
        f"{median(one.rss_bytes for one in runs) / 1e6:.1f}",
        f"{median(one.pss_bytes for one in runs) / 1e6:.1f}",
    )


def _deploy(chain: Chain, agents: LocalAgents, count: int) -> Deployed:
    pids = [agents[node.name].pid for node in chain.nodes]
    before_s, began_s = sum(map(cpu_s, pids)), time.process_time()
    resident: list[int] = []
    shares: list[int] = []

    def last(number: int, _: object) -> None:
        if number == FRAMES - 1:
            resident.extend(map(rss_bytes, pids))
            shares.extend(map(pss_bytes, pids))

    result = chain.stream(agents, Frames(chain, FRAMES), last)
    return Deployed(
        agents=count,
        launcher_s=(time.process_time() - began_s) / count,
        agent_s=(sum(map(cpu_s, pids)) - before_s) / count,
        ready_s=result.sent_s[0],
        rss_bytes=sum(resident) / count,
        pss_bytes=sum(shares) / count,
    )
