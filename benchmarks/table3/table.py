"""Computes a table's figures with their required bounds, and its columns of text."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.report import Figure, Table
from benchmarks.table3.paper import (
    BOTH,
    LEAST_EFFICIENCY,
    LEAST_EFFICIENCY_CPU,
    LEAST_EFFICIENCY_SPLIT,
    LEAST_OF_PREDICTION,
    MOST_OF_PREDICTION,
    PAPER,
    Asked,
)
from benchmarks.table3.summary import Spread, Summary
from benchmarks.table3.turn import Refused

SPEED = (
    *("n", "strategy", "frames/s", "n replicas", "efficiency", "spread", "speed-up", "paper"),
    *("planned", "predicted frames/s", "latency s", "predicted s", "MB/frame", "planned MB"),
    *("phases", "busiest slice", "machine", "turns"),
)
MEMORY = (
    *("n", "strategy", "Eq. 2 MB", "saved %", "paper %", "peak above idle MB", "saved %", "spread"),
    *("anonymous MB", "file-backed MB", "peak ÷ prediction", "limit %"),
)


def figures(found: Sequence[Summary], board: str) -> list[Figure]:
    """The figures of which something is asked."""
    rows = []
    for one in found:
        least = _least_efficiency(one, board)
        if least is not None:
            rows.append(_figure(one, "efficiency", one.efficiency, at_least=least))
    for one in found:
        asked = _asked_of_both(one)
        if asked is not None and one.saving_percent is not None:
            saving, least = one.saving_percent, asked.saving_percent
            rows.append(_figure(one, "memory saved, measured", saving, unit="%", at_least=least))
        if asked is not None or one.cell.network == "resnet50":
            rows.append(
                _figure(
                    one,
                    "fullest agent ÷ prediction",
                    one.of_prediction,
                    at_least=None if asked is None else LEAST_OF_PREDICTION,
                    at_most=MOST_OF_PREDICTION,
                )
            )
    return rows


def _asked_of_both(one: Summary) -> Asked | None:
    if (one.cell.strategy, one.cell.objective) != ("auto", "both"):
        return None
    return BOTH.get(one.cell.network, {}).get(one.cell.devices)


def _least_efficiency(one: Summary, board: str) -> float | None:
    network, boards = one.cell.network, one.cell.devices
    asked = _asked_of_both(one)
    if asked is not None:
        return asked.efficiency if board == "accelerator" else LEAST_EFFICIENCY_CPU[boards]
    if boards == 1 or (one.cell.objective == "both" and one.cell.strategy == "auto"):
        return None
    if network == "resnet50" and (one.cell.strategy, one.cell.objective) == ("auto", "period"):
        return LEAST_EFFICIENCY[board].get(boards)
    if network in PAPER and network != "resnet50" and one.cell.strategy == "hybrid":
        return LEAST_EFFICIENCY_SPLIT if board == "accelerator" else None
    return None


def _figure(
    one: Summary,
    what: str,
    spread: Spread,
    *,
    unit: str = "",
    at_least: float | None = None,
    at_most: float | None = None,
) -> Figure:
    boards = "1 board" if one.cell.devices == 1 else f"{one.cell.devices} boards"
    return Figure.of(
        f"{one.cell.network}, {boards}, {one.cell.how}: {what}",
        (spread.low, spread.median, spread.high), unit, digits=4, at_least=at_least,
        at_most=at_most,
    )  # fmt: skip


def tables(found: Sequence[Summary], refused: Sequence[Refused]) -> list[Table]:
    """Two for each network: speed and memory; and what could not be measured."""
    made = []
    for network in dict.fromkeys(one.cell.network for one in found):
        own = [one for one in found if one.cell.network == network]
        made.append(Table(f"{network}: speed", SPEED, tuple(map(_speed, own))))
        made.append(
            Table(f"{network}: memory of the fullest board", MEMORY, tuple(map(_memory, own)))
        )
    if refused:
        rows = tuple(
            (one.cell.network, str(one.cell.devices), one.cell.how, one.refused) for one in refused
        )
        made.append(Table("Not measured", ("network", "n", "strategy", "why"), rows))
    return made


def _speed(one: Summary) -> tuple[str, ...]:
    published = PAPER.get(one.cell.network, {}).get(one.cell.devices)
    return (
        str(one.cell.devices),
        one.cell.how,
        f"{one.rate.median:.2f}",
        f"{one.replicas.median:.2f}",
        f"{one.efficiency.median:.3f}",
        f"{one.efficiency.low:.3f}–{one.efficiency.high:.3f}",
        f"{one.speedup:.2f}×",
        "" if published is None else f"{published.speedup:.1f}×",
        f"{one.planned.speedup:.2f}×",
        f"{one.foreseen_rate:.2f}",
        f"{one.latency_s.median:.2f}",
        f"{one.foreseen_latency_s:.2f}",
        f"{one.sent_bytes_per_frame / 1e6:.1f}",
        f"{one.planned.bytes_per_frame / 1e6:.1f}",
        str(one.planned.phases),
        f"{one.busiest_slice:.0%}",
        f"{one.machine_use:.0%}",
        str(one.turns),
    )


def _memory(one: Summary) -> tuple[str, ...]:
    published = PAPER.get(one.cell.network, {}).get(one.cell.devices)
    saving = one.saving_percent
    return (
        str(one.cell.devices),
        one.cell.how,
        f"{one.eq2_bytes / 1e6:.1f}",
        "" if one.eq2_saving_percent is None else f"{one.eq2_saving_percent:.1f}",
        "" if published is None else f"{published.saving_percent:.1f}",
        f"{one.above_idle.median / 1e6:.1f}",
        "" if saving is None else f"{saving.median:.1f}",
        "" if saving is None else f"{saving.low:.1f}–{saving.high:.1f}",
        f"{one.anonymous / 1e6:.1f}",
        f"{one.file_backed / 1e6:.1f}",
        f"{one.of_prediction.median:.3f}",
        f"{100 * (1 - 1 / one.cell.devices):.1f}",
    )
