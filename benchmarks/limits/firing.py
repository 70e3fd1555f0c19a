"""Measures an agent's CPU time per firing without the engine's, and compares it with bare pyzmq.

Three agents form a chain, each with one phase that hardly computes. Measured is the middle one,
which receives a tensor from an agent and sends one to an agent: the CPU time of all its threads
from `Start` to `Stop`, less that of the engine's runs. In alternation, three processes with only
pyzmq (`copy=False`) move the same tensors, and the middle one is measured, too. Both are measured
at full rate, and with a pause between frames, when every message finds all threads asleep and cold
caches, which costs both more.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from benchmarks.limits.bare import Relayed
from benchmarks.limits.chain import BYTES_PER_ELEMENT, Frames, agents_of, made_chain
from benchmarks.report import Figure, Table, report

ASKED_US = 150.0
ASKED_OF_BARE = 1.15
AGENTS, MIDDLE = 3, "n1"

FRAMES = {1024: 1500, 100_000: 800, 1_000_000: 300}
"""Sizes of a tensor in bytes, and how many go by flat out."""

PACED, PACE_S = 100, 0.02
"""Frames with a pause, and the time from one to the next."""


@dataclass(frozen=True)
class Turn:
    """One turn of each: microseconds of CPU per firing, and per message through bare pyzmq."""

    agent_us: float
    engine_us: float
    bare_us: float

    @property
    def beyond_us(self) -> float:
        """What the firing costs beyond what moving its bytes may."""
        return self.agent_us - ASKED_OF_BARE * self.bare_us


def measure(rounds: int) -> dict[str, Any]:
    """The report (`benchmarks.report`)."""
    figures, rows, raw = [], [], {}
    for size, flat_out in FRAMES.items():
        for frames, pace_s, how in ((flat_out, 0.0, "flat out"), (PACED, PACE_S, "with pauses")):
            turns = _turns(size, frames, pace_s, rounds)
            what = f"{size_text(size)}, {how}"
            figures.append(
                Figure.of(
                    f"CPU per firing beyond {ASKED_OF_BARE:g} × bare pyzmq, {what}",
                    [turn.beyond_us for turn in turns], "µs", digits=1, at_most=ASKED_US,
                )
            )  # fmt: skip
            columns = zip(
                *((one.agent_us, one.bare_us, one.engine_us) for one in turns), strict=True
            )
            rows.append((what, *(f"{median(column):.1f}" for column in columns)))
            raw[what] = [asdict(turn) for turn in turns]
    titles = ("tensor", "agent, µs", "bare pyzmq, µs", "the engine's runs (not counted), µs")
    return report(
        "firing",
        "CPU of an agent per firing",
        figures,
        settings={"rounds": rounds, "agents": AGENTS},
        notes=["The agent in the middle of three; a firing takes one tensor in and sends one out."],
        tables=[Table("Medians", titles, tuple(rows))],
        data={"turns": raw},
    )


def size_text(size: int) -> str:
    """A size in words."""
    return f"{size / 1e6:g} MB" if size >= 1e6 else f"{round(size / 1000)} kB"


def _turns(size: int, frames: int, pace_s: float, rounds: int) -> list[Turn]:
    """Take turns, the first of which does not count."""
    turns = []
    with (
        made_chain(size // BYTES_PER_ELEMENT, AGENTS) as chain,
        agents_of(chain) as agents,
        Relayed(size) as relayed,
    ):
        for _ in range(rounds + 1):
            bare_s = relayed.burst(2 * frames, pace_s)
            stats = chain.stream(agents, Frames(chain, frames, pace_s)).stats[MIDDLE]
            firings, engine_s = sum(stats.firings), sum(stats.phase_cpu_s)
            spent_s = (stats.cpu_s - engine_s, engine_s)
            turns.append(Turn(*(s / firings * 1e6 for s in spent_s), bare_s * 1e6))
    return turns[1:]
