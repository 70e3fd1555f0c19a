"""Decide which launcher has an agent: one at a time, as long as it renews its lease.

    FREE ──Hello──▶ HELD ──its connection closes──▶ LOST
      ▲               │ ▲                             │ │
      └─Bye, lease────┘ └──Hello of the same session──┘ └─ Hello of the same owner: HELD by that one

Any message renews the lease; after `lease_s` of silence the session is over, HELD or LOST. `Hello`
of the same session over another connection (the launcher has reconnected) moves the session there.

A launcher that died must not keep its successor waiting. Usually the kernel closes the connection
of a process that ends, and the session is LOST. If the network is down at that moment, the session
stays HELD; but a successor on the same machine can see that the process has ended, and says so in
`Hello.succeeds`. In both cases only a launcher of the same *owner* need not wait for the lease: one
with the same key or, on a port without keys, any. A launcher that may be alive is never displaced.
"""

from __future__ import annotations

from dataclasses import dataclass

from nodes.core.events import Peer
from nodes.protocol.messages import PROTOCOL, Hello, Refused, is_understood

LONGEST_LEASE_S = 300.0
"""The longest lease that an agent grants, unless `--longest-lease` says otherwise."""


@dataclass(slots=True)
class OpenSession:
    """An open session, as in `Hello`: its connection, its random name, its lease and its owner.

    `heard_s` is when its last message came; `key` is the launcher's public key, empty on a port
    without keys.
    """

    peer: Peer
    name: str
    lease_s: float
    heard_s: float
    protocol: int = PROTOCOL
    key: bytes = b""
    owner: str = ""
    process: str = ""
    is_lost: bool = False
    """Whether its connection has closed."""

    @property
    def deadline_s(self) -> float:
        """When it ends unless a message comes before."""
        return self.heard_s + self.lease_s

    def is_over(self, now_s: float) -> bool:
        """Return whether the lease has expired."""
        return now_s >= self.deadline_s

    def described(self) -> str:
        """Return whose session it is, for log lines; the text may be unprintable."""
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
    """Return the session that a `Hello` opens, resumes or takes over, or why it is refused.

    `key` is the sender's public key.
    """
    if not is_understood(hello.protocol):
        return Refused(
            f"this agent speaks protocol {PROTOCOL}, the launcher {hello.protocol}: "
            "install the same version on both",
            PROTOCOL,
        )
    if current is not None and not current.is_over(now_s) and not _may_follow(hello, key, current):
        return _busy(current, key, now_s, hello.protocol)
    lease_s = min(hello.lease_s, longest_lease_s)
    return OpenSession(
        peer, hello.session, lease_s, now_s, hello.protocol, key, hello.owner, hello.process
    )


def _may_follow(hello: Hello, key: bytes, current: OpenSession) -> bool:
    """Return whether a `Hello` need not wait until the lease of the present session is over."""
    if key != current.key:
        return False
    has_ended = bool(hello.succeeds) and hello.succeeds == current.process
    return hello.session == current.name or current.is_lost or has_ended


def _busy(current: OpenSession, key: bytes, now_s: float, protocol: int) -> Refused:
    left_s = current.deadline_s - now_s
    if current.is_lost:
        reason = (
            f"{current.described()} has lost its connection to this agent and may reconnect; the "
            f"agent becomes free for the owners of other keys in {left_s:.0f} s"
        )
    else:
        reason = (
            f"{current.described()} is using this agent; it becomes free once that launcher has "
            f"ended or has been silent for {left_s:.0f} s more"
        )
    return Refused(reason, protocol, current.process if key == current.key else "")
