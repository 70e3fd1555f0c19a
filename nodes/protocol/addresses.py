"""Addresses as the transport writes them, `tcp://HOST:PORT` and `ipc://PATH`: who can reach one?"""

from __future__ import annotations

from ipaddress import ip_address


def host_of(address: str) -> str | None:
    """The host of a tcp address, without an IPv6 address's brackets; None for other transports."""
    if not address.startswith("tcp://"):
        return None
    host, _, _ = address.removeprefix("tcp://").rpartition(":")
    return host.strip("[]")


def is_loopback(address: str) -> bool:
    """Whether only its own machine can reach it over tcp."""
    host = host_of(address)
    if host is None:
        return False
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def is_exposed(address: str) -> bool:
    """Whether other machines may be able to reach it: over tcp, and not by loopback alone."""
    return host_of(address) is not None and not is_loopback(address)
