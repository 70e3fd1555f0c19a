"""Decides what becomes of a run when nodes are lost, accused or silent: it goes on, or it ends.

`launcher.core.supervisor` notices such events; here is what follows from them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from launcher.core import sentences
from launcher.core.blame import Disputes, stuck
from launcher.core.blueprint import Blueprint
from launcher.core.clocks import PatientClock
from launcher.core.events import Action, End, Halted, Notice, PlanReply, Send, Unplannable
from launcher.core.improving import Improver
from launcher.core.recovery import Change, Loss, Recoverer, Recovery
from launcher.core.returns import STANDING_BY, Returns
from launcher.core.rollout import Rollout
from launcher.core.run_state import WITHOUT_PLAN, RunLife, RunStep
from launcher.core.session import Contact, Session, SessionState, Step
from launcher.core.watch import Limits, Suspicion, Watch
from launcher.errors import BarredError, LauncherError
from nodes.protocol.messages import (
    HOST,
    Bye,
    Control,
    Deployed,
    Failed,
    Hello,
    Progress,
    Stop,
    Stopped,
)

SUSPECT = 2.0
"""Strikes for a node that is lost because others accuse it, or it accuses others."""

STALLS = 2
"""Stalls in a row, without a result in between and without anybody to blame, that end a run."""


class GoingOn:
    """One run: its nodes, its epoch, its results, and what is done when something goes wrong."""

    def __init__(
        self,
        blueprint: Blueprint,
        contacts: Iterable[Contact],
        frames: int,
        hello: Hello,
        limits: Limits,
    ) -> None:
        self.blueprint = blueprint
        self.frames = frames
        self.taken = 0
        self.sessions = {
            contact.name: Session(contact.name, contact.address, contact.started_by_us)
            for contact in contacts
        }
        self.life = RunLife()
        self._hello = hello
        self._limits = limits
        self._watch = Watch(self.sessions, limits, frames)
        self._rollout = Rollout(blueprint, self.sessions, limits, renews=False)
        self._returns = Returns(self.sessions, self._hello)
        self._recoverer = Recoverer(
            blueprint.epoch, self.sessions, limits, self._returns, self.life
        )
        self._improver = Improver(self.sessions, limits, self._recoverer)
        self._disputes = Disputes()
        self._clock = PatientClock()
        self._away_s = self._away_until_s = 0.0
        self._stalls, self._stalled_at = 0, -1

    @property
    def recoveries(self) -> list[Recovery]:
        """The changes of epochs that the run got over so far."""
        return self._recoverer.done

    @property
    def deadline_s(self) -> float | None:
        """When the next `Tick` is due at the latest; None if none is."""
        due_s = self._clock.due_s
        return None if self.life.is_over or due_s is None else self._clock.at_s(due_s)

    @property
    def _due_s(self) -> float | None:
        watchers = (self._watch, self._recoverer, self._returns, self._improver)
        due = [watcher.deadline_s for watcher in watchers]
        return min((at_s for at_s in due if at_s is not None), default=None)

    @property
    def _members(self) -> list[Session]:
        """The sessions that have a part in the epoch and are not lost."""
        return [session for session in self._rollout.members if session.is_there]

    def _needs(self, session: Session) -> bool:
        """Whether a node has a part in the epoch, or may get one in the next."""
        is_there = session.state is not SessionState.CONNECTING
        return session in self._rollout.members or (self.life.state in WITHOUT_PLAN and is_there)

    @property
    def _may_recover(self) -> bool:
        return self._limits.recovery.enabled and self.life.has_streamed

    @property
    def _is_over(self) -> bool:
        """Whether every result is taken."""
        return self.taken == self.frames

    def _is_stale(self, message: Control) -> bool:
        match message:
            case Failed(epoch=0):  # it was no deployment that failed
                return False
            case Progress() | Deployed() | Stopped() | Failed():
                return self.life.state in WITHOUT_PLAN or message.epoch != self.blueprint.epoch
            case _:
                return False

    def _how_lost(
        self, session: Session, how: str, state: SessionState | None = None
    ) -> LauncherError:
        """The error about a node that is lost."""
        state = state or session.state
        return sentences.lost(session, state, how, self._progress(state))

    def _progress(self, state: SessionState) -> str:
        if self.life.has_streamed or state in (
            SessionState.RUNNING,
            SessionState.STOPPING,
            SessionState.STOPPED,
        ):
            return f", after {self.taken} of {self.frames} results"
        return ""

    # ------------------------------------------------------------ the way down

    def _stop_if_done(self, now_s: float) -> list[Action]:
        if self.taken < self.frames or self._watch.suspicions:
            return []
        if self.life.is_down:
            return self._end(None)
        self.life.step(RunStep.STOP)
        self._watch.expect_no_results()
        self._returns.give_up()
        self._improver.is_interrupted()
        actions: list[Action] = []
        for session in self._members:
            if session.state is SessionState.RUNNING:
                session.step(Step.STOP)
                session.deadline_s = now_s + self._limits.run.silence_timeout_s
                actions.append(Send(session.node, Stop(self.blueprint.epoch)))
        return actions + self._finish_if_stopped()

    def _finish_if_stopped(self) -> list[Action]:
        stopped = all(session.state is SessionState.STOPPED for session in self._members)
        return self._end(None) if stopped else []

    def _end(self, error: LauncherError | None) -> list[Action]:
        self.life.step(RunStep.END)
        open_sessions = [
            s for s in self.sessions.values() if s.is_open or s.state is SessionState.RETURNING
        ]
        return [*(Send(s.node, s.goodbye) for s in open_sessions), End(error)]

    # ------------------------------------------------------------ without a node

    def _down(
        self, losses: Sequence[Loss], now_s: float, *, failed: bool = False, strikes: float = 1.0
    ) -> list[Action]:
        """These nodes are lost: go on without them if that is wanted and possible.

        They `failed` by themselves, or else are out of reach. What it counts is in `strikes`
        (`launcher.core.returns`).
        """
        if not losses:
            return []
        needed = [loss for loss in losses if self._needs(loss[0])]
        if needed and not self._may_recover:
            return self._end(needed[0][1])
        actions = [
            action
            for session, _ in losses
            for action in self._lose(session, now_s, strikes, failed=failed)
        ]
        if needed and self._is_over:  # nothing is left to do for those that failed
            for session in [s for s in self._members if s.state is SessionState.FAILED]:
                actions += self._lose(session, now_s, failed=True)
            self._watch.expect_nothing()
            return actions + self._stop_if_done(now_s)
        if needed:
            return actions + self._give_up_epoch(needed, now_s)
        return actions + [Notice(f"{error}; it stood by") for _, error in losses]

    def _lose(
        self, session: Session, now_s: float, strikes: float = 1.0, *, failed: bool
    ) -> list[Action]:
        """Say goodbye to a node; an agent of ours lives on if it may be of use again."""
        goodbye = session.goodbye
        was_open, is_member = session.is_open, session in self._rollout.members
        session.lose()
        epoch = self.blueprint.epoch if is_member else 0
        strikes = strikes if is_member else min(strikes, STANDING_BY)
        self._returns.lost(session, now_s, epoch, strikes, failed=failed)
        if not failed and self._limits.recovery.enabled:
            goodbye = Bye()
        self._rollout.leave(session)
        return [Send(session.node, goodbye)] if was_open else []

    def _give_up_epoch(
        self,
        losses: Sequence[Loss],
        now_s: float,
        dispute: tuple[Sequence[str], str] | None = None,
    ) -> list[Action]:
        # Who answered a question with a failure is not asked again: no answer would be known by it.
        broken = [
            s
            for s in self.sessions.values()
            if s.state is SessionState.FAILED and s.unanswered.total()
        ]
        losses = [*losses, *((s, self._watch.confession(s)) for s in broken)]
        goodbyes = [action for s in broken for action in self._lose(s, now_s, failed=True)]
        self._watch.expect_nothing()
        self._improver.is_interrupted()
        given_up = self._recoverer.give_up(losses, self.blueprint.epoch, now_s, dispute)
        return goodbyes + self._unless_hopeless(given_up, now_s)

    def _halted(self, event: Halted, now_s: float) -> list[Action]:
        found = self._recoverer.halted(event, self.frames, now_s)
        return self._unless_hopeless(found, now_s)

    def _unless_hopeless(self, found: list[Action] | LauncherError, now_s: float) -> list[Action]:
        if isinstance(found, LauncherError):
            return self._end(found)
        better = self._recoverer.better()
        return found if better is None else found + self._roll_out(better, now_s)

    def _unplannable(self, event: Unplannable, now_s: float) -> list[Action]:
        found = self._recoverer.unplannable(event.epoch, event.reason, now_s)
        if found is None:
            return self._improver.unplannable(event)
        return self._end(found) if isinstance(found, LauncherError) else found

    def _planned(self, event: PlanReply, now_s: float) -> list[Action]:
        blueprint = event.blueprint
        if not self.life.is_down:
            left = self.frames - self.taken
            found = self._improver.planned(event, self._members, left)
            if not isinstance(found, Change) or self._watch.suspicions:
                return [] if isinstance(found, Change) else found
            self._watch.expect_nothing()
            self._improver.is_interrupted()
            return self._recoverer.change(found, self.blueprint.epoch, now_s)
        instead = self._recoverer.planned(blueprint.epoch, blueprint.deployments, now_s)
        return self._roll_out(blueprint, now_s) if instead is None else instead

    def _roll_out(self, blueprint: Blueprint, now_s: float) -> list[Action]:
        self.blueprint = blueprint
        self._rollout = Rollout(blueprint, self.sessions, self._limits, renews=True)
        return [a for session in self._members for a in self._rollout.join(session, now_s)]

    # ------------------------------------------------------------ whom to believe

    def _suspicion_stands(self, now_s: float) -> list[Action]:
        suspicions = self._watch.settled()
        first = min((s.error for s in suspicions), key=lambda e: not isinstance(e, BarredError))
        if not self._may_recover or (isinstance(first, BarredError) and not self.taken):
            return self._end(first)
        verdict = self._disputes.judge(suspicions, self._members, now_s)
        if verdict.failed:
            failed = [(self.sessions[node], said.error) for node, said in verdict.failed]
            return self._down(failed, now_s, failed=True)
        if verdict.suspect:
            suspects = [
                (self.sessions[node], sentences.suspect(self.sessions[node], said.error))
                for node, said in verdict.suspect
            ]
            return self._down(suspects, now_s, strikes=SUSPECT)
        if self._is_over:
            return self._down([(s.session, s.error) for s in suspicions], now_s)
        return self._begin_anew(suspicions, now_s)

    def _begin_anew(self, suspicions: Sequence[Suspicion], now_s: float) -> list[Action]:
        """All nodes answer, and one accuses another: the same nodes begin anew."""
        nodes = sorted({node for s in suspicions for node in (s.session.node, s.peer)})
        why = f"{suspicions[0].error}; all nodes answer and begin anew"
        return self._give_up_epoch([], now_s, (nodes, why))

    def _stalled(self, stall_s: float, now_s: float) -> list[Action]:
        progress = self._progress(SessionState.RUNNING)
        error = sentences.stalled(self._members, stall_s, progress)
        firings = {s.node: s.stats.firings for s in self._members if s.stats is not None}
        frames, taken = (n - self._recoverer.first for n in (self._watch.offered, self.taken))
        if not self._may_recover:
            return self._end(error)
        found = [
            self._disputes.is_stuck(node, self._neighbours(node), now_s)
            for node in stuck(self.blueprint, firings, frames, taken)
        ]
        if found:
            losses = [(self.sessions[node], error) for node in dict.fromkeys(found)]
            return self._down(losses, now_s, strikes=SUSPECT)
        if self._stalled_at == self.taken:
            self._stalls += 1
        else:
            self._stalled_at, self._stalls = self.taken, 1
        if self._stalls >= STALLS:
            return self._end(error)
        nodes = [session.node for session in self._members]
        return self._give_up_epoch([], now_s, (nodes, f"{error}; all nodes begin anew"))

    def _neighbours(self, node: str) -> list[str]:
        """The nodes with which a node shares a channel."""
        channels = self.blueprint.deployments[node].channels
        ends = {end for c in channels for end in (c.source_node, c.target_node)}
        return sorted(ends - {node, HOST})

    # ------------------------------------------------------------ after an absence of our own

    def _was_away(self, away_s: float, now_s: float) -> list[Action]:
        """This launcher was stopped or suspended: nobody is to blame for what follows from it."""
        self._watch.was_away(now_s)
        if away_s < self._limits.run.lease_s / 2:
            return []
        self._away_s = away_s
        self._away_until_s = now_s + self._limits.recovery.heartbeat_s
        return [Notice(f"this launcher was stopped for {away_s:.0f} s; asking all nodes")]

    def _all_anew(self, first: Session, now_s: float) -> list[Action]:
        """A node has given this launcher up while that was away; the others have too, or will:
        greet them all anew."""
        self._away_until_s = now_s
        gone = [s for s in self.sessions.values() if s.is_open or s is first]
        self._watch.expect_nothing()
        all_welcome = all(s.welcome is not None for s in self._rollout.members)
        if all_welcome and not self.life.has_streamed:
            self.life.step(RunStep.START)  # it would have
        losses = [(s, sentences.was_away(s, self._away_s)) for s in gone]
        return self._down(losses, now_s, strikes=0.0)
