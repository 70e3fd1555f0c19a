"""The members of `nodes` in `cluster.yaml`."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationInfo,
    field_validator,
)

from launcher.config.units import parse_bytes, parse_link, parse_speed

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
"""What nodes and networks may be called."""

_ADDRESS = re.compile(r"tcp://(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9][A-Za-z0-9.-]*):(\d{1,5})")


class NodeConfig(BaseModel):
    """One device. Without an address, `launch` starts its agent on this machine."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)

    name: Annotated[str, Field(description="Unique; letters, digits, '.', '_' and '-'")]
    address: Annotated[
        str | None, Field(description="Where its node-agent listens: tcp://HOST:PORT")
    ] = None
    memory: Annotated[
        int | None,
        BeforeValidator(
            lambda value: None if value is None else parse_bytes(value),
            json_schema_input_type=int | str | None,
        ),
        Field(description="What its agent may hold at most: 4GB, 512MiB or bytes"),
    ] = None
    threads: Annotated[int, Field(ge=1, le=1024, description="Threads of its engine")] = 1
    macs_per_s: Annotated[
        float | None,
        BeforeValidator(
            lambda value: None if value is None else parse_speed(value),
            json_schema_input_type=float | str | None,
        ),
        Field(description="Speed in multiply-accumulates per second, such as 2e10 or 20G"),
    ] = None
    accelerator: Annotated[
        bool, Field(description="Whether a GPU or NPU computes while the CPU serves the network")
    ] = False
    cache: Annotated[
        int | None,
        BeforeValidator(
            lambda value: None if value is None else parse_bytes(value),
            json_schema_input_type=int | str | None,
        ),
        Field(description="Its accelerator's own memory for weights, such as 8MiB; none: no limit"),
    ] = None
    busy_w: Annotated[float, Field(ge=0, description="Watts while it computes")] = 10.0
    idle_w: Annotated[float, Field(ge=0, description="Watts while it waits")] = 2.5
    link: Annotated[
        float | None,
        BeforeValidator(
            lambda value: None if value is None else parse_link(value),
            json_schema_input_type=str | None,
        ),
        Field(description="Its network interface's rate in each direction: 1Gbit/s"),
    ] = None
    standby: Annotated[
        bool, Field(description="Whether it is used only once another node is lost")
    ] = False
    cpus: Annotated[
        tuple[Annotated[int, Field(ge=0)], ...],
        Field(description="CPUs that the agent started here is bound to; none: all"),
    ] = ()

    @field_validator("name")
    @classmethod
    def _check_name(cls, name: str) -> str:
        if name.startswith("@"):
            raise ValueError(f"{name!r} is taken: names with '@' are the launcher's own")
        if not NAME.fullmatch(name):
            raise ValueError(
                f"{name!r} is no name for a node: use 1 to 64 letters, digits, '.', '_' and '-', "
                "a letter or digit first"
            )
        return name

    @field_validator("address")
    @classmethod
    def _check_address(cls, address: str | None) -> str | None:
        if address is None:
            return None
        match = _ADDRESS.fullmatch(address)
        if match is None or not 1 <= int(match[2]) <= 65535:
            raise ValueError(
                f"{address!r} is no address of an agent; write tcp://HOST:PORT, "
                "such as tcp://192.168.1.20:5500"
            )
        return address

    @field_validator("cpus")
    @classmethod
    def _check_cpus(cls, cpus: tuple[int, ...], info: ValidationInfo) -> tuple[int, ...]:
        if cpus and info.data.get("address") is not None:
            raise ValueError(
                "applies only to a node without an address, whose agent launch starts itself; "
                "give the agent on that machine its CPUs there"
            )
        return cpus
