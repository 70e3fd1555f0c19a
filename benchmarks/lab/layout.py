"""Derives the names and addresses of a laboratory from its name and its boards.

    csdflabNAME ── host0 ┐                             ┌ p1 ── eth0, in csdflab-NAME-BOARD1
    (this machine)       ├ br0, in csdflab-NAME.switch ┤
                         ┘                             └ p2 ── eth0, in csdflab-NAME-BOARD2

The bridge has a namespace of its own, so that only one interface of the laboratory is visible on
this machine, and so that a board's cable can be pulled at the switch.
"""

from __future__ import annotations

import ipaddress
import math
import zlib
from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from benchmarks.lab.cgroups import Group, Hierarchies
from benchmarks.lab.config import DeviceConfig, LabConfig, boards

PREFIX = "csdflab"
"""How the name of everything begins that a laboratory makes."""

PORT = 5500
"""Of the agents, each at its own address."""

BRIDGE, UPLINK, INTERFACE = "br0", "host0", "eth0"


def probe_name(lab: str) -> str:
    """What is made and removed again to see whether it can be made."""
    return f"{group_name(lab)}.probe"


def group_name(lab: str) -> str:
    """The control group of a laboratory, and how the names of its namespaces begin."""
    return f"{PREFIX}-{lab}"


@dataclass(frozen=True)
class Place:
    """Where one board is."""

    slice: DeviceConfig
    host: str
    namespace: str
    switch_port: str
    folder: Path

    @property
    def address(self) -> str:
        """Where its agent listens."""
        return f"tcp://{self.host}:{PORT}"

    @property
    def cache(self) -> Path:
        """Where its agent keeps subnets; with `disk`, a file system of its own."""
        return self.folder / "cache"

    @property
    def home(self) -> Path:
        """The user's cache of its agent, where it keeps what is not of one network."""
        return self.folder / "home"

    @property
    def image(self) -> Path:
        """What that file system lies in."""
        return self.folder / "disk.img"

    @property
    def log(self) -> Path:
        """What its agent says."""
        return self.folder / "agent.log"


@dataclass(frozen=True)
class Cpus:
    """CPUs of this machine: those on which boards compute, and those for all else."""

    compute: tuple[int, ...]
    rest: tuple[int, ...]


def separate_cpus(config: LabConfig, allowed: Collection[int]) -> Cpus | None:
    """Which of the allowed CPUs compute, or None if boards and the rest share all of them.

    An accelerator does no work for the network. But the kernel handles a packet on the CPU that
    sent it. It interrupts the thread that runs there, and counts the time as that thread's. Boards
    that send much would therefore slow each other's computing threads, and replicas, which send
    nothing, would not. So the slices of an `undisturbed` laboratory of accelerator boards get CPUs
    of their own, if they fit on fewer than there are.
    """
    found = boards(config)
    count = math.ceil(sum(board.cpu or 0.0 for board in found))
    ordered = tuple(sorted(allowed))
    fits = count < len(ordered) and all(board.board == "accelerator" for board in found)
    return Cpus(ordered[:count], ordered[count:]) if config.undisturbed and fits else None


@dataclass(frozen=True)
class Layout:
    """A laboratory with this network, such as `10.78.9.0/24`, and its control groups."""

    config: LabConfig
    folder: Path
    network: str
    found: Hierarchies
    cpus: Cpus | None = None

    @property
    def name(self) -> str:
        """The laboratory's name."""
        return self.config.name

    @property
    def keys(self) -> Path:
        """The folder of its machines' keys, where it has any."""
        return self.folder / "keys"

    @property
    def group(self) -> str:
        """The name of its control group."""
        return group_name(self.name)

    @property
    def switch(self) -> str:
        """The namespace of its bridge."""
        return f"{self.group}.switch"

    @property
    def host_interface(self) -> str:
        """The one interface on this machine; Linux lets it have 15 characters."""
        return f"{PREFIX}{self.name}"

    @property
    def host_address(self) -> str:
        """This machine's own address in the laboratory, with the length of the prefix."""
        net = ipaddress.ip_network(self.network)
        return f"{net.broadcast_address - 1}/{net.prefixlen}"

    @cached_property
    def places(self) -> dict[str, Place]:
        """All boards by name, in order."""
        first = ipaddress.ip_network(self.network).network_address
        return {
            board.name: Place(
                slice=board,
                host=str(first + number),
                namespace=f"{self.group}-{board.name}",
                switch_port=f"p{number}",
                folder=self.folder / board.name,
            )
            for number, board in enumerate(boards(self.config), 1)
        }

    def group_of(self, place: Place) -> Group:
        """A board's control groups."""
        return Group(self.found, self.group, place.slice.name, place.slice.board)


def free_network(taken: list[str], name: str) -> str:
    """A /24 of 10.78.0.0/16 that none of these addresses (`ADDRESS/LENGTH`) lies in.

    Where the search begins depends on the laboratory's name, so that two that are made at the same
    time do not find the same one. Raises `ValueError` if there is none.
    """
    first = zlib.crc32(name.encode())
    nets = [ipaddress.ip_interface(one).network for one in taken if ":" not in one]
    for third in range(256):
        candidate = ipaddress.ip_network(f"10.78.{(first + third) % 256}.0/24")
        if not any(candidate.overlaps(net) for net in nets):
            return str(candidate)
    raise ValueError("no network 10.78.x.0/24 is free on this machine")
