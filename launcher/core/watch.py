"""Patience with agents: deadlines, pings, silence, and whom to blame when one fails.

Silence is measured from the oldest ping that nothing followed, so a launcher that is itself late
(a slow consumer of results, a suspended laptop) never blames its agents for it.

Agents that answer and yet make no progress (an engine that hangs) are caught by the results that
fail to come: patience with those follows from how long all phases took when they were warmed up.

An agent that reports a failure may be the victim of another that died. So its report is a
suspicion first, and stands only if no lost node turns up within `CAUSE_GRACE_S`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from launcher.core.session import Session, State
from launcher.errors import LauncherError

PING_EVERY_S = 1.0
CAUSE_GRACE_S = 0.5
STALL_AT_LEAST_S = 60.0
STALL_WARM_UPS = 50.0
"""A run stalls if no result comes for this many times the time that all phases take together."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Patience, in seconds: see `launcher.run.RunOptions`.

    `start_timeout_s` takes the place of `connect_timeout_s` for agents that we started ourselves,
    which first have to import their engine.
    """

    connect_timeout_s: float
    deploy_timeout_s: float
    silence_timeout_s: float
    lease_s: float
    start_timeout_s: float = 60.0


class Watch:
    """Watches over sessions; asks nobody and decides nothing."""

    def __init__(self, sessions: Iterable[Session], limits: Limits) -> None:
        self._sessions = tuple(sessions)
        self._limits = limits
        self._next_ping_s: float | None = None
        self._links_due_s: float | None = None
        self._unlinked: dict[str, str] = {}
        self._suspicion_due_s: float | None = None
        self._stall_s = STALL_AT_LEAST_S
        self._stalled_at_s: float | None = None
        self._inquiry_due_s: float | None = None
        self.suspicion: LauncherError | None = None

    def begin(self, now_s: float) -> None:
        """Somebody is there to be pinged."""
        if self._next_ping_s is None:
            self._next_ping_s = now_s + PING_EVERY_S

    def suspect(self, error: LauncherError, now_s: float) -> None:
        """An agent failed for this reason; the first one counts."""
        if self.suspicion is None:
            self.suspicion = error
            self._suspicion_due_s = now_s + CAUSE_GRACE_S

    def expect_links(self, data_addresses: Mapping[str, str], now_s: float) -> None:
        """These nodes' data ports are being dialled."""
        self._unlinked = dict(data_addresses)
        self._links_due_s = now_s + self._limits.connect_timeout_s

    def linked(self, node: str) -> None:
        """A data connection stands."""
        self._unlinked.pop(node, None)
        if not self._unlinked:
            self._links_due_s = None

    def expect_results(self, now_s: float) -> None:
        """The run begins, or a result was taken: the next one is due in a while."""
        warm_up_s = sum(sum(s.deployed.phase_s) for s in self._sessions if s.deployed is not None)
        self._stall_s = max(STALL_AT_LEAST_S, STALL_WARM_UPS * warm_up_s)
        self._stalled_at_s = now_s + self._stall_s
        self._inquiry_due_s = now_s + self._stall_s / 2

    def expect_no_results(self) -> None:
        """The last one was taken."""
        self._stalled_at_s = self._inquiry_due_s = None

    def inquiry_is_due(self, now_s: float) -> bool:
        """Whether to ask for statistics now, which tell where a run got stuck."""
        if not _is_past(self._inquiry_due_s, now_s):
            return False
        self._inquiry_due_s = None
        return True

    def stall_s(self, now_s: float) -> float | None:
        """For how many seconds no result has come, if that is too long."""
        return self._stall_s if _is_past(self._stalled_at_s, now_s) else None

    @property
    def deadline_s(self) -> float | None:
        """The earliest time at which anything here changes; None if nothing does by itself."""
        due = [self._next_ping_s, self._suspicion_due_s, self._links_due_s]
        due += [self._stalled_at_s, self._inquiry_due_s]
        due += [session.deadline_s for session in self._sessions]
        due += [self._silent_at_s(session) for session in self._sessions]
        return min((at_s for at_s in due if at_s is not None), default=None)

    def unreached(self, now_s: float) -> list[Session]:
        """Those that did not answer our greeting in time."""
        return [s for s in self._late(now_s) if s.state is State.CONNECTING]

    def gone(self, now_s: float) -> tuple[Session, str] | None:
        """One that was reached and is late with its next step, or silent; and how it is gone."""
        for session in self._late(now_s):
            if session.overdue:
                return session, session.overdue
            if session.state is State.STOPPING:
                return session, f"it did not stop within {self._limits.silence_timeout_s:g} s"
            return session, f"it made no progress for {self._limits.deploy_timeout_s:g} s"
        for session in self._sessions:
            if session.node in self._unlinked and _is_past(self._links_due_s, now_s):
                return session, (
                    f"its data port at {self._unlinked[session.node]} did not answer within "
                    f"{self._limits.connect_timeout_s:g} s: can this machine reach that port too?"
                )
            if _is_past(self._silent_at_s(session), now_s):
                silence_s = self._limits.silence_timeout_s
                return session, f"its agent has been silent for {silence_s:g} s"
        return None

    def suspicion_is_due(self, now_s: float) -> bool:
        """Whether the failure that an agent reported is the run's failure."""
        return _is_past(self._suspicion_due_s, now_s)

    def to_ping(self, now_s: float) -> list[str]:
        """The nodes to ping now."""
        if not _is_past(self._next_ping_s, now_s):
            return []
        self._next_ping_s = now_s + PING_EVERY_S
        open_sessions = [session for session in self._sessions if session.is_open]
        for session in open_sessions:
            if session.asked_s is None:
                session.asked_s = now_s
        return [session.node for session in open_sessions]

    def _late(self, now_s: float) -> list[Session]:
        return [session for session in self._sessions if _is_past(session.deadline_s, now_s)]

    def _silent_at_s(self, session: Session) -> float | None:
        if session.asked_s is None:
            return None
        return session.asked_s + self._limits.silence_timeout_s


def _is_past(at_s: float | None, now_s: float) -> bool:
    return at_s is not None and now_s >= at_s
