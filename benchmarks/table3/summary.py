"""Summarises the turns of a cell: medians and spreads."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from benchmarks.table3.turn import Cell, Planned, Turn


@dataclass(frozen=True)
class Spread:
    """A median, the least and the largest."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Iterable[float]) -> Spread:
        """Of at least one value."""
        found = list(values)
        return cls(statistics.median(found), min(found), max(found))


@dataclass(frozen=True)
class Summary:
    """One cell.

    Memory in bytes, of the board that holds most: by Eq. 2, and measured above the idle agent, of
    which `file_backed` is what is resident and no anonymous memory at the end. `of_prediction` is
    the worst agent's peak ÷ its plan's prediction. Savings are against one board, in per cent, and
    None where that was not measured. Rates in frames per second.
    """

    cell: Cell
    turns: int
    planned: Planned
    efficiency: Spread
    rate: Spread
    replicas: Spread
    latency_s: Spread
    foreseen_rate: float
    foreseen_latency_s: float
    sent_bytes_per_frame: float
    busiest_slice: float
    other_s_per_frame: float
    difference: float
    others: float
    machine_use: float
    eq2_bytes: int
    eq2_saving_percent: float | None
    above_idle: Spread
    anonymous: float
    file_backed: float
    saving_percent: Spread | None
    of_prediction: Spread

    @property
    def speedup(self) -> float:
        """Against one board of the same kind, while as many others compute."""
        return self.efficiency.median * self.cell.devices


def summaries(turns: Sequence[Turn]) -> list[Summary]:
    """By network, boards and strategy. Raises nothing for cells without turns: there are none."""
    by_cell: dict[Cell, list[Turn]] = {}
    for turn in turns:
        by_cell.setdefault(turn.cell, []).append(turn)
    alone = {
        cell.network: (eq2_bytes(found[0]), statistics.median(map(above_idle, found)))
        for cell, found in by_cell.items()
        if cell.devices == 1
    }
    return [_summary(cell, by_cell[cell], alone) for cell in sorted(by_cell)]


def eq2_bytes(turn: Turn) -> int:
    """Of the board that holds most by Eq. 2."""
    return max(one.eq2 for one in turn.memory.values())


def above_idle(turn: Turn) -> int:
    """What the fullest agent held at its peak, without what it held when idle."""
    return max(one.peak - one.idle for one in turn.memory.values())


def of_prediction(turn: Turn) -> float:
    """The worst agent's peak ÷ what its plan predicts of it."""
    return max(one.peak / one.predicted for one in turn.memory.values())


def _summary(cell: Cell, turns: Sequence[Turn], alone: Mapping[str, tuple[int, float]]) -> Summary:
    def median(values: Iterable[float]) -> float:
        return statistics.median(list(values))

    eq2, saving, eq2_saving = eq2_bytes(turns[0]), None, None
    if cell.network in alone and cell.devices > 1:
        one_eq2, one_measured = alone[cell.network]
        eq2_saving = 100 * (1 - eq2 / one_eq2)
        saving = Spread.of(100 * (1 - above_idle(turn) / one_measured) for turn in turns)
    return Summary(
        cell=cell,
        turns=len(turns),
        planned=turns[-1].planned,
        efficiency=Spread.of(turn.efficiency for turn in turns),
        rate=Spread.of(turn.rate for turn in turns),
        replicas=Spread.of(sum(turn.replicas) / 2 for turn in turns),
        latency_s=Spread.of(turn.latency_s for turn in turns),
        foreseen_rate=median(turn.foreseen_rate for turn in turns),
        foreseen_latency_s=median(turn.foreseen_latency_s for turn in turns),
        sent_bytes_per_frame=median(turn.sent_bytes_per_frame for turn in turns),
        busiest_slice=median(turn.busiest_slice for turn in turns),
        other_s_per_frame=median(turn.other_s_per_frame for turn in turns),
        difference=max(turn.difference for turn in turns),
        others=median(turn.others for turn in turns),
        machine_use=median(turn.machine_use for turn in turns),
        eq2_bytes=eq2,
        eq2_saving_percent=eq2_saving,
        above_idle=Spread.of(map(above_idle, turns)),
        anonymous=median(max(m.anonymous for m in t.memory.values()) for t in turns),
        file_backed=median(max(m.resident - m.anonymous for m in t.memory.values()) for t in turns),
        saving_percent=saving,
        of_prediction=Spread.of(map(of_prediction, turns)),
    )
