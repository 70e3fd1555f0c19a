"""Who may command an agent: one launcher at a time, for as long as it lets us hear from it.

    FREE ──Hello──▶ HELD ──its connection closes──▶ LOST
      ▲               │ ▲                             │ │
      └─Bye, lease────┘ └──Hello of the same session──┘ └─ Hello of the same owner: HELD by that one

Any message renews the lease; after `lease_s` of silence the session is over, HELD or LOST. `Hello`
of the same session from another connection (the launcher has reconnected) moves it there.

A launcher that died must not keep the next one waiting. Mostly the kernel tells that it died: it
closes the connection. Where the network was down just then, nobody tells, and the session stays
HELD; but the next launcher, if it runs on the same machine, can see that the process is gone
(`Hello.succeeds`). Either way only the same *owner* need not wait for the lease: whoever has the
same key, or, on a port without keys, anybody. A launcher that may be alive is never displaced.
"""

from __future__ import annotations

from dataclasses import dataclass

from nodes.core.events import Peer
from nodes.protocol.messages import PROTOCOL, Hello, Refused

LONGEST_LEASE_S = 300.0
"""For how long a silent launcher keeps an agent at most, whatever it asks for."""


@dataclass(slots=True)
class OpenSession:
    """An open session: the connection it is on, its random name, its lease in seconds; `key`,
    `owner` and `process` tell whose it is."""

    peer: Peer
    name: str
    lease_s: float
    heard_s: float
    key: bytes = b""
    owner: str = ""
    process: str = ""
    is_lost: bool = False
    """Whether its connection has closed."""

    @property
    def deadline_s(self) -> float:
        """When it ends unless something is heard before."""
        return self.heard_s + self.lease_s

    def is_over(self, now_s: float) -> bool:
        """Whether the lease has run out."""
        return now_s >= self.deadline_s

    def described(self) -> str:
        """Whose it is, for people; not trusted to be printable."""
        return f"launcher {self.owner!r}" if self.owner else "another launcher"


def admit(
    hello: Hello,
    peer: Peer,
    current: OpenSession | None,
    now_s: float,
    *,
    key: bytes = b"",
    longest_lease_s: float = LONGEST_LEASE_S,
) -> OpenSession | Refused:
    """The session that a `Hello` opens, resumes or takes over, or why it may not. `key` is the
    public key of whoever said it."""
    if hello.protocol != PROTOCOL:
        return Refused(
            f"this agent speaks protocol {PROTOCOL}, the launcher {hello.protocol}: "
            "install the same version on both",
            PROTOCOL,
        )
    if current is not None and not current.is_over(now_s) and not _may_follow(hello, key, current):
        return _busy(current, key, now_s)
    lease_s = min(hello.lease_s, longest_lease_s)
    return OpenSession(peer, hello.session, lease_s, now_s, key, hello.owner, hello.process)


def _may_follow(hello: Hello, key: bytes, current: OpenSession) -> bool:
    """Whether a `Hello` need not wait until the lease of the present session is over."""
    if key != current.key:
        return False
    has_ended = bool(hello.succeeds) and hello.succeeds == current.process
    return hello.session == current.name or current.is_lost or has_ended


def _busy(current: OpenSession, key: bytes, now_s: float) -> Refused:
    left_s = current.deadline_s - now_s
    if current.is_lost:
        reason = (
            f"{current.described()} has lost its connection with this agent and may come back; "
            f"it is free for the owners of other keys in {left_s:.0f} s"
        )
    else:
        reason = (
            f"{current.described()} has this agent; it is free again once that one has ended "
            f"or has been silent for {left_s:.0f} s more"
        )
    return Refused(reason, PROTOCOL, current.process if key == current.key else "")


def succession(hello: Hello, refused: Refused, has_ended: bool) -> Hello | None:
    """What a launcher that said `hello` and was refused says next: that the one who has the agent
    `has_ended`, if it is so and was not said before."""
    holder = refused.holder
    if not has_ended or not holder or hello.succeeds == holder:
        return None
    return Hello(
        hello.protocol, hello.session, hello.lease_s, hello.owner, hello.process, succeeds=holder
    )
