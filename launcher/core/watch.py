"""Finds agents that are silent or late and runs that are stuck, and collects reports of failures.

Silence is measured from the oldest ping after which no message has arrived, on a clock that stands
still while the launcher itself is stopped (`launcher.core.clocks`). Where recovery is enabled, an
agent that is silent while frames stream is lost after `heartbeat_s` already, because a mistake then
costs a node and a pause, and not the run.

If most agents fall silent at once, the cause is probably the network (a switch reboots). They are
then not lost before `Limits.common_s` has passed: a short outage costs no more than the time that
it lasts, because agents keep their deployments until their leases end, and TCP sends lost data
again. TCP waits between two attempts for as long as the outage has lasted; so when most agents
answer again, the others have as much time again.

An agent that answers but makes no progress (its engine hangs) is found because results fail to
come. The time after which a run counts as stuck follows from the warm-up times of all phases.

An agent that reports a failure may be the victim of another one that died. Its report is therefore
a suspicion. It is judged (`launcher.core.blame`) only if no node is found lost within
`CAUSE_GRACE_S` and the node that it accuses has answered a ping.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

from launcher.core.events import Action, NetworkCounts, ResultsTaken
from launcher.core.session import Session, SessionState
from launcher.errors import LauncherError

PING_EVERY_S = 1.0
"""The longest time between two pings."""

CAUSE_GRACE_S = 0.5
"""From an agent's report of a failure to its judgement."""

AWAY_GRACE_S = 2.0
"""The least time that any deadline leaves an agent after the launcher was stopped."""

EXIT_GRACE_S = 2.0
"""How long to wait for the exit code of an agent that we started, once its connection is closed."""

COMMON_S = 10.0
"""How long most agents may be silent at once."""

START_WAIT_S = 30.0
"""How long a run waits for nodes before its first frame if the user sets no other time."""

STALL_AT_LEAST_S, STALL_WARM_UPS = 60.0, 50.0
"""A run is stuck if no result comes for the former, and for the latter times the sum of all phases'
warm-up times.
"""

Rebalance = Literal["auto", "ask", "never"]
"""Policies for a node that returns, see `launcher.core.improving`."""


Start = Literal["all", "available"]
"""Whether a run begins only with all nodes of its plan, or with those that answer."""


class Timeouts(Protocol):
    """The timeouts of the user's section `run` (`launcher.config.run.RunConfig`)."""

    connect_timeout_s: float
    deploy_timeout_s: float
    silence_timeout_s: float
    lease_s: float
    start: Start


class RecoveryRules(Protocol):
    """The rules of the user's section `recovery` (`launcher.config.run.RecoveryConfig`)."""

    enabled: bool
    heartbeat_s: float
    recovery_s: float
    wait_s: float
    rebalance: Rebalance
    adapt: bool


@dataclass(frozen=True, slots=True)
class Limits:
    """The time limits of a run, from the user's sections `run` and `recovery`.

    Agents that this launcher started have to import their engines first, so they have
    `start_timeout_s` in place of `run.connect_timeout_s`. If too few nodes answer, the run waits
    for others for `start_wait_s` before its first frame, and for `recovery.wait_s` later. `consent`
    is the command by which the user agrees to the use of nodes that returned; empty if there is
    none. A source with its own pace makes at most one frame in `source_period_s`. To the core,
    `batch` of the user's frames are one frame, which messages call a batch. `searches_on` says that
    the first plan was made in a hurry, so that a better one is searched for once frames stream, and
    one that corrects it before the first frame if the launcher `corrects_in_a_hurry`.
    """

    run: Timeouts
    recovery: RecoveryRules
    start_timeout_s: float = 60.0
    start_wait_s: float = START_WAIT_S
    consent: str = ""
    source_period_s: float = 0.0
    batch: int = 1
    searches_on: bool = False
    corrects_in_a_hurry: bool = False

    @property
    def starts_with_available(self) -> bool:
        """Whether a node that is missing or lost before the first frame does not end the run."""
        return self.recovery.enabled and self.run.start == "available"

    def patience_s(self, sessions: Iterable[Session]) -> float:
        """How long these agents may take to answer the greeting."""
        ours = all(session.started_by_us for session in sessions)
        return self.start_timeout_s if ours else self.run.connect_timeout_s

    def silence_s(self, state: SessionState) -> float:
        """How long an agent may be silent in this state."""
        if not self.recovery.enabled or state is not SessionState.RUNNING:
            return self.run.silence_timeout_s
        return min(self.recovery.heartbeat_s, self.run.silence_timeout_s)

    @property
    def common_s(self) -> float:
        """How long most agents may be silent at once: no longer than they keep a deployment."""
        return min(COMMON_S, self.run.lease_s)

    @property
    def ping_every_s(self) -> float:
        """The time between two pings, short enough for a silence to be noticed in time."""
        return min(PING_EVERY_S, self.silence_s(SessionState.RUNNING) / 4)


@dataclass(frozen=True, slots=True)
class Suspicion:
    """An agent's report of a failure: the node that it accuses (empty: itself), and the error."""

    session: Session
    peer: str
    error: LauncherError


class Watch:
    """Finds sessions that are silent, late or stuck; the supervisor pings and decides."""

    def __init__(self, sessions: Mapping[str, Session], limits: Limits) -> None:
        self.networks: tuple[NetworkCounts, ...] = ()
        """The progress of each network that streams its own frames."""
        self._all = sessions
        self._limits = limits
        self._next_ping_s: float | None = None
        self._links_due_s: float | None = None
        self._unlinked: dict[str, str] = {}
        self._suspicion_due_s: float | None = None
        self._stall_s = STALL_AT_LEAST_S
        self._stalled_at_s: dict[int, float] = {}
        self._inquiry_due_s: dict[int, float] = {}
        self.suspicions: list[Suspicion] = []
        self._reported: dict[str, Suspicion] = {}
        self._common_since_s: float | None = None
        self._common_until_s = 0.0

    @property
    def _sessions(self) -> list[Session]:
        return [session for session in self._all.values() if session.is_present]

    def begin_pinging(self, now_s: float) -> None:
        """Begin to ping, because an agent is welcome."""
        if self._next_ping_s is None:
            self._next_ping_s = now_s + self._limits.ping_every_s

    def extend_deadlines(self, now_s: float) -> None:
        """Give agents time to answer after this launcher was stopped."""
        self._next_ping_s = now_s
        for session in self._sessions:
            session.excuse(now_s + AWAY_GRACE_S, now_s)

    def suspect(self, suspicion: Suspicion, now_s: float) -> list[Action]:
        """Note an agent's report of a failure; ping the node that it accuses."""
        self.suspicions.append(suspicion)
        self._reported[suspicion.session.node] = suspicion
        if self._suspicion_due_s is None:
            self._suspicion_due_s = now_s + CAUSE_GRACE_S
        accused = self._all.get(suspicion.peer)
        if accused is None or not accused.is_open or accused.pinged_s is not None:
            return []
        return [accused.ping(now_s)]

    def reported_failure(self, session: Session) -> LauncherError:
        """The error that an agent has reported in this epoch."""
        reported = self._reported.get(session.node)
        return (
            LauncherError(f"node {session.node!r} failed") if reported is None else reported.error
        )

    def blames_another(self, session: Session) -> bool:
        """Whether an agent has reported that its failure is another node's."""
        reported = self._reported.get(session.node)
        return reported is not None and bool(reported.peer)

    def take_suspicions(self) -> list[Suspicion]:
        """Return the suspicions, which the caller judges now, and forget them."""
        suspicions, self.suspicions = self.suspicions, []
        self._suspicion_due_s = None
        return suspicions

    def expect_nothing(self) -> None:
        """Forget the epoch that is abandoned: its connections, results and failures."""
        self.suspicions.clear()
        self._reported.clear()
        self._suspicion_due_s = self._links_due_s = None
        self._unlinked = {}
        self.expect_no_results()

    def expect_links(self, data_addresses: Mapping[str, str], now_s: float) -> None:
        """Expect data connections to these addresses within the connect timeout."""
        self._unlinked = dict(data_addresses)
        self._links_due_s = now_s + self._limits.run.connect_timeout_s

    def data_connected(self, node: str) -> None:
        """Note that the data connection with a node is established."""
        self._unlinked.pop(node, None)
        if not self._unlinked:
            self._links_due_s = None

    @property
    def offered(self) -> int:
        """How many frames the sources have offered so far, of all networks."""
        return sum(network.offered for network in self.networks)

    def expect_results(self, now_s: float) -> None:
        """Expect the next result of every network, because the stream has begun."""
        for number, network in enumerate(self.networks):
            if not _is_idle(network):
                self._expect_result(number, now_s)

    def _expect_result(self, number: int, now_s: float) -> None:
        warm_up_s = sum(sum(s.deployed.phase_s) for s in self._sessions if s.deployed is not None)
        self._stall_s = max(STALL_AT_LEAST_S, STALL_WARM_UPS * warm_up_s)
        self._stalled_at_s[number] = now_s + self._stall_s
        self._inquiry_due_s[number] = now_s + self._stall_s / 2

    def note_progress(self, progress: ResultsTaken, now_s: float, *, is_down: bool) -> None:
        """Note that results were taken, or that sources have offered or dropped frames.

        No result of a network is expected while all frames that it was offered have theirs.
        """
        before, self.networks = self.networks, progress.networks
        for number, network in enumerate(self.networks):
            was = before[number] if number < len(before) else NetworkCounts(0, 0, 0)
            if _is_idle(network):
                self._stalled_at_s.pop(number, None)
                self._inquiry_due_s.pop(number, None)
            elif not is_down and (_is_idle(was) or network.taken > was.taken):
                self._expect_result(number, now_s)

    @property
    def is_idle(self) -> bool:
        """Whether every frame that the sources have offered has its result."""
        return all(map(_is_idle, self.networks))

    def expect_no_results(self) -> None:
        """Expect no result, because all frames offered have theirs or the epoch is abandoned."""
        self._stalled_at_s.clear()
        self._inquiry_due_s.clear()

    def inquiry_is_due(self, now_s: float) -> bool:
        """Whether to request statistics now, which will show where the run is stuck; once."""
        due = [number for number, at_s in self._inquiry_due_s.items() if is_past(at_s, now_s)]
        for number in due:
            del self._inquiry_due_s[number]
        return bool(due)

    def stall_s(self, now_s: float) -> float | None:
        """The seconds since some network's last result, if that is too long."""
        is_stalled = any(is_past(at_s, now_s) for at_s in self._stalled_at_s.values())
        return self._stall_s if is_stalled else None

    @property
    def deadline_s(self) -> float | None:
        """The earliest time at which an answer here changes by itself; None if none does."""
        due = [self._next_ping_s, self._links_due_s]
        due += [self._suspicion_due_s if self._all_accused_answered else None]
        due += [*self._stalled_at_s.values(), *self._inquiry_due_s.values()]
        for session in self._sessions:
            due += (session.deadline_s, self._silent_at_s(session))
        return min((at_s for at_s in due if at_s is not None), default=None)

    def unreached(self, now_s: float) -> list[Session]:
        """The sessions whose agents did not answer the greeting in time."""
        return [
            session
            for session in self._sessions
            if session.state is SessionState.CONNECTING and is_past(session.deadline_s, now_s)
        ]

    def find_lost(self, now_s: float) -> list[tuple[Session, str]]:
        """The sessions that are silent or late with their next step, each with a clause on why."""
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
                f"{self._limits.run.connect_timeout_s:g} s; check that this machine can reach that "
                "port too"
            )
        if session.pinged_s is not None and is_past(self._silent_at_s(session), now_s):
            limit_s, silent_s = self._limits.silence_s(session.state), now_s - session.pinged_s
            return f"its agent has been silent for {max(limit_s, int(silent_s)):g} s"
        return ""

    def common_silence(self, now_s: float) -> str:
        """Return a sentence for people when most agents have fallen silent at once, else ""."""
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
        """Whether the suspicions are to be judged now."""
        return is_past(self._suspicion_due_s, now_s) and self._all_accused_answered

    @property
    def _all_accused_answered(self) -> bool:
        """Whether every accused node has answered since, or is known to be lost."""
        accused = (self._all.get(suspicion.peer) for suspicion in self.suspicions)
        return all(s is None or not s.is_present or s.pinged_s is None for s in accused)

    def pings(self, now_s: float) -> list[Action]:
        """Ping all agents if it is time."""
        if not is_past(self._next_ping_s, now_s):
            return []
        self._next_ping_s = now_s + self._limits.ping_every_s
        return [session.ping(now_s) for session in self._sessions if session.is_open]

    def _silent_at_s(self, session: Session) -> float | None:
        if session.pinged_s is None:
            return None
        return max(session.pinged_s + self._limits.silence_s(session.state), self._common_until_s)


def _is_idle(network: NetworkCounts) -> bool:
    """Whether every frame that was offered to a network has its result."""
    return network.taken == network.offered


def is_past(at_s: float | None, now_s: float) -> bool:
    """Whether a time has passed; False if there is none."""
    return at_s is not None and now_s >= at_s
