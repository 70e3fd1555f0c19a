"""Defines a turn as the log stores it: one launch, and what was around it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from benchmarks.boards.cells import Cell, Kind


@dataclass(frozen=True)
class BoardUse:
    """A board's part of a plan: its phases, the busy share of its time, and the bytes that were
    predicted, measured at the peak, held when idle, and that the paper counts (Eq. 2)."""

    phases: int
    busy: float
    predicted_bytes: int
    peak_bytes: int
    idle_bytes: int
    eq2_bytes: int = 0


@dataclass(frozen=True)
class Launched:
    """The figures of one launch. Rates are in frames per second of the steady state, periods those
    of the report. `first_result_s` counts from the command's start."""

    strategy: str
    explanation: str
    rate: float
    period_planned_s: float
    period_predicted_s: float
    period_measured_s: float
    first_result_s: float
    boards: Mapping[str, BoardUse]
    said: tuple[str, ...]

    @property
    def held_bytes(self) -> int:
        """The bytes that the fullest board held in addition to an idle agent's."""
        return max(board.peak_bytes - board.idle_bytes for board in self.boards.values())

    @property
    def eq2_bytes(self) -> int:
        """The bytes of the fullest board by Eq. 2."""
        return max(board.eq2_bytes for board in self.boards.values())

    @property
    def of_prediction(self) -> float:
        """The worst agent's peak ÷ what the plan predicts of it."""
        return max(board.peak_bytes / board.predicted_bytes for board in self.boards.values())


@dataclass(frozen=True)
class Turn:
    """A launch of a kind. `replicas` are the summed rates of whole networks on all boards before
    and after it (0: not measured), `profile_s` the seconds of the profile that it used, `others`
    the share of this machine's CPUs that other programs and the kernel took, `load` how many
    processes wanted a CPU when it began."""

    cell: Cell
    kind: Kind
    quick: bool
    launched: Launched
    replicas: tuple[float, float] = (0.0, 0.0)
    profile_s: float = 0.0
    others: float = 0.0
    load: float = 0.0

    @property
    def efficiency(self) -> float | None:
        """The rate ÷ the mean of the replicas before and after; None without them."""
        whole = sum(self.replicas) / 2
        return self.launched.rate / whole if whole else None

    def as_json(self) -> dict[str, Any]:
        """As JSON-like data."""
        return asdict(self)


@dataclass(frozen=True)
class Refused:
    """A launch that failed, in a sentence."""

    cell: Cell
    kind: Kind
    quick: bool
    refused: str

    def as_json(self) -> dict[str, Any]:
        """As JSON-like data."""
        return asdict(self)


def launched_from(data: Mapping[str, Any]) -> Launched:
    """The inverse of `asdict`, which ignores further keys; raises `KeyError` or `TypeError`."""
    known = {field.name: data[field.name] for field in fields(Launched)}
    boards = {name: BoardUse(**one) for name, one in data["boards"].items()}
    return Launched(**{**known, "boards": boards, "said": tuple(data["said"])})


def from_json(data: Mapping[str, Any]) -> Turn | Refused:
    """The inverse of `as_json`; raises `KeyError` or `TypeError` for other data."""
    read = {**data, "cell": Cell(**data["cell"]), "kind": Kind(**data["kind"])}
    if "refused" in data:
        return Refused(**read)
    first, last = data["replicas"]
    launched = launched_from(data["launched"])
    return Turn(**{**read, "launched": launched, "replicas": (first, last)})
