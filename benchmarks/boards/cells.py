"""Defines the cells of the table: boards, networks, and the kinds of launches on them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from benchmarks.lab import BoardConfig, DeviceConfig, LabConfig
from benchmarks.lab.config import Board
from ga.strategies import STRATEGIES
from launcher.errors import BadInputError

LAB_NAME = "boards"
LOCAL = "local"
"""The setting of four agents that the launcher starts on this machine."""

LOCAL_AGENTS = 4

_MODELS = Path(__file__).parents[2] / "tests" / "fixtures" / "models"

NETWORKS: Mapping[str, str] = {
    "resnet50": "onnx-wheel:resnet50",
    "mobilenetv2": str(_MODELS / "MobileNetV2.onnx"),
    "yolov2": "builtin:yolov2",
    "densenet121": "onnx-wheel:densenet121",
    "squeezenet": "onnx-wheel:squeezenet",
}
"""The networks, as `cluster.yaml` names them."""


@dataclass(frozen=True)
class Setting:
    """Boards of one kind; `cores` are the processor shares of each."""

    board: Board
    cores: tuple[float, ...]

    @property
    def is_equal(self) -> bool:
        """Whether all boards are equally fast."""
        return len(set(self.cores)) == 1

    @property
    def fastest(self) -> str:
        """The name of the fastest board."""
        return name_of(self.cores.index(max(self.cores)))

    def config(self, model: str, link: float) -> LabConfig:
        """Return the laboratory; `link` in bytes per second."""
        boards = (
            DeviceConfig(name=name_of(i), cpu=share, board=self.board)
            for i, share in enumerate(self.cores)
        )
        return LabConfig(
            name=LAB_NAME,
            undisturbed=True,
            defaults=BoardConfig(link=link),
            devices=tuple(boards),
            cluster={"model": model},
        )


def name_of(number: int) -> str:
    """Return the name of a board."""
    return f"b{number + 1}"


UNEQUAL = (0.32, 0.16, 0.08, 0.04)

SETTINGS: Mapping[str, Setting | None] = {
    "accelerators": Setting("accelerator", UNEQUAL),
    "cpus": Setting("cpu", UNEQUAL),
    "slow": Setting("accelerator", (0.4, 0.004)),
    "equal": Setting("accelerator", (0.125,) * 4),
    "ten": Setting("accelerator", (0.05,) * 10),
    "equal-cpus": Setting("cpu", (0.125,) * 4),
    LOCAL: None,
}
"""Unequal boards are 8:4:2:1; in `slow` one board is a hundred times slower. The laboratory's page
says why boards together take half a core."""

Knowledge = Literal["first", "second", "described", "profiled", "alone"]
KNOWLEDGE: tuple[Knowledge, ...] = ("first", "second", "described", "profiled", "alone")

SINGLE = (
    "sequential",
    "sequential-balanced",
    "vertical",
    "runs",
    "hybrid",
    "replicated",
    "batch-split",
)
"""The strategies with which the default is compared; the others are for other devices or purposes,
or variants of these."""


@dataclass(frozen=True, order=True)
class Kind:
    """A kind of launch: what is known before it, and the strategy ("": the default).

    - `first`: `cluster.yaml` has names and addresses, and all caches are empty;
    - `second`: the same command again;
    - `described`: speeds, links and accelerators are typed into `cluster.yaml`;
    - `profiled`: after a full `partition profile` with that file;
    - `alone`: the fastest board has the whole network.
    """

    knowledge: Knowledge
    strategy: str = ""

    def __str__(self) -> str:
        return f"{self.knowledge}:{self.strategy}" if self.strategy else self.knowledge

    @classmethod
    def read(cls, text: str) -> Kind:
        """Return the kind that `str` writes; raises `BadInputError`."""
        knowledge, _, strategy = text.partition(":")
        for known in KNOWLEDGE:
            if known == knowledge and strategy in ("", *STRATEGIES):
                return cls(known, strategy)
        raise BadInputError(
            f"{text!r} is not a kind of launch; write KNOWN or KNOWN:STRATEGY, where KNOWN is one "
            f"of {', '.join(KNOWLEDGE)} and STRATEGY one of {', '.join(STRATEGIES)}"
        )


@dataclass(frozen=True, order=True)
class Cell:
    """A network on the boards of a setting."""

    setting: str
    network: str

    def __str__(self) -> str:
        return f"{self.network} on {self.setting}"


def usual_kinds(setting: str) -> tuple[Kind, ...]:
    """Return the kinds of launches that the table needs; `second` follows its `first`."""
    if setting == LOCAL:
        return Kind("first"), Kind("second")
    single = (Kind("profiled", name) for name in SINGLE)
    return Kind("first"), Kind("second"), Kind("profiled"), Kind("alone"), *single
