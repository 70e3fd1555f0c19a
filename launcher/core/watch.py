"""Patience with agents: deadlines, pings, silence, and whom to blame when one fails.

Silence is measured from the oldest ping that nothing followed, by a clock that stands still while
the launcher itself is away (`launcher.core.clocks`): it never blames its agents for that.

If most agents fall silent at once, the cause is probably not theirs (a switch reboots). Then they
have until `Limits.common_s` has passed, since all that a short outage costs is the time that it
lasts: agents keep what is deployed until their leases end, and TCP sends again what was lost. It
waits between two attempts for as long as the outage has lasted, so when most are heard again, the
others have as much time again.

Agents that answer and yet make no progress (an engine that hangs) are caught by the results that
fail to come: patience with those follows from how long all phases took when they were warmed up.

An agent that reports a failure may be the victim of another that died. So its report is a
suspicion first, and is judged (`launcher.core.blame`) only if no lost node turns up within
`CAUSE_GRACE_S` and whoever it blames has answered a ping.

Where a lost node is replaced, a silence while streaming counts after `heartbeat_s` already: to be
wrong then costs a node and a pause, not the run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

from launcher.core.events import ResultsTaken
from launcher.core.session import Session, SessionState
from launcher.errors import LauncherError

PING_EVERY_S = 1.0
CAUSE_GRACE_S = 0.5
AWAY_GRACE_S = 2.0
"""The least that is left of any deadline when the launcher was away."""
EXIT_GRACE_S = 2.0
"""After the connection of an agent of ours closed: how long to wait for its exit code."""
COMMON_S = 10.0
"""How long most agents may be silent at once."""
STALL_AT_LEAST_S = 60.0
STALL_WARM_UPS = 50.0
"""A run stalls if no result comes for this many times the time that all phases take together."""


Rebalance = Literal["auto", "ask", "never"]
"""What to do about a node that comes back, see `launcher.core.improving`."""


class Timeouts(Protocol):
    """What is read here of the user's section `run` (`launcher.config.run.RunConfig`)."""

    connect_timeout_s: float
    deploy_timeout_s: float
    silence_timeout_s: float
    lease_s: float


class RecoveryRules(Protocol):
    """What is read here of the section `recovery` (`launcher.config.run.RecoveryConfig`)."""

    enabled: bool
    heartbeat_s: float
    recovery_s: float
    wait_s: float
    rebalance: Rebalance
    adapt: bool


@dataclass(frozen=True, slots=True)
class Limits:
    """Patience with agents, as the user has set it in `run` and `recovery`.

    Agents that we started ourselves first have to import their engine: they have
    `start_timeout_s` in place of `run.connect_timeout_s`. `consent` says how the user can agree to
    use nodes that came back (empty: not at all). A source with a pace of its own makes no more than
    a frame in `source_period_s`.
    """

    run: Timeouts
    recovery: RecoveryRules
    start_timeout_s: float = 60.0
    consent: str = ""
    source_period_s: float = 0.0

    def patience_s(self, sessions: Iterable[Session]) -> float:
        """How long these may take to answer the first time."""
        ours = all(session.started_by_us for session in sessions)
        return self.start_timeout_s if ours else self.run.connect_timeout_s

    def silence_s(self, state: SessionState) -> float:
        """How long an agent may be silent in this state."""
        if not self.recovery.enabled or state is not SessionState.RUNNING:
            return self.run.silence_timeout_s
        return min(self.recovery.heartbeat_s, self.run.silence_timeout_s)

    @property
    def common_s(self) -> float:
        """How long most of them may be silent at once: no longer than they keep a deployment."""
        return min(COMMON_S, self.run.lease_s)

    @property
    def ping_every_s(self) -> float:
        """Often enough for a silence to be noticed in time."""
        return min(PING_EVERY_S, self.silence_s(SessionState.RUNNING) / 4)


@dataclass(frozen=True, slots=True)
class Suspicion:
    """An agent that failed, the node that it blames (empty: itself), and the sentence."""

    session: Session
    peer: str
    error: LauncherError


class Watch:
    """Finds sessions that are silent, late or stuck; it neither asks nor decides anything."""

    def __init__(self, sessions: Mapping[str, Session], limits: Limits, frames: int = 0) -> None:
        self.offered = frames
        """How many frames the source has given, as far as is known."""
        self._taken = 0
        self._all = sessions
        self._limits = limits
        self._next_ping_s: float | None = None
        self._links_due_s: float | None = None
        self._unlinked: dict[str, str] = {}
        self._suspicion_due_s: float | None = None
        self._stall_s = STALL_AT_LEAST_S
        self._stalled_at_s: float | None = None
        self._inquiry_due_s: float | None = None
        self.suspicions: list[Suspicion] = []
        self._reported: dict[str, LauncherError] = {}
        self._common_since_s: float | None = None
        self._common_until_s = 0.0

    @property
    def _sessions(self) -> list[Session]:
        return [session for session in self._all.values() if session.is_present]

    def begin_pinging(self, now_s: float) -> None:
        """Somebody is there to be pinged."""
        if self._next_ping_s is None:
            self._next_ping_s = now_s + self._limits.ping_every_s

    def extend_deadlines(self, now_s: float) -> None:
        """This launcher was: whoever was asked something before has not had the time to answer."""
        self._next_ping_s = now_s
        for session in self._sessions:
            if session.pinged_s is not None:
                session.pinged_s = now_s
            if session.deadline_s is not None:
                session.deadline_s = max(session.deadline_s, now_s + AWAY_GRACE_S)

    def suspect(self, suspicion: Suspicion, now_s: float) -> list[str]:
        """An agent failed; who is to blame shows when the first suspicion is due. Returns whom to
        ping."""
        self.suspicions.append(suspicion)
        self._reported[suspicion.session.node] = suspicion.error
        if self._suspicion_due_s is None:
            self._suspicion_due_s = now_s + CAUSE_GRACE_S
        accused = self._all.get(suspicion.peer)
        if accused is None or not accused.is_open or accused.pinged_s is not None:
            return []
        accused.pinged_s = now_s
        return [accused.node]

    def reported_failure(self, session: Session) -> LauncherError:
        """What an agent said when it failed; it is kept until the epoch is given up."""
        unsaid = LauncherError(f"node {session.node!r} failed")
        return self._reported.get(session.node, unsaid)

    def take_suspicions(self) -> list[Suspicion]:
        """The suspicions, which are dealt with now."""
        suspicions, self.suspicions = self.suspicions, []
        self._suspicion_due_s = None
        return suspicions

    def expect_nothing(self) -> None:
        """The epoch is given up: no links, no results, and whoever failed of it is excused."""
        self.suspicions.clear()
        self._reported.clear()
        self._suspicion_due_s = self._links_due_s = None
        self._unlinked = {}
        self.expect_no_results()

    def expect_links(self, data_addresses: Mapping[str, str], now_s: float) -> None:
        """These nodes' data ports are being dialled."""
        self._unlinked = dict(data_addresses)
        self._links_due_s = now_s + self._limits.run.connect_timeout_s

    def data_connected(self, node: str) -> None:
        """A data connection stands."""
        self._unlinked.pop(node, None)
        if not self._unlinked:
            self._links_due_s = None

    def expect_results(self, now_s: float) -> None:
        """The run begins, or a result was taken: the next one is due in a while."""
        if self._is_idle:
            return
        warm_up_s = sum(sum(s.deployed.phase_s) for s in self._sessions if s.deployed is not None)
        self._stall_s = max(STALL_AT_LEAST_S, STALL_WARM_UPS * warm_up_s)
        self._stalled_at_s = now_s + self._stall_s
        self._inquiry_due_s = now_s + self._stall_s / 2

    def note_progress(self, progress: ResultsTaken, now_s: float, *, is_down: bool) -> None:
        """Results were taken, or the source gave or dropped frames. Where it has given none beyond
        those, nobody is late."""
        was_idle, before = self._is_idle, self._taken
        self._taken, self.offered = progress.results, progress.offered
        if self._is_idle:
            self.expect_no_results()
        elif not is_down and (was_idle or self._taken > before):
            self.expect_results(now_s)

    @property
    def _is_idle(self) -> bool:
        return self._taken == self.offered

    def expect_no_results(self) -> None:
        """The last one was taken."""
        self._stalled_at_s = self._inquiry_due_s = None

    def inquiry_is_due(self, now_s: float) -> bool:
        """Whether to ask for statistics now, which show where a run got stuck."""
        if not is_past(self._inquiry_due_s, now_s):
            return False
        self._inquiry_due_s = None
        return True

    def stall_s(self, now_s: float) -> float | None:
        """For how many seconds no result has come, if that is too long."""
        return self._stall_s if is_past(self._stalled_at_s, now_s) else None

    @property
    def deadline_s(self) -> float | None:
        """The earliest time at which anything here changes; None if nothing does by itself."""
        due = [self._next_ping_s, self._links_due_s]
        due += [self._suspicion_due_s if self._all_accused_answered else None]
        due += [self._stalled_at_s, self._inquiry_due_s]
        for session in self._sessions:
            due += (session.deadline_s, self._silent_at_s(session))
        return min((at_s for at_s in due if at_s is not None), default=None)

    def unreached(self, now_s: float) -> list[Session]:
        """Those that did not answer our greeting in time."""
        return [
            session
            for session in self._sessions
            if session.state is SessionState.CONNECTING and is_past(session.deadline_s, now_s)
        ]

    def find_lost(self, now_s: float) -> list[tuple[Session, str]]:
        """Those that were reached and are late with their next step, or silent; and how."""
        found = ((session, self._how_lost(session, now_s)) for session in self._sessions)
        return [(session, how) for session, how in found if how]

    def _how_lost(self, session: Session, now_s: float) -> str:
        if session.state is not SessionState.CONNECTING and is_past(session.deadline_s, now_s):
            if session.overdue_reason:
                return session.overdue_reason
            if session.state is SessionState.STOPPING:
                return f"it did not stop within {self._limits.run.silence_timeout_s:g} s"
            return f"it made no progress for {self._limits.run.deploy_timeout_s:g} s"
        if session.node in self._unlinked and is_past(self._links_due_s, now_s):
            return (
                f"its data port at {self._unlinked[session.node]} did not answer within "
                f"{self._limits.run.connect_timeout_s:g} s: can this machine reach that port too?"
            )
        if session.pinged_s is not None and is_past(self._silent_at_s(session), now_s):
            limit_s, silent_s = self._limits.silence_s(session.state), now_s - session.pinged_s
            return f"its agent has been silent for {max(limit_s, int(silent_s)):g} s"
        return ""

    def common_silence(self, now_s: float) -> str:
        """Return a sentence for people when most agents begin to be silent at once, else ""."""
        open_sessions = [session for session in self._sessions if session.is_open]
        asked = [
            (session.pinged_s, (now_s - session.pinged_s) / self._limits.silence_s(session.state))
            for session in open_sessions
            if session.pinged_s is not None
        ]
        quiet = [(pinged_s, share) for pinged_s, share in asked if share >= 0.5]
        is_common = 2 * len(quiet) > len(open_sessions)
        if is_common and self._common_since_s is None and max(share for _, share in quiet) >= 1:
            self._common_since_s = min(pinged_s for pinged_s, _ in quiet)
            self._common_until_s = self._common_since_s + self._limits.common_s
            return (
                f"{len(quiet)} of {len(open_sessions)} agents are silent at once, as if their "
                f"network were down; waiting {self._limits.common_s:g} s at most for them"
            )
        if not is_common and self._common_since_s is not None:
            again_s = now_s + max(self._limits.recovery.heartbeat_s, now_s - self._common_since_s)
            self._common_until_s = min(self._common_until_s, again_s)
            self._common_since_s = None
        return ""

    def suspicion_is_due(self, now_s: float) -> bool:
        """Whether the failure that an agent reported is the run's failure."""
        return is_past(self._suspicion_due_s, now_s) and self._all_accused_answered

    @property
    def _all_accused_answered(self) -> bool:
        """Whether those who are blamed for a failure are there, or are known to be gone."""
        accused = (self._all.get(suspicion.peer) for suspicion in self.suspicions)
        return all(s is None or not s.is_present or s.pinged_s is None for s in accused)

    def to_ping(self, now_s: float) -> list[str]:
        """The nodes to ping now."""
        if not is_past(self._next_ping_s, now_s):
            return []
        self._next_ping_s = now_s + self._limits.ping_every_s
        open_sessions = [session for session in self._sessions if session.is_open]
        for session in open_sessions:
            if session.pinged_s is None:
                session.pinged_s = now_s
        return [session.node for session in open_sessions]

    def _silent_at_s(self, session: Session) -> float | None:
        if session.pinged_s is None:
            return None
        return max(session.pinged_s + self._limits.silence_s(session.state), self._common_until_s)


def is_past(at_s: float | None, now_s: float) -> bool:
    """Whether that time, if there is one, has come."""
    return at_s is not None and now_s >= at_s
