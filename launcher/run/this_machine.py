"""Which agents run on this machine, whose cores they share and whose links they do not need."""

from __future__ import annotations

import socket
from ipaddress import ip_address

from nodes.protocol.addresses import host_of, is_loopback


def is_here(address: str | None) -> bool:
    """Whether an agent with this address (None: the launcher starts it) is on this machine.

    It is if the address is loopback, this machine's name or one of its own addresses. Other names
    are taken for those of other machines: to look one up may take seconds where there is no
    network. So are addresses of network namespaces and containers, which have links of their own.
    """
    if address is None or is_loopback(address.lower()):
        return True
    host = host_of(address)
    return host is not None and (_is_name_of_ours(host) or _is_address_of_ours(host))


def _is_name_of_ours(host: str) -> bool:
    return host.lower() == socket.gethostname().lower()


def _is_address_of_ours(host: str) -> bool:
    """What a machine sends to one of its own addresses comes from that address; nothing is sent.

    That a socket can be bound there proves less: machines that stand in for one another are set
    up to bind any address.
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
