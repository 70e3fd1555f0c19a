"""Addresses as the transport writes them, `tcp://HOST:PORT` and `ipc://PATH`: who can reach one?

Addresses as the transport writes them: `tcp://HOST:PORT` and `ipc://PATH`.
"""

from __future__ import annotations

from ipaddress import ip_address


def data_address(offered: str, reached: str | None) -> str:
    """The address at which peers reach a data port that its agent offers as `offered`.

    A host of `0.0.0.0`, `*` or `::` there becomes `reached`, the host at which the agent itself was
    reached.
    """
    if reached is None or host_of(offered) not in ("0.0.0.0", "*", "::"):  # noqa: S104 - no binding
        return offered
    _, _, port = offered.rpartition(":")
    return f"tcp://[{reached}]:{port}" if ":" in reached else f"tcp://{reached}:{port}"


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
