"""Declares the keys of a node in `cluster.yaml`."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import Field, ValidationInfo, field_validator

from launcher.config.strict import StrictModel, matching, name_of
from launcher.config.units import Bytes, LinkRate, Speed, brief
from nodes.core.engines import AUTO
from nodes.core.slots import MOST_SLOTS
from nodes.protocol.addresses import MOST_PORT, slot_ports
from nodes.protocol.messages import EngineChoice, EngineOption
from partition.devices import CacheSpill
from partition.wire import Wire

_WORD = re.compile("[a-z0-9][a-z0-9_.:-]{0,63}")
_Word = Annotated[str, matching(_WORD, "is not a name such as auto, openvino, gpu:1 or fp16")]

_ADDRESS = re.compile(
    r"tcp://(\[[0-9A-Fa-f:.]+(?:%[A-Za-z0-9._-]+)?\]|[A-Za-z0-9_][A-Za-z0-9._-]*):(\d{1,5})",
    re.ASCII,
)
"""TCP, to a name or an IP address, of which an IPv6 one may have its interface: fe80::1%eth0."""

SSH = re.compile(
    r"(?:(?P<user>[A-Za-z0-9_][A-Za-z0-9_.-]*)@)?"
    r"(?:\[(?P<ipv6>[0-9A-Fa-f:.]+(?:%[A-Za-z0-9._-]+)?)\]|(?P<host>[A-Za-z0-9][A-Za-z0-9._-]*))"
    r"(?::(?P<port>\d{1,5}))?"
)
"""What `ssh:` of a node may be: HOST, USER@HOST, USER@HOST:PORT."""


_AT_AN_ADDRESS = {
    "data": "; launch knows the ports of the agents that it starts itself",
    "slots": "; an agent that launch starts itself is used by nobody else",
    "host": "; launch starts the others on this machine",
    "ssh": "",
}
"""Keys of nodes with an address only, and why the others have none."""

_STARTED_HERE = ("cpus", "meter")
"""Keys of nodes without an address only."""


class NodeConfig(StrictModel):
    """One device. Without an address, `launch` starts its agent on this machine."""

    name: Annotated[
        str,
        matching(
            re.compile("(?!@).*", re.DOTALL),
            "is reserved: names that begin with '@' are for the launcher; choose another",
        ),
        name_of("a node's name"),
        Field(description="Unique name; letters, digits, '.', '_' and '-'"),
    ]
    address: Annotated[
        str | None, Field(description="Where its node-agent listens: tcp://HOST:PORT")
    ] = None
    data: Annotated[
        int | str | None,
        Field(
            description="Where others reach its agent's data port: a port at the host of its "
            "address, or tcp://HOST:PORT; by default what the agent reports, or the "
            "port after that of its address"
        ),
    ] = None
    ssh: Annotated[
        Annotated[str, matching(SSH, "is not an address for ssh; write USER@HOST:PORT")] | None,
        Field(
            description="Address of its board for ssh, used by launch upgrade: USER@HOST:PORT; by "
            "default the host of its address"
        ),
    ] = None
    slots: Annotated[
        int,
        Field(
            ge=1,
            le=MOST_SLOTS,
            description="Number of slots that its node-agent was started with; the first free one "
            "is used",
        ),
    ] = 1
    host: Annotated[
        str | None,
        Field(
            min_length=1,
            description="Name of the machine that it is a part of, for several nodes on one board; "
            "by default the host of its address",
        ),
    ] = None
    memory: Annotated[
        Bytes, Field(description="Memory that its agent may use at most: 4GB, 512MiB or bytes")
    ] = None
    threads: Annotated[
        int | None,
        Field(
            ge=1,
            le=1024,
            description="Threads of its engine; by default those that its board computes with "
            "best, shared by the nodes of a machine",
        ),
    ] = None
    engine: Annotated[
        _Word,
        Field(description="Engine: auto, onnxruntime, openvino, tensorrt, tvm, a plugin's"),
    ] = AUTO
    device: Annotated[
        _Word, Field(description="Device that it computes on: auto, cpu, gpu, gpu:1, npu")
    ] = AUTO
    precision: Annotated[
        _Word, Field(description="Precision that it computes in: fp32; fp16 or int8 where offered")
    ] = "fp32"
    engine_options: Annotated[
        dict[str, str | int | float | bool],
        Field(description="The engine's own settings, by name; `node-agent --describe` lists them"),
    ] = {}
    macs_per_s: Annotated[
        Speed, Field(description="Speed in multiply-accumulates per second, such as 2e10 or 20G")
    ] = None
    accelerator: Annotated[
        bool | None,
        Field(
            description="Whether a GPU or NPU computes while the CPU serves the network; by "
            "default if its agent computes on one, or its board has a core to spare"
        ),
    ] = None
    cache: Annotated[
        Bytes,
        Field(
            description="Its accelerator's own memory for weights, such as 8MiB; without it no "
            "limit"
        ),
    ] = None
    cache_spill: Annotated[
        CacheSpill,
        Field(description="What stays outside a full cache: bytes of weights, or whole layers"),
    ] = "bytes"
    busy_w: Annotated[float, Field(ge=0, description="Watts while it computes")] = 10.0
    idle_w: Annotated[float, Field(ge=0, description="Watts while it waits")] = 2.5
    link: Annotated[
        LinkRate,
        Field(description="Rate of its network interface in each direction, such as 1Gbit/s"),
    ] = None
    wire: Annotated[
        Wire | None,
        Field(
            description="How float32 tensors are encoded that its link carries to and from other "
            "nodes; by default as for all"
        ),
    ] = None
    standby: Annotated[
        bool, Field(description="Whether it is used only once another node is lost")
    ] = False
    cpus: Annotated[
        tuple[Annotated[int, Field(ge=0)], ...],
        Field(description="CPUs that the agent started here is bound to; by default all"),
    ] = ()
    meter: Annotated[
        Annotated[str, matching(_WORD, "is not auto, none or the name of a plugin")],
        Field(
            description="How to measure the energy of an agent that launch starts: auto, none, or "
            "a plugin's name"
        ),
    ] = AUTO

    @property
    def data_address(self) -> str | None:
        """The address of its data port (that of slot 1), if the user says one."""
        if not isinstance(self.data, int):
            return self.data
        return f"{str(self.address).rpartition(':')[0]}:{self.data}"

    @property
    def choice(self) -> EngineChoice:
        """What its agent has to compute with."""
        options = tuple(
            EngineOption(name, str(value).lower() if isinstance(value, bool) else str(value))
            for name, value in self.engine_options.items()
        )
        return EngineChoice(self.engine, self.device, self.precision, options)

    @field_validator("address")
    @classmethod
    def _check_address(cls, address: str | None) -> str | None:
        if address is None:
            return None
        match = _ADDRESS.fullmatch(address)
        if match is None or not 1 <= int(match[2]) <= 65535:
            raise ValueError(
                f"{address!r} is not an agent's address; write tcp://HOST:PORT, "
                "such as tcp://192.168.1.20:5500 or tcp://[fd00::20]:5500"
            )
        return address

    @field_validator(*_AT_AN_ADDRESS, *_STARTED_HERE)
    @classmethod
    def _check_side(cls, value: object, info: ValidationInfo) -> object:
        name = info.field_name or ""
        is_usual = value == cls.model_fields[name].default
        if is_usual or "address" not in info.data:  # the address has its own error
            return value
        is_here = info.data["address"] is None
        if is_here and name in _AT_AN_ADDRESS:
            raise ValueError(f"applies only to a node with an address{_AT_AN_ADDRESS[name]}")
        if not is_here and name in _STARTED_HERE:
            raise ValueError(
                "applies only to a node without an address, whose agent launch starts itself; "
                f"start the other machine's agent with --{name} instead"
            )
        return value

    @field_validator("data", mode="before")
    @classmethod
    def _check_data(cls, data: object, info: ValidationInfo) -> object:
        if data is None or info.data.get("address") is None:  # `_check_side` says so
            return data
        match = _ADDRESS.fullmatch(data) if isinstance(data, str) else None
        port = int(match[2]) if match is not None else data
        if type(port) is not int or not 1 <= port <= MOST_PORT:
            raise ValueError(
                f"{brief(data)} is not the address of a data port; write its number, such as "
                "5741, or tcp://HOST:PORT"
            )
        return data

    @field_validator("slots")
    @classmethod
    def _check_slots(cls, slots: int, info: ValidationInfo) -> int:
        address = info.data.get("address")
        if slots == 1 or address is None:
            return slots
        last = slot_ports(address, slots).stop - 1
        if last > MOST_PORT:
            raise ValueError(f"{slots} slots at {address} would need ports up to {last}")
        data = info.data.get("data")
        last = int(str(data).rpartition(":")[2]) + 2 * (slots - 1) if data is not None else 0
        if last > MOST_PORT:
            raise ValueError(f"{slots} slots with data port {data} would need ports up to {last}")
        return slots
