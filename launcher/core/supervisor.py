"""The launcher's decisions from the first greeting to the last goodbye: `handle(event, now_s)`.

A run has four barriers, and all nodes pass each together: every agent is welcome before any is
told to deploy (a deployment names its peers' addresses), every one is ready before any starts,
every result is taken before any is stopped, every one has stopped before any hears goodbye.

What goes wrong on one node before the stream begins, or at any time if `Limits.recovery_s` is None,
ends the run on all: each open session is closed, so that daemons are free for the next launcher,
and `End` carries the sentence to tell the user. Otherwise a node that is lost is replaced:

    streaming ──a node is lost──▶ planning on what is left ──Planned──▶ rollout ──all ready──▶
        ▲                            │      ▲         │                    │               streaming
        │                   no plan: End    └─────────┴─another is lost────┘                  │
        └─────────────────────────────────────────────────────────────────────────────────────┘

The epoch is given up on all nodes at once. The next has a higher number, so nothing of the old one
is acted upon any more, and streams the frames that have no result. A node that was lost stays lost.
Nodes without a part in the plan are greeted too and stand by; the run does not need them.
"""

from __future__ import annotations

from collections.abc import Iterable

from launcher.core import sentences
from launcher.core.blame import at_fault, stuck
from launcher.core.blueprint import Blueprint
from launcher.core.events import (
    Abandoned,
    Action,
    Begin,
    Disconnected,
    End,
    Event,
    Exited,
    FromNode,
    Garbled,
    Halted,
    Heard,
    Linked,
    Notice,
    Planned,
    Report,
    Send,
    Stream,
    Taken,
    Tick,
    Unplannable,
)
from launcher.core.recovery import Loss, Recoverer, Recovery
from launcher.core.rollout import Rollout
from launcher.core.session import Contact, Session, State, Step
from launcher.core.watch import EXIT_GRACE_S, Limits, Suspicion, Watch
from launcher.errors import BadInputError, LauncherError
from nodes.core.errors import RemoteProtocolError
from nodes.core.messages import (
    PROTOCOL,
    Control,
    Deployed,
    Failed,
    GetStats,
    Hello,
    Missing,
    Ping,
    Progress,
    Refused,
    Stats,
    Stop,
    Stopped,
    Stored,
    Welcome,
)


class Supervisor:
    """One run, first of `blueprint`; `handle` every event, perform every action."""

    def __init__(
        self,
        blueprint: Blueprint,
        contacts: Iterable[Contact],
        frames: int,
        session: str,
        limits: Limits,
    ) -> None:
        self.blueprint = blueprint
        self.frames = frames
        self.taken = 0
        self.sessions = {
            contact.name: Session(contact.name, contact.address, contact.started_by_us)
            for contact in contacts
        }
        self.ended = False
        self._session_name = session
        self._limits = limits
        self._watch = Watch(self.sessions, limits, frames)
        self._rollout = Rollout(blueprint, self.sessions, limits, renews=False)
        self._recoverer = Recoverer(blueprint.epoch, self.sessions, limits)
        self._has_streamed = False

    @property
    def recoveries(self) -> list[Recovery]:
        """The losses that it got over so far."""
        return self._recoverer.done

    @property
    def deadline_s(self) -> float | None:
        """When the next `Tick` is due at the latest; None if none is."""
        if self.ended:
            return None
        due = (self._watch.deadline_s, self._recoverer.deadline_s)
        return min((at_s for at_s in due if at_s is not None), default=None)

    def handle(self, event: Event, now_s: float) -> list[Action]:
        """Follow an event at `now_s` (seconds of any steady clock); nothing once it has ended."""
        if self.ended:
            return []
        if isinstance(event, Heard | Garbled | Linked | Disconnected | Exited):
            session = self.sessions[event.node]
            gone = session.state is State.LOST  # nobody listens to it any more
            return [] if gone else self._happened(session, event, now_s)
        match event:
            case Begin():
                return self._begin(now_s)
            case Taken(taken, frames):
                self.taken, self.frames = taken, frames
                self._watch.took(event, now_s, is_down=self._recoverer.outage is not None)
                return [Report("streaming", taken, frames), *self._stop_if_done(now_s)]
            case Halted():
                return self._unless_hopeless(self._recoverer.halted(event, self.frames, now_s))
            case Planned(blueprint):
                return self._planned(blueprint, now_s)
            case Unplannable(epoch, reason):
                hopeless = self._recoverer.unplannable(epoch, reason)
                return self._end(hopeless) if hopeless else []
            case Abandoned(error):
                return self._end(error)
            case Tick():
                return self._tick(now_s)

    def _happened(self, session: Session, event: FromNode, now_s: float) -> list[Action]:
        match event:
            case Heard(_, message, host):
                session.host = host or session.host
                return self._hear(session, message, now_s)
            case Garbled(_, reason):
                return self._breach(session, reason, now_s)
            case Linked(node):
                self._watch.linked(node)
                return []
            case Disconnected():
                return self._disconnected(session, now_s)
            case Exited(_, code, last_words):
                return self._exited(session, code, last_words, now_s)

    @property
    def _members(self) -> list[Session]:
        """Those that have a part in the epoch and are not lost."""
        return [s for s in self._rollout.members if s.state is not State.LOST]

    def _needs(self, session: Session) -> bool:
        """Whether it has a part in the epoch, or may get one in the next."""
        is_there = session.state is not State.CONNECTING
        return session in self._rollout.members or (self._recoverer.is_planning and is_there)

    # ------------------------------------------------------------ the way up

    def _begin(self, now_s: float) -> list[Action]:
        hello = Hello(PROTOCOL, self._session_name, self._limits.lease_s)
        for session in self.sessions.values():
            session.deadline_s = now_s + self._limits.patience_s([session])
        return [
            Report("connecting", 0, len(self._members)),
            *(Send(node, hello) for node in self.sessions),
        ]

    def _hear(self, session: Session, message: Control, now_s: float) -> list[Action]:
        session.asked_s = None
        if not session.counts(message) or session.state is State.FAILED or self._is_stale(message):
            return []
        state = session.state
        try:
            session.hear(message)
            match message:
                case Welcome():
                    return self._welcomed(session, message, now_s)
                case Refused() if state is State.CONNECTING:
                    return self._unusable(session, sentences.refused(session, message))
                case Refused(reason):
                    how = f"its agent no longer knows this launcher ({reason})"
                    return self._down([(session, self._lost(session, how, state))], now_s)
                case Missing() | Stored() | Progress() | Deployed():
                    actions = self._rollout.hear(session, message, now_s)
                    return actions + (self._start(now_s) if self._rollout.is_ready else [])
                case Failed(_, reason, peer):
                    why = sentences.failed(session, state, reason, self._progress(state))
                    if not self._needs(session):
                        return self._down([(session, why)], now_s)
                    self._watch.suspect(Suspicion(session, peer, why), now_s)
                case Stopped(_, stats):
                    session.stats = stats
                    session.deadline_s = None
                    return self._finish_if_stopped()
                case Stats():
                    session.stats = message
        except RemoteProtocolError as error:
            return self._breach(session, str(error), now_s)
        except BadInputError as error:
            return self._end(error)
        return []

    def _is_stale(self, message: Control) -> bool:
        if isinstance(message, Failed) and message.epoch == 0:  # it was no deployment that failed
            return False
        if isinstance(message, Progress | Deployed | Stopped | Failed):
            return self._recoverer.is_planning or message.epoch != self.blueprint.epoch
        return False

    def _welcomed(self, session: Session, welcome: Welcome, now_s: float) -> list[Action]:
        if welcome.protocol != PROTOCOL:
            return self._unusable(session, sentences.other_protocol(session, welcome.protocol))
        session.welcome = welcome
        session.deadline_s = None
        self._watch.begin(now_s)
        if session not in self._rollout.members:
            return []
        welcomed = sum(other.welcome is not None for other in self._members)
        report = Report("connecting", welcomed, len(self._members))
        return [report, *self._rollout.join(session, now_s)]

    def _unusable(self, session: Session, error: LauncherError) -> list[Action]:
        """It never was in our session: the end, unless nobody needs it."""
        if session in self._rollout.members:
            return self._end(error)
        session.lose()
        return [Notice(f"{error}; the run goes on without it")]

    def _start(self, now_s: float) -> list[Action]:
        actions = self._rollout.start()
        every = self._rollout.data_addresses()
        addresses = {peer: every[peer] for peer in self.blueprint.host_peers()}
        self._watch.expect_links(addresses, now_s)
        self._watch.expect_results(now_s)
        self._has_streamed = True
        actions.append(Stream(addresses, self.blueprint))
        actions += self._recoverer.over(now_s)
        return [*actions, Report("streaming", self.taken, self.frames)]

    # ------------------------------------------------------------ the way down

    def _stop_if_done(self, now_s: float) -> list[Action]:
        if self.taken < self.frames or self._watch.suspicions:
            return []
        if self._recoverer.outage is not None:
            return self._end(None)
        self._watch.expect_no_results()
        actions: list[Action] = []
        for session in self._members:
            if session.state is State.RUNNING:
                session.step(Step.STOP)
                session.deadline_s = now_s + self._limits.silence_timeout_s
                actions.append(Send(session.node, Stop(self.blueprint.epoch)))
        return actions + self._finish_if_stopped()

    def _finish_if_stopped(self) -> list[Action]:
        stopped = all(session.state is State.STOPPED for session in self._members)
        return self._end(None) if stopped else []

    def _end(self, error: LauncherError | None) -> list[Action]:
        self.ended = True
        open_sessions = [session for session in self.sessions.values() if session.is_open]
        return [*(Send(s.node, s.goodbye) for s in open_sessions), End(error)]

    # ------------------------------------------------------------ what can go wrong

    def _breach(self, session: Session, reason: str, now_s: float) -> list[Action]:
        return self._down([(session, sentences.unintelligible(session, reason))], now_s)

    def _disconnected(self, session: Session, now_s: float) -> list[Action]:
        if not session.is_open:
            return []
        if session.state is State.FAILED:
            return self._down([(session, self._watch.confession(session))], now_s)
        if not session.started_by_us:
            return self._down([(session, self._lost(session, sentences.CLOSED))], now_s)
        # Its exit code, which says more, is about to follow.
        session.deadline_s = now_s + EXIT_GRACE_S
        session.overdue = sentences.CLOSED
        return []

    def _exited(self, session: Session, code: int, last_words: str, now_s: float) -> list[Action]:
        if session.state is State.FAILED:
            error = self._watch.confession(session)
        else:
            error = sentences.exited(session, code, last_words, self._progress(session.state))
        session.welcome = None  # nobody is there to say goodbye to
        return self._down([(session, error)], now_s)

    def _tick(self, now_s: float) -> list[Action]:
        unreached = self._watch.unreached(now_s)
        needed = [session for session in unreached if session in self._rollout.members]
        if needed:
            return self._end(sentences.unreachable(needed, self._limits.patience_s(needed)))
        actions: list[Action] = []
        for session in unreached:
            waited_s = self._limits.patience_s([session])
            actions += self._unusable(session, sentences.unreachable([session], waited_s))
        return actions + self._trouble(now_s)

    def _trouble(self, now_s: float) -> list[Action]:
        gone = [(session, self._lost(session, how)) for session, how in self._watch.gone(now_s)]
        if gone:
            return self._down(gone, now_s)
        if self._watch.suspicion_is_due(now_s):
            return self._suspicion_stands(now_s)
        if (hopeless := self._recoverer.overdue(now_s)) is not None:
            return self._end(hopeless)
        stall_s = self._watch.stall_s(now_s)
        if stall_s is not None:
            return self._stalled(stall_s, now_s)
        questions: list[Action] = [Send(node, Ping()) for node in self._watch.to_ping(now_s)]
        if self._watch.inquiry_is_due(now_s):
            questions += [Send(session.node, GetStats()) for session in self._members]
        return questions

    def _suspicion_stands(self, now_s: float) -> list[Action]:
        suspicions = self._watch.settled()
        guilty = at_fault(suspicions, self.sessions)
        if not self._may_recover:
            return self._end(suspicions[0].error)
        return self._down([(session, said.error) for session, said in guilty], now_s)

    def _stalled(self, stall_s: float, now_s: float) -> list[Action]:
        progress = self._progress(State.RUNNING)
        error = sentences.stalled(self._members, stall_s, progress)
        firings = {s.node: s.stats.firings for s in self._members if s.stats is not None}
        frames, taken = (n - self._recoverer.first for n in (self._watch.offered, self.taken))
        found = stuck(self.blueprint, firings, frames, taken) if self._may_recover else []
        return self._down([(self.sessions[n], error) for n in found], now_s) or self._end(error)

    def _lost(self, session: Session, how: str, state: State | None = None) -> LauncherError:
        state = state or session.state
        return sentences.lost(session, state, how, self._progress(state))

    def _progress(self, state: State) -> str:
        if self._has_streamed or state in (State.RUNNING, State.STOPPING, State.STOPPED):
            return f", after {self.taken} of {self.frames} results"
        return ""

    # ------------------------------------------------------------ going on without a node

    @property
    def _may_recover(self) -> bool:
        return self._limits.recovery_s is not None and self._has_streamed

    def _down(self, losses: list[Loss], now_s: float) -> list[Action]:
        """These nodes are lost: go on without them if that is wanted and possible."""
        if not losses:
            return []
        needed = [loss for loss in losses if self._needs(loss[0])]
        if needed and not self._may_recover:
            return self._end(needed[0][1])
        actions: list[Action] = [Send(s.node, s.goodbye) for s, _ in losses if s.is_open]
        for session, _ in losses:
            session.lose()
        if needed and self.taken == self.frames:  # nothing is left to do for those that failed
            failed = [session for session in self._members if session.state is State.FAILED]
            for session in failed:
                session.lose()
            self._watch.expect_nothing()
            actions += [Send(session.node, session.goodbye) for session in failed]
            return actions + self._stop_if_done(now_s)
        if needed:
            return actions + self._give_up_epoch(needed, now_s)
        return actions + [Notice(f"{error}; it stood by") for _, error in losses]

    def _give_up_epoch(self, losses: list[Loss], now_s: float) -> list[Action]:
        # Who answered a question with a failure is not asked again: no answer would be known by it.
        broken = [
            s for s in self.sessions.values() if s.state is State.FAILED and s.unanswered.total()
        ]
        losses = [*losses, *((s, self._watch.confession(s)) for s in broken)]
        for session in broken:
            session.lose()
        self._watch.expect_nothing()
        goodbyes: list[Action] = [Send(session.node, session.goodbye) for session in broken]
        given_up = self._recoverer.give_up(losses, self.blueprint.epoch, now_s)
        return goodbyes + self._unless_hopeless(given_up)

    def _unless_hopeless(self, found: list[Action] | LauncherError) -> list[Action]:
        return self._end(found) if isinstance(found, LauncherError) else found

    def _planned(self, blueprint: Blueprint, now_s: float) -> list[Action]:
        instead = self._recoverer.planned(blueprint.epoch, blueprint.deployments, now_s)
        if instead is not None:
            return instead
        self.blueprint = blueprint
        self._rollout = Rollout(blueprint, self.sessions, self._limits, renews=True)
        return [a for session in self._members for a in self._rollout.join(session, now_s)]
