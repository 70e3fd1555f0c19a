"""The launcher's decisions from the first greeting to the last goodbye: `handle(event, now_s)`.

A run has four barriers, and all nodes pass each together: every agent is welcome before any
deploys (a deployment names its peers' addresses), every one is ready before any starts,
every result is taken before any is stopped, every one has stopped before any hears goodbye.

What goes wrong on one node before the stream begins, or at any time if recovery is not `enabled`,
ends the run on all: each open session is closed, so that daemons are free for the next launcher,
and `End` carries the sentence for the user. Otherwise a node that is lost is replaced; the states
of a run are in `launcher.core.run_state`.

The epoch is given up on all nodes at once. The next has a higher number, so nothing of the old one
is acted upon any more, and streams the frames that have no result. Nodes without a part in the plan
are greeted too and stand by; the run does not need them. A node that was lost is greeted again
(`launcher.core.returns`) and stands by like these, until another loss, or a plan with it that is
worth a change of epochs (`launcher.core.improving`), gives it a part. Where no node is left, or no
plan can be made for those that are, the run waits for some to come back before it ends.

Here is what happens to a run, event by event; what becomes of it then is in
`launcher.core.going_on`.
"""

from __future__ import annotations

from launcher.core import sentences
from launcher.core.events import (
    Abandoned,
    Action,
    Begin,
    ClosedEarly,
    Consented,
    Disconnected,
    Event,
    Exited,
    FromNode,
    Garbled,
    Halted,
    Heard,
    Linked,
    Notice,
    PlanReply,
    Reached,
    Send,
    StageProgress,
    Stream,
    Taken,
    Unplannable,
)
from launcher.core.going_on import GoingOn
from launcher.core.run_state import RunStep
from launcher.core.session import Session, SessionState
from launcher.core.watch import EXIT_GRACE_S, Suspicion
from launcher.errors import BadInputError, LauncherError
from nodes.core.events import Tick
from nodes.protocol.errors import RemoteProtocolError
from nodes.protocol.messages import (
    PROTOCOL,
    Control,
    Deployed,
    Failed,
    GetStats,
    Missing,
    Ping,
    Progress,
    Refused,
    Stats,
    Stopped,
    Stored,
    Welcome,
)


class Supervisor(GoingOn):
    """One run, first of `blueprint`; `handle` every event, perform every action."""

    def handle(self, event: Event, now_s: float) -> list[Action]:
        """Follow an event at `now_s` (seconds of any steady clock); nothing once it has ended."""
        if self.life.is_over:
            return []
        patient_s, away_s = self._clock.read(now_s)
        actions = self._was_away(away_s, patient_s) if away_s else []
        actions += self._follow(event, patient_s)
        self._clock.due_s = self._due_s
        return actions

    def _follow(self, event: Event, now_s: float) -> list[Action]:
        match event:
            case Begin():
                return self._begin(now_s)
            case Taken(taken, frames):
                self.taken, self.frames = taken, frames
                is_down = self.life.is_down
                self._watch.took(event, now_s, is_down=is_down)
                if not is_down:
                    self._improver.pace.took(taken, now_s)
                return [StageProgress("streaming", taken, frames), *self._stop_if_done(now_s)]
            case Halted():
                return self._halted(event, now_s)
            case PlanReply():
                return self._planned(event, now_s)
            case Unplannable():
                return self._unplannable(event, now_s)
            case Consented():
                return self._improver.consented(self._members) if self._may_recover else []
            case Abandoned(error):
                return self._end(error)
            case Tick():
                return self._tick(now_s)
            case _:
                session = self.sessions[event.node]
                if session.is_there:
                    return self._happened(session, event, now_s)
                return self._happened_to_lost(session, event, now_s)

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
            case Reached():
                session.closes_early = False
                return []
            case ClosedEarly():
                session.closes_early = True
                return []
            case Disconnected():
                return self._disconnected(session, now_s)
            case Exited():
                return self._exited(session, event, now_s)

    def _happened_to_lost(self, session: Session, event: FromNode, now_s: float) -> list[Action]:
        """Nobody listens to a node that is lost, except for whether it is back."""
        if not self._limits.recovery.enabled or self._is_over:
            return []
        match event:
            case Reached():
                return self._returns.connected(session, now_s)
            case Heard(_, message, host):
                return self._hear_lost(session, message, host, now_s)
            case Exited():
                self._returns.ended(session.node)
                hopeless = self._recoverer.nobody_comes(now_s)
                return [] if hopeless is None else self._end(hopeless)
            case _:
                return []

    def _hear_lost(
        self, session: Session, message: Control, host: str | None, now_s: float
    ) -> list[Action]:
        actions = self._returns.heard(session, message, host, now_s)
        if session.is_there:
            self._recoverer.came_back(now_s)
            actions += self._improver.is_back(session, self._members, now_s)
        return actions

    # ------------------------------------------------------------ the way up

    def _begin(self, now_s: float) -> list[Action]:
        for session in self.sessions.values():
            session.deadline_s = now_s + self._limits.patience_s([session])
        return [
            StageProgress("connecting", 0, len(self._members)),
            *(Send(node, self._hello) for node in self.sessions),
        ]

    def _hear(self, session: Session, message: Control, now_s: float) -> list[Action]:
        session.asked_s = None
        if session.was_lost and isinstance(message, Welcome):  # to a greeting before the last one
            return []
        if (
            not session.counts(message)
            or session.state is SessionState.FAILED
            or self._is_stale(message)
        ):
            return []
        state = session.state
        try:
            session.hear(message)
            match message:
                case Welcome():
                    return self._welcomed(session, message, now_s)
                case Refused():
                    return self._refused(session, message, state, now_s)
                case Missing() | Stored() | Progress() | Deployed():
                    actions = self._rollout.hear(session, message, now_s)
                    return actions + (self._start(now_s) if self._rollout.is_ready else [])
                case Failed(_, reason, peer, barred):
                    why = sentences.failed(session, state, reason, self._progress(state), barred)
                    if not self._needs(session):
                        return self._down([(session, why)], now_s, failed=True)
                    asked = self._watch.suspect(Suspicion(session, peer, why), now_s)
                    return [Send(node, Ping()) for node in asked]
                case Stopped(_, stats):
                    session.stats = stats
                    session.deadline_s = None
                    return self._finish_if_stopped()
                case Stats():
                    session.stats = message
                case _:  # a Pong: that it was heard is all there is to it
                    pass
        except RemoteProtocolError as error:
            return self._breach(session, str(error), now_s)
        except BadInputError as error:
            return self._end(error)
        return []

    def _refused(
        self, session: Session, answer: Refused, state: SessionState, now_s: float
    ) -> list[Action]:
        if state is SessionState.CONNECTING:
            return self._unusable(session, sentences.refused(session, answer))
        if now_s < self._away_until_s:
            return self._all_anew(session, now_s)
        how = f"its agent no longer knows this launcher ({answer.reason})"
        return self._down([(session, self._how_lost(session, how, state))], now_s)

    def _welcomed(self, session: Session, welcome: Welcome, now_s: float) -> list[Action]:
        if welcome.protocol != PROTOCOL:
            return self._unusable(session, sentences.other_protocol(session, welcome.protocol))
        session.welcome = welcome
        session.deadline_s = None
        self._watch.begin(now_s)
        if session not in self._rollout.members:
            return []
        welcomed = sum(other.welcome is not None for other in self._members)
        report = StageProgress("connecting", welcomed, len(self._members))
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
        self.life.step(RunStep.START)
        actions.append(Stream(addresses, self.blueprint))
        actions += self._recoverer.over(now_s)
        self._improver.streams(self.blueprint, now_s)
        return [*actions, StageProgress("streaming", self.taken, self.frames)]

    # ------------------------------------------------------------ what can go wrong

    def _breach(self, session: Session, reason: str, now_s: float) -> list[Action]:
        why = sentences.unintelligible(session, reason)
        return self._down([(session, why)], now_s, failed=True)

    def _disconnected(self, session: Session, now_s: float) -> list[Action]:
        if not session.is_open:
            return []
        if now_s < self._away_until_s:
            return self._all_anew(session, now_s)
        if session.state is SessionState.FAILED:
            return self._down([(session, self._watch.confession(session))], now_s, failed=True)
        if not session.started_by_us:
            return self._down([(session, self._how_lost(session, sentences.CLOSED))], now_s)
        # Its exit code, which says more, is about to follow.
        session.deadline_s = now_s + EXIT_GRACE_S
        session.overdue = sentences.CLOSED
        return []

    def _exited(self, session: Session, event: Exited, now_s: float) -> list[Action]:
        if session.state is SessionState.FAILED:
            error = self._watch.confession(session)
        else:
            error = sentences.exited(session, event, self._progress(session.state))
        session.welcome = None  # nobody is there to say goodbye to
        self._returns.ended(session.node)
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
        return [*actions, *self._returns.due(now_s), *self._trouble(now_s)]

    def _trouble(self, now_s: float) -> list[Action]:
        silence = self._watch.common_silence(now_s)
        if silence:
            return [Notice(silence)]
        gone = [(session, self._how_lost(session, how)) for session, how in self._watch.gone(now_s)]
        if gone:
            return self._down(gone, now_s)
        if self._watch.suspicion_is_due(now_s):
            return self._suspicion_stands(now_s)
        due = self._recoverer.due(now_s)
        if isinstance(due, LauncherError):
            return self._end(due)
        stall_s = self._watch.stall_s(now_s)
        if stall_s is not None:
            return self._stalled(stall_s, now_s)
        questions: list[Action] = [Send(node, Ping()) for node in self._watch.to_ping(now_s)]
        if self._watch.inquiry_is_due(now_s):
            questions += [Send(session.node, GetStats()) for session in self._members]
        return due + questions + self._improver.due(self._members, now_s)
