"""Summarises the comparison as figures."""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable
from dataclasses import asdict
from typing import Any, TypeAlias

from benchmarks.peers.compare import Found
from benchmarks.peers.turns import Turn
from benchmarks.report import Figure, report


def most_resident(turn: Turn) -> float:
    """Peak of the board's process that needs most, in MB."""
    return max(memory.peak_bytes for memory in turn.memory.values()) / 1e6


def most_anonymous(turn: Turn) -> float:
    """The same of what no file backs."""
    return max(memory.anonymous_bytes for memory in turn.memory.values()) / 1e6


def all_resident(turn: Turn) -> float:
    """Peaks of the boards' processes, added up, in MB."""
    return sum(memory.peak_bytes for memory in turn.memory.values()) / 1e6


def cpu_ms(turn: Turn) -> float:
    """CPU time per frame of all boards together."""
    return 1000 * sum(turn.cpu_s.values())


Reading: TypeAlias = Callable[[Turn], float]

READINGS: tuple[tuple[str, str, Reading], ...] = (
    ("rate", "frames/s", lambda turn: turn.rate),
    ("latency when full", "s", lambda turn: turn.latency_s),
    ("latency of the first frame", "s", lambda turn: turn.first_s),
    ("peak resident, largest process", "MB", most_resident),
    ("peak resident, all boards", "MB", all_resident),
    ("anonymous, largest process", "MB", most_anonymous),
    ("CPU per frame, all boards", "ms", cpu_ms),
)

HELD: tuple[tuple[str, Reading, bool], ...] = (
    ("rate", lambda turn: turn.rate, True),
    ("peak resident of the largest process", most_resident, False),
    ("anonymous memory of the largest process", most_anonymous, False),
)
"""In what ours is to be no worse than the best of the others; whether more is better."""


def figures(found: Found) -> list[Figure]:
    """How ours stands to the best of the others, round by round; then everybody's readings."""
    listed = [_ratio(found, what, read, more) for what, read, more in HELD]
    for name, turns in found.turns.items():
        for what, unit, read in READINGS:
            listed.append(Figure.of(f"{name}: {what}", map(read, turns), unit))
    return listed


def _ratio(found: Found, what: str, read: Reading, more_is_better: bool) -> Figure:
    """Ours ÷ the other whose median is best, each turn by that of the same round."""
    others = {name: turns for name, turns in found.turns.items() if name != found.ours}
    choose = max if more_is_better else min
    best = choose(others, key=lambda name: statistics.median(map(read, others[name])))
    pairs = zip(found.turns[found.ours], others[best], strict=True)
    values = [read(ours) / read(other) for ours, other in pairs]
    asked = {"at_least" if more_is_better else "at_most": 1.0}
    return Figure.of(f"{found.ours}: {what} ÷ that of {best}, the best", values, "×", **asked)


def notes(found: Found, torch: str | None) -> list[str]:
    """What must be known to read the figures."""
    listed = [
        f"A chain of {len(found.plan.phases)} stages, "
        f"{found.plan.bytes_per_frame / 1e6:.1f} MB per frame; what is asked of ours is to be "
        "no worse than the best of the others."
    ]
    if found.emulated:
        listed.append("Emulated boards.")
    else:
        listed.append(f"Plain processes, NOT emulated boards: {'; '.join(found.missing)}.")
    listed.append(f"torch {torch}." if torch else "torch left out: no Python here has it.")
    worst = max(turn.difference for turns in found.turns.values() for turn in turns)
    listed.append(
        f"Largest relative difference of any result from the whole network's: {worst:.1e}."
    )
    most = max(found.deploying_peak_bytes.values(), default=0)
    listed.append(
        f"While the first turn deployed, an agent and its optimising child had up to "
        f"{most / 1e6:.0f} MB resident together."
    )
    return listed


def as_report(
    found: Found, options: argparse.Namespace, torch: str | None, how: str
) -> dict[str, Any]:
    """As `benchmarks.report` wants it."""
    hidden = ("json", "torch_python")
    return report(
        "peers",
        f"Side by side with pyzmq, torch and one ONNX Runtime: {options.model} on "
        f"{options.devices} {'CPU' if options.board == 'cpu' else options.board} boards",
        figures(found),
        settings={
            **{key: value for key, value in vars(options).items() if key not in hidden},
            "torch": torch,
            "priority": how,
        },
        notes=notes(found, torch),
        data={name: [asdict(turn) for turn in turns] for name, turns in found.turns.items()},
    )
