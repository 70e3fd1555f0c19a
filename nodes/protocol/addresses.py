"""Read ZeroMQ addresses (`tcp://HOST:PORT`, `ipc://PATH`): host, reachability, data address."""

from __future__ import annotations

from collections.abc import Collection
from ipaddress import ip_address

MOST_PORT = 65535
PORTS_PER_SLOT = 2
"""The control port of a slot, and the data port after it."""

PRIVATE_NAMES = (
    ".localhost",
    ".local",
    ".internal",
    ".lan",
    ".home.arpa",
    ".svc",
    ".cluster.local",
)
"""Ends of names that the DNS of the Internet does not have."""


def data_address(offered: str, reached: str | None) -> str:
    """Return the address at which peers reach a data port that its agent announces as `offered`.

    If the agent listens on all interfaces (`0.0.0.0`, `*` or `::`), its host is replaced by
    `reached`, the host at which the launcher has reached the agent's control port.
    """
    if reached is None or host_of(offered) not in ("0.0.0.0", "*", "::"):  # noqa: S104 - no binding
        return offered
    return on_host(reached, offered.rpartition(":")[2])


def on_host(host: str, port: int | str) -> str:
    """Return the TCP address of a port of a host.

    >>> on_host("fe80::1", 5501)
    'tcp://[fe80::1]:5501'
    """
    return f"tcp://[{host}]:{port}" if ":" in host else f"tcp://{host}:{port}"


def host_of(address: str) -> str | None:
    """Return the host of a TCP address, an IPv6 one without brackets; None for other transports."""
    if not address.startswith("tcp://"):
        return None
    host, _, _ = address.removeprefix("tcp://").rpartition(":")
    return host.strip("[]")


def is_loopback(address: str) -> bool:
    """Return whether it is a TCP address that only its own machine can reach."""
    host = host_of(address)
    return host is not None and is_loopback_host(host)


def is_loopback_host(host: str) -> bool:
    """Return whether only its own machine can reach this host name or IP address."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def is_own_host(header: str, known: Collection[str] = ()) -> bool:
    """Return whether a `Host` of HTTP names a machine nearby: one of `known`, an address, a private
    name, or a name of one word.

    A page on the web can have its own name resolved to an address nearby (DNS rebinding). The
    browser then takes what answers there for the page's own server; but it sends the page's name.
    """
    if header.startswith("["):
        return True
    name = header.partition(":")[0].lower().rstrip(".")
    if "." not in name or name in known or name.endswith(PRIVATE_NAMES):
        return True
    return is_ip_address(name)


def is_ip_address(host: str) -> bool:
    """Return whether a host is an IP address, and no name that must be looked up."""
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def is_exposed(address: str) -> bool:
    """Return whether other machines may reach it: a TCP address that is not loopback."""
    return host_of(address) is not None and not is_loopback(address)


def slot_address(address: str, slot: int) -> str:
    """Return the control address of a node's slot 1, 2, …, if the node is at a TCP `address`.

    >>> slot_address("tcp://192.168.1.21:5500", 2)
    'tcp://192.168.1.21:5502'
    """
    host, _, port = address.rpartition(":")
    return f"{host}:{int(port) + PORTS_PER_SLOT * (slot - 1)}"


def slot_ports(address: str, slots: int) -> range:
    """Return the ports that a node with `slots` slots has at a TCP address.

    >>> slot_ports("tcp://192.168.1.21:5500", 2)
    range(5500, 5504)
    """
    port = int(address.rpartition(":")[2])
    return range(port, port + PORTS_PER_SLOT * slots)
