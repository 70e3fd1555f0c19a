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
from benchmarks.limits.chain import BYTES_PER_ELEMENT, Chain, Frames, agents_of, made_chain
from benchmarks.report import Figure, Table, report
from launcher.run.processes import LocalAgents

ASKED_US = 150.0
ASKED_OF_BARE = 1.15
MIDDLE = "n1"

BARE_MESSAGES = {1024: 3000, 100_000: 2000}
FRAMES = {1024: 1500, 100_000: 800, 1_000_000: 300, 12_800_000: 60}
"""Sizes of a tensor in bytes, and how many go by flat out."""

PACED = 100
PACE_S = 0.02
LARGE_PACE_S = 0.05
"""Frames with a pause, and the time from one to the next; of large tensors."""


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


def measure(rounds: int, transport: str, sizes: tuple[int, ...]) -> dict[str, Any]:
    """The report (`benchmarks.report`)."""
    figures, rows, raw = [], [], {}
    for size in sizes:
        for paced in (False, True):
            turns = _turns(size, paced, rounds, transport)
            what = f"{size_text(size)}, {'with pauses' if paced else 'flat out'}"
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
        settings={"rounds": rounds, "transport": transport, "agents": 3},
        notes=["The agent in the middle of three; a firing takes one tensor in and sends one out."],
        tables=[Table("Medians", titles, tuple(rows))],
        data={"turns": raw},
    )


def size_text(size: int) -> str:
    """A size in words."""
    return f"{size / 1e6:g} MB" if size >= 1e6 else f"{round(size / 1000)} kB"


def _turns(size: int, paced: bool, rounds: int, transport: str) -> list[Turn]:
    pace_s = 0.0 if not paced else LARGE_PACE_S if size > 5e6 else PACE_S
    frames = PACED if paced else FRAMES.get(size, 200)
    messages = PACED if paced else BARE_MESSAGES.get(size, frames)
    with (
        made_chain(size // BYTES_PER_ELEMENT, 3, 3) as chain,
        agents_of(chain, transport) as agents,
    ):
        address = "tcp://127.0.0.1:*" if transport == "tcp" else f"ipc://{chain.place}/{{}}"
        with Relayed(size, address) as relayed:
            turns = []
            for _ in range(rounds + 1):
                bare_s = relayed.burst(messages, pace_s)
                agent_us, engine_us = _firing_us(chain, agents, Frames(chain, frames, pace_s))
                turns.append(Turn(agent_us, engine_us, bare_s * 1e6))
    return turns[1:]


def _firing_us(chain: Chain, agents: LocalAgents, frames: Frames) -> tuple[float, float]:
    stats = chain.stream(agents, frames).stats[MIDDLE]
    firings, engine_s = sum(stats.firings), sum(stats.phase_cpu_s)
    return (stats.cpu_s - engine_s) / firings * 1e6, engine_s / firings * 1e6
