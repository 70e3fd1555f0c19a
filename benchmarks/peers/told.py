"""The comparison in lines and as figures."""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

from benchmarks.peers.compare import Found
from benchmarks.peers.turns import Turn
from benchmarks.report import Figure, report


def most_resident(turn: Turn) -> float:
    """Peak of the board's process that needs most, in MB."""
    return max(memory.peak_bytes for memory in turn.memory.values()) / 1e6


def most_anonymous(turn: Turn) -> float:
    """The same of what no file backs."""
    return max(memory.anonymous_bytes for memory in turn.memory.values()) / 1e6


def cpu_ms(turn: Turn) -> float:
    """CPU time per frame of all boards together."""
    return 1000 * sum(turn.cpu_s.values())


READINGS: tuple[tuple[str, str, Callable[[Turn], float]], ...] = (
    ("rate", "frames/s", lambda turn: turn.rate),
    ("latency when full", "s", lambda turn: turn.latency_s),
    ("latency of the first frame", "s", lambda turn: turn.first_s),
    ("peak resident, largest process", "MB", most_resident),
    ("anonymous, largest process", "MB", most_anonymous),
    ("CPU per frame, all boards", "ms", cpu_ms),
)


def figures(found: Found) -> list[Figure]:
    """Of everybody; ours are held against the best of the others, pipelines or not."""
    others = {name: turns for name, turns in found.turns.items() if name != found.ours}
    told = []
    for name, turns in found.turns.items():
        for number, (what, unit, read) in enumerate(READINGS):
            at_least = at_most = None
            if name == found.ours and number == 0:
                at_least = max(_median(read, some) for some in others.values())
            elif name == found.ours and number in (3, 4):
                at_most = min(_median(read, some) for some in others.values())
            values = [read(turn) for turn in turns]
            told.append(
                Figure(
                    f"{name}: {what}",
                    round(statistics.median(values), 3),
                    unit,
                    at_least=None if at_least is None else round(at_least, 3),
                    at_most=None if at_most is None else round(at_most, 3),
                    low=round(min(values), 3),
                    high=round(max(values), 3),
                )
            )
    return told


def _median(read: Callable[[Turn], float], turns: Sequence[Turn]) -> float:
    return statistics.median(map(read, turns))


def notes(found: Found, torch: str | None) -> list[str]:
    """What must be known to read the figures."""
    told = [
        f"A chain of {len(found.plan.phases)} stages, "
        f"{found.plan.bytes_per_frame / 1e6:.1f} MB per frame; what is asked of ours is the best "
        "of the others."
    ]
    if found.emulated:
        told.append("Emulated boards.")
    else:
        told.append(f"Plain processes, NOT emulated boards: {'; '.join(found.missing)}.")
    told.append(f"torch {torch}." if torch else "torch left out: no Python here has it.")
    worst = max(turn.difference for turns in found.turns.values() for turn in turns)
    told.append(f"Largest relative difference of any result from the whole network's: {worst:.1e}.")
    most = max(found.deploying_peak_bytes.values(), default=0)
    told.append(
        f"While the first turn deployed, an agent and its optimising child had up to "
        f"{most / 1e6:.0f} MB resident together."
    )
    return told


def lines(found: Found, torch: str | None) -> list[str]:
    """For people."""
    told = [" ".join(notes(found, torch))]
    headings = ("", *(f"{what} [{unit}]" for what, unit, _ in READINGS))
    rows = [headings]
    for name, turns in found.turns.items():
        cells = []
        for _, _, read in READINGS:
            values = [read(turn) for turn in turns]
            cells.append(f"{statistics.median(values):.2f} ({min(values):.2f}–{max(values):.2f})")
        rows.append((name, *cells))
    told += [" | ".join(row) for row in rows]
    told += [
        f"{'holds' if one.holds else 'DOES NOT HOLD'}: {one.what} {one.measured} {one.unit}, best "
        f"of the others {one.at_least if one.at_most is None else one.at_most}"
        for one in figures(found)
        if one.holds is not None
    ]
    return told


def as_report(
    found: Found, options: argparse.Namespace, torch: str | None, how: str
) -> dict[str, Any]:
    """As `benchmarks.report` wants it."""
    hidden = ("json", "torch_python")
    return report(
        "peers",
        "Side by side with pyzmq, torch and one ONNX Runtime",
        figures(found),
        settings={
            **{key: value for key, value in vars(options).items() if key not in hidden},
            "torch": torch,
            "priority": how,
        },
        notes=notes(found, torch),
        data={name: [asdict(turn) for turn in turns] for name, turns in found.turns.items()},
    )
