"""Defines a turn of a cell as the log stores it: the pipeline, and the replicas around it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from partition.objective import DEFAULT_OBJECTIVE, WITHIN

SUITABLE_CORES = 0.5
"""What suits all boards of a laboratory together: with more they wait for one another, with less
they stand still for so long that their caches go cold (docs/laboratory.md)."""


@dataclass(frozen=True, order=True)
class Cell:
    """What is measured: a network on so many boards by a strategy and its objective."""

    network: str
    devices: int
    strategy: str
    objective: str

    @property
    def how(self) -> str:
        """The strategy, with its objective where that is not the usual one."""
        usual = self.objective == DEFAULT_OBJECTIVE
        return self.strategy if usual else f"{self.strategy}:{self.objective}"


@dataclass(frozen=True)
class Boards:
    """The boards of a table: kind, cores of one, bytes per second of a link in each direction,
    whether they were measured (`partition profile`) before plans were searched for, and by how much
    a plan's period may exceed the shortest to save memory (relative, for `both`).

    If `cpu` is None, the boards of a laboratory share `SUITABLE_CORES`."""

    board: str
    cpu: float | None
    link: float | None
    profiled: bool = False
    within: float = WITHIN

    def cores(self, count: int) -> float:
        """The cores of each one of `count` boards."""
        return SUITABLE_CORES / count if self.cpu is None else self.cpu


@dataclass(frozen=True)
class AgentMemory:
    """Bytes on one board: by Eq. 2, by our plan, and as an agent measured since its start.

    `anonymous` is the part of what is resident at the end that no file backs, `resident` all of it.
    """

    eq2: int
    predicted: int
    peak: int
    idle: int
    resident: int
    anonymous: int


@dataclass(frozen=True)
class Planned:
    """What a plan says before anything is sent. Speed-up: against the plan of one board."""

    strategy_says: str
    phases: int
    rate: float
    speedup: float
    latency_s: float
    bytes_per_frame: int


@dataclass(frozen=True)
class Turn:
    """What one turn found; `replicas` are the summed rates before and after it.

    Rates are frames per second. `foreseen_*` follow from what the agents measured while they warmed
    up. `sent_bytes_per_frame` is the payload on the wire, the frame and its result included.
    `others` is the part of the machine's CPUs that strangers and the kernel used,
    `machine_use` what all used (`benchmarks.lab.counted`). `difference` is
    that of the worst result to the whole model's, relative to its largest value.
    """

    cell: Cell
    boards: Boards
    seconds: float
    planned: Planned
    rate: float
    replicas: tuple[float, float]
    latency_s: float
    foreseen_rate: float
    foreseen_latency_s: float
    sent_bytes_per_frame: float
    busiest_slice: float
    other_s_per_frame: float
    difference: float
    others: float
    machine_use: float
    memory: Mapping[str, AgentMemory]

    @property
    def efficiency(self) -> float:
        """Pipeline ÷ the mean of the replicas before and after."""
        return self.rate / (sum(self.replicas) / 2)

    def as_json(self) -> dict[str, Any]:
        """As JSON-like data."""
        return asdict(self)


@dataclass(frozen=True)
class Refused:
    """A cell for which there is no plan, or whose run failed, in a sentence."""

    cell: Cell
    boards: Boards
    refused: str

    def as_json(self) -> dict[str, Any]:
        """As JSON-like data."""
        return asdict(self)


def from_json(data: Mapping[str, Any]) -> Turn | Refused:
    """The inverse of `as_json`; raises `KeyError` or `TypeError` for other data."""
    cell, boards = Cell(**data["cell"]), Boards(**data["boards"])
    if "refused" in data:
        return Refused(cell, boards, data["refused"])
    first, last = data["replicas"]
    read = {
        "cell": cell,
        "boards": boards,
        "planned": Planned(**data["planned"]),
        "replicas": (first, last),
        "memory": {name: AgentMemory(**one) for name, one in data["memory"].items()},
    }
    return Turn(**{**data, **read})
