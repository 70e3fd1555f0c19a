"""Who may stay connected to a port, and who has to go for somebody who comes.

A connection is *unknown* until its owner has made itself known: by a key that is admitted or,
where there are no keys, by a first message. Whoever belongs to the cluster does that within
milliseconds; a stranger can hold connections open for as long as a handshake may take, and open
others. So both kinds have room of their own, and a newcomer is never turned away for want of it:

- If there are too many unknown connections, the oldest one of the address with the most of them is
  closed. A stranger's connections push out each other. Those of another address they push out only
  once its share is the largest; those of the same address if as many as there is room for come in
  while one handshake lasts.
- If there are too many known ones, the newest of the owner with the most of them is closed: a board
  that was taken over pushes nobody out but itself.

How often a log tells that somebody was turned away: a flood of them must not fill a disk.

The first of a kind is told at once. Those that follow are counted, and told together when the pause
is over. It begins with a second and doubles while they keep coming, to a minute, so that somebody
who knocks seldom but steadily does not fill a disk either. One that comes after a pause in which
none came is told at once; a second's pause follows again only after a whole minute without any.
"""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import IPv6Address, ip_address

SHORTEST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 60.0

KINDS = 64
"""Kinds that are kept apart at most; whatever is beyond counts as one."""

LONGEST_TEXT = 500
"""Characters of a reason that are told: others chose its words."""


@dataclass(slots=True)
class _Pause:
    until_s: float
    seconds: float
    untold: int = 0
    last: str = ""

    def begin(self, now_s: float) -> None:
        """The next one, longer than this."""
        self.seconds = min(2 * self.seconds, LONGEST_PAUSE_S)
        self.until_s, self.untold = now_s + self.seconds, 0


class Rejections:
    """Those of one agent; `deadline_s` is when `due` has something to tell, None if never."""

    def __init__(self) -> None:
        self._pauses: dict[str, _Pause] = {}

    @property
    def deadline_s(self) -> float | None:
        """When the first pause ends in which something came."""
        if not self._pauses:
            return None
        waiting = (pause.until_s for pause in self._pauses.values() if pause.untold)
        return min(waiting, default=None)

    def note(self, what: str, why: str, now_s: float) -> str | None:
        """Somebody was turned away: the line to tell now, if any."""
        kind = what if what in self._pauses or len(self._pauses) < KINDS else ""
        pause = self._pauses.get(kind)
        line = f"{what}: {why}"[:LONGEST_TEXT]
        if pause is None or (now_s >= pause.until_s + LONGEST_PAUSE_S and not pause.untold):
            self._pauses[kind] = _Pause(now_s + SHORTEST_PAUSE_S, SHORTEST_PAUSE_S)
            return line
        if pause.untold or now_s < pause.until_s:
            pause.untold += 1
            pause.last = line
            return None
        pause.begin(now_s)
        return line

    def due(self, now_s: float) -> list[str]:
        """The lines to tell now of what came in pauses that are over."""
        told = []
        for pause in self._pauses.values():
            if not pause.untold or now_s < pause.until_s:
                continue
            more = f" (the last of {pause.untold} in {pause.seconds:g} s)"
            told.append(pause.last + (more if pause.untold > 1 else ""))
            pause.begin(now_s)
        return told


NETWORK_BITS = 64
"""Of an IPv6 address these say whose it is; the rest its owner may choose."""


def origin_of(host: str) -> str:
    """Whom an IP address belongs to, as far as it tells: itself, or its network in IPv6."""
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
    """The connections of one port, by number: at most so many known and so many unknown ones."""

    def __init__(self, most_known: int, most_unknown: int) -> None:
        self._most_known = most_known
        self._most_unknown = most_unknown
        self._origins: dict[int, str] = {}
        self._unknown: dict[str, dict[int, None]] = {}
        self._known: dict[int, str] = {}

    def __contains__(self, connection: int) -> bool:
        return connection in self._origins

    def __len__(self) -> int:
        return len(self._origins)

    @property
    def unknown(self) -> int:
        """How many have not made themselves known."""
        return len(self._origins) - len(self._known)

    def origin(self, connection: int) -> str:
        """Where a connection comes from; empty for one that is not here."""
        return self._origins.get(connection, "")

    def came(self, connection: int, origin: str) -> None:
        """There is a new connection, or another one of the same number."""
        self.left(connection)
        self._origins[connection] = origin
        self._unknown.setdefault(origin, {})[connection] = None

    def introduced(self, connection: int, owner: str) -> None:
        """The owner of a connection has made itself known."""
        if connection in self._origins:
            self._forget_unknown(connection)
            self._known[connection] = owner

    def is_known(self, connection: int) -> bool:
        """Whether its owner has made itself known."""
        return connection in self._known

    def left(self, connection: int) -> None:
        """A connection has ended."""
        if connection in self._origins:
            self._forget_unknown(connection)
            self._known.pop(connection, None)
            del self._origins[connection]

    def has_to_go(self) -> int | None:
        """The connection that is to be closed first; None if there is room for all."""
        if self.unknown > self._most_unknown:
            largest = max(self._unknown, key=lambda origin: len(self._unknown[origin]))
            return next(iter(self._unknown[largest]))
        if len(self._known) > self._most_known:
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
