"""Defines the cells of a table: boards, networks, and the kinds of launches on them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from benchmarks.lab import BoardConfig, DeviceConfig, LabConfig
from benchmarks.lab.config import Board
from ga.strategies import STRATEGIES
from launcher.errors import BadInputError
from partition.objective import Objective

LAB_NAME = "boards"
LOCAL = "local"
"""The setting of four agents that the launcher starts on this machine."""

LOCAL_AGENTS = 4

_MODELS = Path(__file__).parents[2] / "tests" / "fixtures" / "models"

NETWORKS: Mapping[str, str] = {
    "resnet50": "onnx-wheel:resnet50",
    "yolov2": "builtin:yolov2",
    "vgg16": str(_MODELS / "VGG16.onnx"),
    "mobilenetv2": str(_MODELS / "MobileNetV2.onnx"),
    "densenet121": "onnx-wheel:densenet121",
    "squeezenet": "onnx-wheel:squeezenet",
}
"""The networks, as `cluster.yaml` names them. Weights of the first three are drawn at random."""


@dataclass(frozen=True)
class Asked:
    """What one plan must reach on equal boards: pipeline ÷ replicas, and memory measured above the
    idle agent, saved against one board, in per cent."""

    efficiency: float
    saving_percent: float


ASKED: Mapping[str, Mapping[int, Asked]] = {
    "resnet50": {4: Asked(0.95, 66.0), 10: Asked(0.87, 76.0)},
    "yolov2": {4: Asked(0.92, 65.0), 10: Asked(0.87, 78.0)},
    "vgg16": {4: Asked(0.92, 68.0), 10: Asked(0.90, 84.0)},
}
"""Asked of the default strategy on accelerator boards: network → boards → both columns."""


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

SETTINGS: Mapping[str, Setting] = {
    "accelerators": Setting("accelerator", UNEQUAL),
    "cpus": Setting("cpu", UNEQUAL),
    "slow": Setting("accelerator", (0.4, 0.004)),
    "equal": Setting("accelerator", (0.125,) * 4),
    "ten": Setting("accelerator", (0.05,) * 10),
    "equal-cpus": Setting("cpu", (0.125,) * 4),
}
"""Unequal boards are 8:4:2:1; in `slow` one board is a hundred times slower. The laboratory's page
says why boards together take half a core."""

Knowledge = Literal["first", "second", "described", "profiled", "alone"]
KNOWLEDGE: tuple[Knowledge, ...] = get_args(Knowledge)

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
    """A kind of launch: what is known before it, and the strategy.

    - `first`: `cluster.yaml` has names and addresses, and all caches are empty;
    - `second`: the same command again;
    - `described`: speeds, links and accelerators are typed into `cluster.yaml`;
    - `profiled`: after a full `partition profile` with that file;
    - `alone`: the fastest board has the whole network.

    The strategy is `NAME`, or `NAME:OBJECTIVE`, or "" for the default one.
    """

    knowledge: Knowledge
    strategy: str = ""

    def __str__(self) -> str:
        return f"{self.knowledge}:{self.strategy}" if self.strategy else self.knowledge

    @property
    def keys(self) -> dict[str, str]:
        """What the launch's `cluster.yaml` says of the strategy."""
        name, _, objective = self.strategy.partition(":")
        return {key: x for key, x in (("strategy", name), ("objective", objective)) if x}

    @classmethod
    def read(cls, text: str) -> Kind:
        """Return the kind that `str` writes; raises `BadInputError`."""
        knowledge, _, strategy = text.partition(":")
        name, colon, objective = strategy.partition(":")
        objectives = get_args(Objective)
        for known in KNOWLEDGE:
            is_strategy = name in ("", *STRATEGIES) and (not colon or objective in objectives)
            if known == knowledge and is_strategy:
                return cls(known, strategy)
        raise BadInputError(
            f"{text!r} is not a kind of launch; write KNOWN, KNOWN:STRATEGY or "
            f"KNOWN:STRATEGY:OBJECTIVE, where KNOWN is one of {', '.join(KNOWLEDGE)}, STRATEGY one "
            f"of {', '.join(STRATEGIES)} and OBJECTIVE one of {', '.join(objectives)}"
        )


@dataclass(frozen=True, order=True)
class Cell:
    """A network on the boards of a setting: one of `SETTINGS`, `local`, or equal boards, such as
    `cpu-10x0.05`. The network is one of `NETWORKS`, or what `cluster.yaml` takes."""

    setting: str
    network: str

    def __str__(self) -> str:
        return f"{self.network} on {self.setting}"

    @classmethod
    def equal(cls, network: str, board: Board, count: int, cores: float) -> Cell:
        """The cell of a network on a number of equal boards, with the cores of each."""
        return cls(f"{board}-{count}x{cores:.4g}", network)

    @property
    def boards(self) -> Setting | None:
        """The boards; None for local agents."""
        if self.setting == LOCAL or self.setting in SETTINGS:
            return SETTINGS.get(self.setting)
        board, _, rest = self.setting.partition("-")
        count, _, cores = rest.partition("x")
        return Setting("cpu" if board == "cpu" else "accelerator", (float(cores),) * int(count))

    @property
    def model(self) -> str:
        """The network, as `cluster.yaml` names it."""
        return NETWORKS.get(self.network, self.network)


def usual_kinds(setting: str) -> tuple[Kind, ...]:
    """Return the kinds of launches that the table needs; `second` follows its `first`."""
    if setting == LOCAL:
        return Kind("first"), Kind("second")
    single = (Kind("profiled", name) for name in SINGLE)
    return Kind("first"), Kind("second"), Kind("profiled"), Kind("alone"), *single
