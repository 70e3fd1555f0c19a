"""The announcement of an agent by multicast DNS, by which `launch discover` finds it.

The protocols are those of RFC 6762 and RFC 6763. The service's type is `SERVICE`; its port is the
control port, and its TXT record holds a few short texts. Anybody on the network can announce
anything, so announcements are checked here and serve one purpose: to propose an entry for
`cluster.yaml`. Only an agent's key proves that it is the node that it claims to be.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from ipaddress import ip_address

SERVICE = "_csdf-edge._tcp.local."

MOST_ADDRESSES = 16
MOST_TEXTS = 32
LONGEST_TEXT = 100
"""Bounds of an announcement: addresses, texts, and bytes of a text."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")
_NUMBER = re.compile(r"\d{1,15}")


@dataclass(frozen=True, slots=True)
class Announcement:
    """An agent: its name, its addresses with the port of control connections, and what it is.

    `memory_bytes` is what it could allocate when it was started; None if it cannot tell. `guarded`
    says whether it uses keys.
    """

    name: str
    hosts: tuple[str, ...]
    port: int
    version: str = ""
    protocol: int = 0
    engine: str = ""
    machine: str = ""
    cores: int = 0
    memory_bytes: int | None = None
    guarded: bool = False

    @property
    def address(self) -> str:
        """Its first address as `cluster.yaml` has it."""
        host = self.hosts[0]
        return f"tcp://[{host}]:{self.port}" if ":" in host else f"tcp://{host}:{self.port}"

    @property
    def label(self) -> str:
        """Its name as the first label of the service's name, of at most 63 bytes."""
        return re.sub(r"[^A-Za-z0-9_-]+", "-", self.name)[:50] or "agent"

    def texts(self) -> dict[str, str]:
        """Return the TXT record."""
        memory = {} if self.memory_bytes is None else {"memory": str(self.memory_bytes)}
        written = {
            "name": self.name,
            "version": self.version,
            "protocol": str(self.protocol),
            "engine": self.engine,
            "machine": self.machine,
            "cores": str(self.cores),
            "keys": str(int(self.guarded)),
            **memory,
        }
        return {key: _cut(text) for key, text in written.items()}


def _cut(text: str) -> str:
    return text.encode("ascii", "replace")[:LONGEST_TEXT].decode("ascii")


def heard(
    hosts: Iterable[str], port: int, texts: Mapping[bytes, bytes | None]
) -> Announcement | None:
    """Return the announcement that was received; None unless it is a usable agent's.

    Addresses that a launcher cannot dial are left out: loopback, multicast, and those of one link.
    """
    usable = [host for host in list(hosts)[:MOST_ADDRESSES] if _is_usable(host)]
    usable.sort(key=lambda host: ":" in host)  # IPv4 first
    kept = list(texts.items())[:MOST_TEXTS]
    read = {key.decode("ascii", "replace"): _text(value) for key, value in kept}
    name = read.get("name", "")
    if not usable or not 1 <= port <= 65535 or _NAME.fullmatch(name) is None:
        return None
    memory = _number(read.get("memory", ""))
    return Announcement(
        name,
        tuple(dict.fromkeys(usable)),
        port,
        read.get("version", ""),
        _number(read.get("protocol", "")),
        read.get("engine", ""),
        read.get("machine", ""),
        _number(read.get("cores", "")),
        memory or None,
        read.get("keys") == "1",
    )


def _text(value: bytes | None) -> str:
    """Return a received text, without what a terminal could take for a command."""
    text = (value or b"")[:LONGEST_TEXT].decode("ascii", "replace")
    return "".join(c if c.isprintable() else "?" for c in text)


def _number(text: str) -> int:
    return int(text) if _NUMBER.fullmatch(text) else 0


def _is_usable(host: str) -> bool:
    try:
        address = ip_address(host)
    except ValueError:
        return False
    return not (
        address.is_loopback
        or address.is_multicast
        or address.is_unspecified
        or (address.version == 6 and address.is_link_local)
    )
