"""Reads `lab.yaml`: the boards of a laboratory, their bounds and their links.

    name: lab                     # every trace of the laboratory carries it
    defaults: {board: accelerator, cpu: 0.2, memory: 1GB, link: 1Gbit/s}
    devices:                      # or a number of boards with the defaults
      - {count: 3}
      - {name: slow, cpu: 0.1, link: 100Mbit/s}
    cluster: {model: onnx-wheel:resnet50, frames: 64}    # goes into the cluster.yaml it writes

Paths below `cluster:` are absolute. A mistake is reported in one sentence
(`launcher.errors`).
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator

from launcher.config.load import validated_as
from launcher.config.source import Location, ParsedFile, read_source
from launcher.config.units import parse_bytes, parse_link

MOST_DEVICES = 250
"""Addresses of one /24 network, less the launcher's and a few."""

LEAST_CPU = 0.001
"""Cores. Linux gives no less than a millisecond of a second."""

Board = Literal["accelerator", "cpu"]
"""What the CPU quota holds for: the thread that computes, or the whole agent."""

_DEVICE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,31}")
_LAB_NAME = re.compile(r"[a-z0-9]{1,8}")

Bytes = Annotated[
    int | None, BeforeValidator(lambda value: None if value is None else parse_bytes(value))
]
Rate = Annotated[
    float | None,
    BeforeValidator(lambda v: v if v is None or isinstance(v, float) else parse_link(v)),
]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


class BoardConfig(_Strict):
    """What a board may use; a key that is left out is taken from `defaults:`.

    `cpu` is in cores, `memory` and `disk` in bytes, `link` in bytes per second in each direction.
    Without `memory` or `link` there is no bound, without `disk` the agent's cache lies in a folder
    of this machine.
    """

    board: Board | None = None
    cpu: float | None = None
    memory: Bytes = None
    link: Rate = None
    disk: Bytes = None

    @field_validator("cpu")
    @classmethod
    def _check_cpu(cls, cpu: float | None) -> float | None:
        if cpu is not None and not LEAST_CPU <= cpu <= 1024:
            raise ValueError(f"must be a number of cores from {LEAST_CPU:g} on, not {cpu:g}")
        return cpu


class DeviceConfig(BoardConfig):
    """One line of `devices:`: one board, or `count` of them."""

    name: str | None = None
    count: Annotated[int, Field(ge=1, le=MOST_DEVICES)] = 1

    @field_validator("name")
    @classmethod
    def _check_name(cls, name: str | None) -> str | None:
        if name is not None and not _DEVICE_NAME.fullmatch(name):
            raise ValueError(
                f"{name!r} is no name for a device: use 1 to 32 letters, digits, '_' and '-', a "
                "letter or digit first"
            )
        return name


def _listed(value: object) -> object:
    if isinstance(value, int) and not isinstance(value, bool):
        return ({"count": value},)
    return tuple(value) if isinstance(value, list) else value


class LabConfig(_Strict):
    """A whole `lab.yaml`. `undisturbed` lets the laboratory's CPU time come before everything else
    on this machine; `keys`: agents and launcher have keys, as `launch --make-keys` makes them."""

    name: str = "lab"
    defaults: BoardConfig = BoardConfig()
    devices: Annotated[tuple[DeviceConfig, ...], BeforeValidator(_listed), Field(min_length=1)]
    undisturbed: bool = False
    keys: bool = False
    cluster: dict[str, Any] = {}

    @field_validator("name")
    @classmethod
    def _check_name(cls, name: str) -> str:
        if not _LAB_NAME.fullmatch(name):
            raise ValueError(f"{name!r} is no name for a laboratory: 1 to 8 of a-z and 0-9")
        return name


USUAL = BoardConfig(board="accelerator", cpu=0.2)
"""With 0.2 core ResNet50 runs at about the two frames a second published for a Jetson TX2."""


def boards(config: LabConfig) -> tuple[DeviceConfig, ...]:
    """The boards in order, each with its name and all that is settled; raises `ValueError` if two
    have one name or there are too many."""
    found: list[DeviceConfig] = []
    usual = {**_given(USUAL), **_given(config.defaults)}
    for line in config.devices:
        for number in range(1, line.count + 1):
            if line.name is None:
                name = f"node{len(found) + 1}"
            else:
                name = line.name if line.count == 1 else f"{line.name}{number}"
            found.append(DeviceConfig(**{**usual, **_given(line), "name": name, "count": 1}))
    if len(found) > MOST_DEVICES:
        raise ValueError(f"{len(found)} devices are more than the {MOST_DEVICES} that fit")
    twice = [name for name, times in Counter(one.name for one in found).items() if times > 1]
    if twice:
        raise ValueError(f"{twice[0]!r} is the name of two devices")
    return tuple(found)


def _given(config: BoardConfig) -> dict[str, Any]:
    return config.model_dump(exclude_none=True)


def check(source: ParsedFile) -> LabConfig:
    """The configuration in `source`; raises `BadInputError` for its first mistake."""
    if not isinstance(source.data, dict):
        raise source.error((), "must be a mapping with the key devices")
    config = validated_as(source, LabConfig, _known_keys)
    try:
        boards(config)
    except ValueError as error:
        raise source.error(("devices",), str(error)) from None
    return config


def load(path: Path) -> LabConfig:
    """Read and check a `lab.yaml`; raises `BadInputError` in one sentence."""
    return check(read_source(path))


def _known_keys(location: Location) -> tuple[str, ...]:
    path = tuple(part for part in location if isinstance(part, str))
    models: dict[tuple[str, ...], type[BaseModel]] = {
        (): LabConfig,
        ("defaults",): BoardConfig,
        ("devices",): DeviceConfig,
    }
    return tuple(models[path].model_fields) if path in models else ()
