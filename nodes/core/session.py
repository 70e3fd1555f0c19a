"""Who may command an agent: one launcher at a time, for as long as it lets us hear from it.

closed ──Hello──▶ open ──Bye, or `lease_s` seconds of silence──▶ closed
                   │ ▲
                   └─┘ any message renews the lease; Hello of the same session from another
                       connection (the launcher has reconnected) moves it there
"""

from __future__ import annotations

from dataclasses import dataclass

from nodes.core.events import Peer
from nodes.core.messages import PROTOCOL, Hello, Refused


@dataclass(slots=True)
class Session:
    """An open session: the connection it is on, its random name, its lease in seconds."""

    peer: Peer
    name: str
    lease_s: float
    heard_s: float

    @property
    def deadline_s(self) -> float:
        """When it ends unless something is heard before."""
        return self.heard_s + self.lease_s

    def is_over(self, now_s: float) -> bool:
        """Whether the lease has run out."""
        return now_s >= self.deadline_s


def admit(hello: Hello, peer: Peer, current: Session | None, now_s: float) -> Session | Refused:
    """The session that a `Hello` opens or resumes, or why it may not."""
    if hello.protocol != PROTOCOL:
        return Refused(
            f"this agent speaks protocol {PROTOCOL}, the launcher {hello.protocol}: "
            "install the same version on both",
            PROTOCOL,
        )
    if current is not None and current.name != hello.session and not current.is_over(now_s):
        left_s = current.deadline_s - now_s
        return Refused(
            "another launcher has this agent; it is free again once that one has ended "
            f"or has been silent for {left_s:.0f} s more",
            PROTOCOL,
        )
    return Session(peer, hello.session, hello.lease_s, now_s)
