"""Tests whether memory or latency grows over thousands of frames of a small network."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median, quantiles
from typing import Any

from benchmarks.limits.chain import Frames, agents_of, made_chain
from benchmarks.processes import rss_bytes
from benchmarks.report import Figure, report

DEVICES, ELEMENTS, SAMPLES = 10, 1024, 200
ASKED_GROWTH = 1.10
"""How much longer the last quarter of frames may take than the first."""

ASKED_BYTES = 1 << 20
"""How much more memory an agent may have in the last quarter than in the first."""


def measure(frames: int) -> dict[str, Any]:
    """The report (`benchmarks.report`)."""
    with made_chain(ELEMENTS, DEVICES) as chain, agents_of(chain) as agents:
        held: dict[str, list[int]] = {name: [] for name in agents}

        def sample(number: int, _: object) -> None:
            if number % max(1, frames // SAMPLES) == 0:
                for name, agent in agents.items():
                    held[name].append(rss_bytes(agent.pid))

        chain.stream(agents, Frames(chain, 100))
        result = chain.stream(agents, Frames(chain, frames), sample)
    latency_ms = [
        1e3 * (came - left) for came, left in zip(result.received_s, result.sent_s, strict=True)
    ]
    first, last = _quarters(latency_ms)
    memory = {name: [median(part) for part in _quarters(sizes)] for name, sizes in held.items()}
    grown = int(max(last - first for first, last in memory.values()))
    rate = (frames - 1) / (result.received_s[-1] - result.received_s[0])
    figures = [
        Figure("frames", frames),
        Figure("frames per second", round(rate, 1), "1/s"),
        Figure("latency, last quarter ÷ first", round(median(last) / median(first), 3),
               at_most=ASKED_GROWTH),
        *(Figure(f"latency, 99 % of the {name} quarter", round(quantiles(part, n=100)[98], 3), "ms",
                 note=f"median {median(part):.3f} ms")
          for name, part in (("first", first), ("last", last))),
        Figure("resident memory of an agent, last quarter − first, the largest", grown, "bytes",
               at_most=ASKED_BYTES),
    ]  # fmt: skip
    return report(
        "steady",
        "A long stream",
        figures,
        settings={"devices": DEVICES, "tensor_bytes": ELEMENTS * 4},
        notes=["One stream; quarters of it are compared, each by the median of its frames."],
        data={"rss_bytes": memory},
    )


def _quarters(values: Sequence[float]) -> tuple[Sequence[float], Sequence[float]]:
    """The first quarter and the last."""
    quarter = max(1, len(values) // 4)
    return values[:quarter], values[-quarter:]
