"""Limit a port's connections, and the log lines about rejected ones.

A connection is *unknown* until its owner is identified: by a key that is admitted or, where there
are no keys, by its first message. A member of the cluster is identified within milliseconds. A
stranger can hold connections open for as long as a handshake may take, and open new ones. Known and
unknown connections therefore have separate limits, and a new connection is always accepted:

- If there are too many unknown connections, the oldest one of the address with the most of them is
  closed. A stranger's connections displace each other. They displace one of another address only
  once that address has the most of them. They displace one of the same address if, while its
  handshake lasts, as many arrive as the limit allows.
- If there are too many known connections, the newest one of the owner with the most of them is
  closed, so a board that was taken over displaces only itself.

`Rejections` limits the rate of log lines, because a flood must not fill the disk. The first
rejection of a kind is logged at once. Those that follow are counted, and logged in one line when a
pause is over. The pause begins with one second and doubles up to a minute while rejections keep
coming, so slow but steady attempts do not fill the disk either. A rejection after a pause without
any is logged at once; only a whole minute without any sets the pause back to one second.
"""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import IPv6Address, ip_address

NETWORK_BITS = 64
"""The prefix of an IPv6 address that identifies its network; the owner chooses the other bits."""

SHORTEST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 60.0

MAX_KINDS = 64
"""The most kinds of rejection that are counted apart; all others are counted as one kind."""

LONGEST_TEXT = 500
"""Characters of a log line; peers choose part of its text."""


def origin_of(host: str) -> str:
    """Return what connections are counted by: an IPv4 address, or the network of an IPv6 one."""
    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if not isinstance(address, IPv6Address):
        return host
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    rest = 128 - NETWORK_BITS
    return f"{IPv6Address(int(address) >> rest << rest)}/{NETWORK_BITS}"


class Admission:
    """The connections of one port, by number, and which of them to close if there are too many."""

    def __init__(self, max_known: int, max_unknown: int) -> None:
        self._max_known = max_known
        self._max_unknown = max_unknown
        self._origins: dict[int, str] = {}
        self._unknown: dict[str, dict[int, None]] = {}
        self._known: dict[int, str] = {}

    def __contains__(self, connection: int) -> bool:
        return connection in self._origins

    def __len__(self) -> int:
        return len(self._origins)

    @property
    def unknown(self) -> int:
        """The number of connections whose owners are unknown."""
        return len(self._origins) - len(self._known)

    def origin(self, connection: int) -> str:
        """Return where a connection comes from; empty if there is no such connection."""
        return self._origins.get(connection, "")

    def opened(self, connection: int, origin: str) -> None:
        """Add a new connection, which may have the number of a former one."""
        self.closed(connection)
        self._origins[connection] = origin
        self._unknown.setdefault(origin, {})[connection] = None

    def identified(self, connection: int, owner: str) -> None:
        """Note the owner of a connection, which counts as known from now on."""
        if connection in self._origins:
            self._forget_unknown(connection)
            self._known[connection] = owner

    def is_known(self, connection: int) -> bool:
        """Return whether the connection's owner is known."""
        return connection in self._known

    def closed(self, connection: int) -> None:
        """Remove a connection that has closed."""
        if connection in self._origins:
            self._forget_unknown(connection)
            self._known.pop(connection, None)
            del self._origins[connection]

    def next_to_close(self) -> int | None:
        """Return the connection to close next; None if there is room for all."""
        if self.unknown > self._max_unknown:
            largest = max(self._unknown, key=lambda origin: len(self._unknown[origin]))
            return next(iter(self._unknown[largest]))
        if len(self._known) > self._max_known:
            shares: dict[str, list[int]] = {}
            for connection, owner in self._known.items():
                shares.setdefault(owner, []).append(connection)
            return max(shares.values(), key=len)[-1]
        return None

    def _forget_unknown(self, connection: int) -> None:
        origin = self._origins[connection]
        others = self._unknown.get(origin, {})
        others.pop(connection, None)
        if not others:
            self._unknown.pop(origin, None)


@dataclass(slots=True)
class _Pause:
    until_s: float
    length_s: float
    suppressed: int = 0
    last_line: str = ""

    def begin_next(self, now_s: float) -> None:
        """Begin a pause of twice the length."""
        self.length_s = min(2 * self.length_s, LONGEST_PAUSE_S)
        self.until_s, self.suppressed = now_s + self.length_s, 0


class Rejections:
    """Decides which rejections of one agent are logged, and when."""

    def __init__(self) -> None:
        self._pauses: dict[str, _Pause] = {}

    @property
    def deadline_s(self) -> float | None:
        """When `due` next returns a line; None if no rejection waits to be logged."""
        if not self._pauses:
            return None
        waiting = (pause.until_s for pause in self._pauses.values() if pause.suppressed)
        return min(waiting, default=None)

    def note(self, what: str, why: str, now_s: float) -> str | None:
        """Count a rejection of the kind `what`, and return the line to log now, if any."""
        kind = what if what in self._pauses or len(self._pauses) < MAX_KINDS else ""
        pause = self._pauses.get(kind)
        line = f"{what}: {why}"[:LONGEST_TEXT]
        if pause is None or (now_s >= pause.until_s + LONGEST_PAUSE_S and not pause.suppressed):
            self._pauses[kind] = _Pause(now_s + SHORTEST_PAUSE_S, SHORTEST_PAUSE_S)
            return line
        if pause.suppressed or now_s < pause.until_s:
            pause.suppressed += 1
            pause.last_line = line
            return None
        pause.begin_next(now_s)
        return line

    def due(self, now_s: float) -> list[str]:
        """Return the lines to log now about rejections in pauses that are over."""
        lines = []
        for pause in self._pauses.values():
            if not pause.suppressed or now_s < pause.until_s:
                continue
            more = f" (the last of {pause.suppressed} in {pause.length_s:g} s)"
            lines.append(pause.last_line + (more if pause.suppressed > 1 else ""))
            pause.begin_next(now_s)
        return lines
