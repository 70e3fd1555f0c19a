"""Finds out whether an agent's address is on this machine, whose cores the agents then share."""

from __future__ import annotations

import socket
from ipaddress import ip_address

from nodes.protocol.addresses import host_of, is_loopback


def is_here(address: str | None) -> bool:
    """Whether an agent with this address (None: the launcher starts it) is on this machine.

    It is if the address is loopback, this machine's name or one of its own addresses. Any other
    name is taken for another machine's, because looking it up may take seconds without a network.
    So are addresses of network namespaces and containers, which have links of their own.
    """
    if address is None or is_loopback(address.lower()):
        return True
    host = host_of(address)
    return host is not None and (_is_name_of_ours(host) or _is_address_of_ours(host))


def _is_name_of_ours(host: str) -> bool:
    return host.lower() == socket.gethostname().lower()


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
