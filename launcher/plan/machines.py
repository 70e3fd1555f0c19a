"""Says which nodes are parts of one machine, and whether that is this one.

The CPU and the GPU of a board are two nodes with an agent each. They share the board's memory and
its link, and a tensor between them does not pass the link. How many cores the board has is not
known before its agents are asked, so each of its nodes is taken to have its own processor.
"""

from __future__ import annotations

import socket
from collections import Counter
from collections.abc import Iterable
from ipaddress import IPv6Address, ip_address

from launcher.config.node import NodeConfig
from nodes.protocol.addresses import host_of, is_loopback_host

THIS_MACHINE = "this machine"
"""The name of the machine that the launcher runs on."""


def machine_of(node: NodeConfig) -> str:
    """Return the name of the machine that a node is a part of; `THIS_MACHINE` for this one.

    It is what the user wrote (`host:`), or else the host of its address, in whichever form that is
    written. A node without an address is on this machine, and so is a host that is loopback, this
    machine's name or one of its addresses. Any other name is taken for another machine's, because
    looking it up may take seconds without a network. So are addresses of network namespaces and
    containers, which have their own links.
    """
    host = node.host if node.host is not None else host_of(node.address or "")
    if host is None:
        return THIS_MACHINE
    host = _as_one_writes(host)
    is_ours = is_loopback_host(host) or host == socket.gethostname().lower()
    return THIS_MACHINE if is_ours or _is_address_of_ours(host) else host


def shared_machines(nodes: Iterable[NodeConfig]) -> dict[str, int]:
    """Return the number of nodes on each machine that has several, without this machine."""
    counted = Counter(map(machine_of, nodes))
    return {name: count for name, count in counted.items() if count > 1 and name != THIS_MACHINE}


def sharing_machines(nodes: Iterable[NodeConfig]) -> dict[str, int]:
    """Return for each node the number of nodes on its machine, itself included."""
    machines = {node.name: machine_of(node) for node in nodes}
    counted = Counter(machines.values())
    return {name: counted[machine] for name, machine in machines.items()}


def _as_one_writes(host: str) -> str:
    """Return a name in lower case, and an address in its usual form."""
    try:
        address = ip_address(host)
    except ValueError:
        return host.lower()
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return str(mapped or address)


def _is_address_of_ours(host: str) -> bool:
    """Whether the route to `host` starts at `host`, as it does for a machine's own addresses.

    No packet is sent. A test whether a socket can be bound to the address would prove less, because
    machines that stand in for one another are set up to bind foreign addresses.
    """
    try:
        address = ip_address(host)
        family = socket.AF_INET6 if address.version == 6 else socket.AF_INET
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((host, 9))
            source = probe.getsockname()[0]
    except (ValueError, OSError):
        return False
    return address.is_unspecified or ip_address(source) == address
