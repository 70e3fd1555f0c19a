"""Announces an agent by multicast DNS while it runs (`node-agent --announce`).

The package `zeroconf` does the work, in its own thread. It is imported only here and only if asked
for: it takes 3.5 MB of an agent's memory (decision 062).
"""

from __future__ import annotations

import ipaddress
import logging
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec

from nodes.protocol.addresses import host_of, is_exposed
from nodes.protocol.announcements import MOST_ADDRESSES, SERVICE, Announcement
from nodes.protocol.errors import NodeError

MISSING = "--announce needs the package zeroconf: pip install 'csdf-edge[discover]'"

log = logging.getLogger("node-agent")

_ANY = ("0.0.0.0", "*", "::")  # noqa: S104 - compared, not bound


class AnnouncingError(NodeError):
    """An agent cannot be announced: why, and what to do."""


def check_can_announce(address: str) -> None:
    """Raise `AnnouncingError` if an agent with this control address cannot be announced."""
    if not is_exposed(address):
        raise AnnouncingError(
            f"--announce: no other machine can reach {address}; listen on an address of the "
            "network, such as --listen tcp://0.0.0.0:5500"
        )
    if find_spec("zeroconf") is None:
        raise AnnouncingError(MISSING)


def hosts_of(address: str) -> tuple[str, ...]:
    """Return the IP addresses at which other machines reach a control address."""
    host = str(host_of(address))
    if host not in _ANY:
        return (host,)
    import ifaddr  # noqa: PLC0415 - comes with zeroconf

    found = [
        str(each.ip if each.is_IPv4 else each.ip[0])
        for adapter in ifaddr.get_adapters()
        for each in adapter.ips
        if each.is_IPv4 or host == "::"
    ]
    return tuple(each for each in found if not ipaddress.ip_address(each).is_loopback)


@contextmanager
def announced(announcement: Announcement) -> Iterator[None]:
    """Announce the agent within the block, and take it back at its end.

    Where that is impossible, such as without a network, a warning is logged; the agent works all
    the same.
    """
    import zeroconf  # noqa: PLC0415 - most agents do without

    hosts = announcement.hosts[:MOST_ADDRESSES]
    info = zeroconf.ServiceInfo(
        SERVICE,
        f"{announcement.label}.{SERVICE}",
        addresses=[ipaddress.ip_address(host).packed for host in hosts],
        port=announcement.port,
        properties=announcement.texts(),
    )
    with ExitStack() as ending:
        try:
            if not hosts:
                raise OSError("this machine has no address in a network")
            responder = zeroconf.Zeroconf(interfaces=list(hosts))
            ending.callback(responder.close)
            responder.register_service(info, allow_name_change=True)
        except (OSError, RuntimeError, zeroconf.Error) as error:
            log.warning("this agent is not announced: %s", error or type(error).__name__)
        yield
