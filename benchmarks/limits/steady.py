"""Tests whether memory or latency grows over thousands of frames of a small network."""

from __future__ import annotations

from statistics import median, quantiles
from typing import Any

from benchmarks.limits.chain import Frames, agents_of, made_chain
from benchmarks.processes import rss_bytes
from benchmarks.report import Figure, report
from launcher.run.processes import LocalAgents

ELEMENTS = 1024
SAMPLES = 200
ASKED_GROWTH = 1.10
"""How much longer the last quarter of frames may take than the first."""

ASKED_BYTES = 1 << 20
"""How much more memory an agent may have in the last quarter than in the first."""


class Samples:
    """Resident bytes of every agent, taken every so many results."""

    def __init__(self, agents: LocalAgents, frames: int) -> None:
        self._agents = agents
        self._every = max(1, frames // SAMPLES)
        self.rss_bytes: dict[str, list[int]] = {name: [] for name in agents}

    def result(self, number: int, _: object) -> None:
        if number % self._every:
            return
        for name, agent in self._agents.items():
            self.rss_bytes[name].append(rss_bytes(agent.pid))


def measure(frames: int, devices: int) -> dict[str, Any]:
    """The report (`benchmarks.report`)."""
    with made_chain(ELEMENTS, devices, devices) as chain, agents_of(chain) as agents:
        chain.stream(agents, Frames(chain, 100))
        samples = Samples(agents, frames)
        result = chain.stream(agents, Frames(chain, frames), samples.result)
    latency_s = [came - left for came, left in zip(result.received_s, result.sent_s, strict=True)]
    quarter = frames // 4
    first, last = latency_s[:quarter], latency_s[-quarter:]
    ms = {
        name: (median(part) * 1e3, quantiles(part, n=100)[98] * 1e3)
        for name, part in (("first", first), ("last", last))
    }
    memory = {name: _quarters(values) for name, values in samples.rss_bytes.items()}
    grown = max(last - first for first, last in memory.values())
    rate = (frames - 1) / (result.received_s[-1] - result.received_s[0])
    figures = [
        Figure("frames", frames),
        Figure("frames per second", round(rate, 1), "1/s"),
        Figure("latency, median of the first quarter", round(ms["first"][0], 3), "ms"),
        Figure("latency, median of the last quarter", round(ms["last"][0], 3), "ms"),
        Figure("latency, last quarter ÷ first", round(ms["last"][0] / ms["first"][0], 3),
               at_most=ASKED_GROWTH),
        Figure("latency, 99 % of the first quarter", round(ms["first"][1], 3), "ms"),
        Figure("latency, 99 % of the last quarter", round(ms["last"][1], 3), "ms"),
        Figure("resident memory of an agent, last quarter − first, the largest", grown, "bytes",
               at_most=ASKED_BYTES),
    ]  # fmt: skip
    return report(
        "steady",
        "A long stream",
        figures,
        settings={"devices": devices, "tensor_bytes": ELEMENTS * 4},
        notes=["One stream; quarters of it are compared, each by the median of its frames."],
        data={"rss_bytes": {name: list(quarters) for name, quarters in memory.items()}},
    )


def _quarters(values: list[int]) -> tuple[int, int]:
    """Medians of the first quarter and of the last."""
    quarter = max(1, len(values) // 4)
    return int(median(values[:quarter])), int(median(values[-quarter:]))
