"""Decides what the launcher does in a run, from the first greeting to the last goodbye.

`Supervisor.handle(event, now_s)` returns the actions that follow from an event; the states of a run
are the table of `launcher.core.run_state`, those of an agent's session that of
`launcher.core.session`.

A run has four barriers, which all nodes pass together. No agent deploys before every agent has sent
its Welcome, because a deployment names the addresses of its peers. No node starts before all are
ready, is stopped before every result is taken, or is released before all have stopped.

An error on one node ends the run on all nodes if recovery is not `enabled`, or if it comes before
the stream begins and the run is to begin with all nodes (`run.start`). Every open session is then
closed, so that agents are free for the next launcher, and `End` has the sentence for the user.
Otherwise the node counts as lost, and the run continues without it in a new epoch. An epoch is
abandoned on all nodes at once. The next one has a higher number, so no message of the old one is
acted upon, and it streams the frames that have no result.

Nodes without a part in the plan are greeted as well and stand by; the run does not depend on them.
A lost node is greeted again (`launcher.core.returns`) and then stands by too, until a loss or a
better plan (`launcher.core.improving`) gives it a part. If no node is left, or no plan exists for
those that are left, the run waits for nodes to come back before it ends (`launcher.core.recovery`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from launcher.core import sentences
from launcher.core.blame import Disputes, ModelFaults, stuck
from launcher.core.blueprint import Blueprint
from launcher.core.clocks import PatientClock
from launcher.core.events import (
    Abandoned,
    Action,
    AgentExited,
    Begin,
    Consented,
    ControlConnected,
    DataConnected,
    Disconnected,
    DoorShut,
    End,
    Event,
    Halted,
    MessageMalformed,
    MessageReceived,
    NodeEvent,
    NotAdmitted,
    Notice,
    PlanReply,
    Rehearsed,
    ResultsTaken,
    Send,
    StageProgress,
    Stream,
    Unplannable,
)
from launcher.core.improving import Improver
from launcher.core.preloading import PRELOADED, Preloading
from launcher.core.recovery import Change, Loss, Recoverer, Recovery
from launcher.core.returns import STANDING_BY, Returns
from launcher.core.roll import Absence, Absences
from launcher.core.rollout import Rollout
from launcher.core.run_state import WITHOUT_PLAN, RunLife, RunStep
from launcher.core.session import Contact, Session, SessionState, Step
from launcher.core.speeds import KEPT_EVERY_S, doubted, in_stream
from launcher.core.stream import ENDLESS
from launcher.core.watch import EXIT_GRACE_S, Limits, Suspicion, Watch
from launcher.errors import BadInputError, BarredError, LauncherError
from nodes.core.engines import EngineLackingError, resolve
from nodes.core.events import Tick
from nodes.protocol.errors import RemoteProtocolError
from nodes.protocol.messages import (
    HOST,
    Bye,
    ChannelSpec,
    Control,
    Deployed,
    Failed,
    GetFigures,
    GetStats,
    Hello,
    Missing,
    Prepared,
    Progress,
    Refused,
    Stats,
    Stop,
    Stopped,
    Stored,
    Welcome,
    is_understood,
)
from nodes.protocol.schema import has_message

SUSPECT = 2.0
"""Strikes for a node that is excluded because of its disputes with others."""

NEVER_DEPLOYED = 0
"""No epoch has this number. A `Stop` of it frees what a node has loaded ahead."""

LOADING = (
    SessionState.QUERYING,
    SessionState.UPLOADING,
    SessionState.STOCKED,
    SessionState.DEPLOYING,
    SessionState.READY,
    SessionState.FAILED,
)
"""The states of a node that has a part in an epoch which does not stream yet."""

STALLS = 2
"""A run ends after this many stalls without a result in between and without a node at fault."""


class Supervisor:
    """Decides for one run of `frames` frames, which begins with the epoch of `blueprint`.

    `contacts` are all nodes that may be used, `hello` is the greeting to their agents.
    """

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
        contacts = tuple(contacts)
        self.sessions = {contact.name: Session.of(contact) for contact in contacts}
        self.life = RunLife()
        self._absent = {contact.name: contact.absence for contact in contacts if contact.absence}
        self._absences = Absences(self.sessions)
        self._doubted: set[str] = set()
        """The nodes that are to measure their boards again after the run."""
        self._hello = hello
        self._limits = limits
        self._watch = Watch(self.sessions, limits)
        self._rollout = Rollout(blueprint, self.sessions, limits, renews=False)
        self._returns = Returns(self.sessions, self._hello, self._why_unusable)
        self._recoverer = Recoverer(
            blueprint.epoch, self.sessions, limits, self._returns, self.life
        )
        self._improver = Improver(self.sessions, limits, self._recoverer)
        self._preloading: Preloading | None = None
        self._loaded_ahead: list[Session] = []
        """The sessions of nodes that may have loaded a plan ahead that does not stream yet."""
        self._disputes = Disputes()
        self._model_faults = ModelFaults()
        self._clock = PatientClock()
        self._away_s = self._away_until_s = 0.0
        self._stalls, self._stalled_at = 0, -1
        self._rolled_out_s = 0.0
        self._keep_at_s = 0.0
        self._is_held_back = False
        """Whether all nodes run, and no frame is sent until it is known that the plan stays."""

    @property
    def recoveries(self) -> list[Recovery]:
        """The completed changes of epochs, in order; the last ones if there are very many."""
        return list(self._recoverer.done)

    @property
    def recovered(self) -> int:
        """How many changes of epochs were completed."""
        return self._recoverer.completed

    @property
    def absences(self) -> tuple[Absence, ...]:
        """The nodes without which the run began."""
        return self._absences.all

    @property
    def may_do_without(self) -> bool:
        """Whether, at present, the run can survive the loss of a node."""
        if self.life.has_streamed:
            return self._limits.recovery.enabled
        return self._limits.starts_with_available

    @property
    def deadline_s(self) -> float | None:
        """When the next `Tick` is due, on the clock of `handle`; None if none is."""
        due_s = self._clock.due_s
        return None if self.life.is_over or due_s is None else self._clock.at_s(due_s)

    def handle(self, event: Event, now_s: float) -> list[Action]:
        """Return the actions that follow from an event; none once the run has ended.

        `now_s` is the time in seconds of a monotonic clock.
        """
        if self.life.is_over:
            return []
        patient_s, away_s = self._clock.read(now_s)
        actions = self._launcher_was_away(away_s, patient_s) if away_s else []
        actions += self._dispatch(event, patient_s)
        self._clock.due_s = self._due_s
        end = next((action for action in actions if isinstance(action, End)), None)
        return actions if end is None else self._end(actions, end)

    def _dispatch(self, event: Event, now_s: float) -> list[Action]:
        match event:
            case Begin():
                return self._begin(now_s)
            case ResultsTaken():
                self.taken, self.frames = event.results, event.frames
                is_down = self.life.is_down
                if self._watch.is_idle:  # an idle source is not the nodes' fault
                    self._improver.pace.begin()
                self._watch.note_progress(event, now_s, is_down=is_down)
                if not is_down:
                    self._improver.pace.record(self.taken, now_s)
                return [self._streaming(), *self._stop_if_done(now_s)]
            case Halted():
                return self._halted(event, now_s)
            case PlanReply():
                return self._planned(event, now_s)
            case Unplannable():
                return self._unplannable(event, now_s)
            case Consented():
                may_ask = self.may_do_without and self._preloading is None
                return self._improver.consent(self._members) if may_ask else []
            case Abandoned(error):
                return [End(error)]
            case Tick():
                return self._tick(now_s)
            case _:
                session = self.sessions[event.node]
                if session.is_present:
                    return self._from_present(session, event, now_s)
                return self._from_lost(session, event, now_s)

    def _from_present(self, session: Session, event: NodeEvent, now_s: float) -> list[Action]:
        if (again := session.repeat_greeting(event, self._hello)) is not None:
            return again
        match event:
            case MessageReceived(_, Failed() as failure) if (
                self._preloading is not None and self._preloading.is_refusal(session, failure)
            ):
                return self._keep_plan(session, failure, now_s)
            case MessageReceived():
                return self._receive(session, event, now_s)
            case MessageMalformed(_, reason):
                return self._breach(session, reason, now_s)
            case DataConnected(node):
                self._watch.data_connected(node)
                return []
            case NotAdmitted(_, error, final):
                if session.welcome is not None:
                    return []
                return self._unusable(session, error, now_s, is_barred=final)
            case DoorShut(_, tried):
                return self._door_is_shut(session, tried, now_s)
            case Disconnected():
                return self._disconnected(session, now_s)
            case AgentExited():
                return self._exited(session, event, now_s)
            case _:
                return []

    def _from_lost(self, session: Session, event: NodeEvent, now_s: float) -> list[Action]:
        """Ignore a lost node's events unless they show that it is back."""
        if not self._limits.recovery.enabled or self._all_taken:
            return []
        match event:
            case ControlConnected():
                return self._returns.connected(session, now_s)
            case MessageReceived():
                return self._receive_from_lost(session, event, now_s)
            case AgentExited():
                self._returns.process_ended(session.node)
                return self._recoverer.end_if_nobody_can_return(now_s)
            case NotAdmitted(_, error, final):
                return self._barred_from_lost(session, error, now_s, final=final)
            case DoorShut(_, tried):
                return self._door_is_shut(session, tried, now_s)
            case _:
                return []

    def _door_is_shut(self, session: Session, tried: tuple[str, ...], now_s: float) -> list[Action]:
        """Free an agent whose data port cannot be reached, and do without its node."""
        if session.welcome is not None:
            return []
        error = sentences.data_port_shut(session, tried)
        shut = NotAdmitted(session.node, error, final=False)
        return [Send(session.node, Bye()), *self._dispatch(shut, now_s)]

    def _barred_from_lost(
        self, session: Session, error: LauncherError, now_s: float, *, final: bool
    ) -> list[Action]:
        if final:
            self._returns.note_unusable(session.node, now_s, is_barred=True)
        if session.why_lost == str(error):
            return []
        session.stay_lost(str(error))
        self._absences.note(session, has_streamed=self.life.has_streamed)
        notice = Notice(str(error), "warning", (session.node,))
        return [notice, *self._recoverer.end_if_nobody_can_return(now_s)]

    def _receive_from_lost(
        self, session: Session, event: MessageReceived, now_s: float
    ) -> list[Action]:
        actions = self._returns.receive(session, event, now_s)
        if session.is_present:
            self._watch.begin_pinging(now_s)  # it may be the first present node
            self._absences.came(session.node, now_s)
            self._recoverer.node_returned(now_s)
            return actions + self._improver.node_returned(session, self._members, now_s)
        return actions + self._recoverer.end_if_nobody_can_return(now_s)

    @property
    def _due_s(self) -> float | None:
        due = [w.deadline_s for w in (self._watch, self._recoverer, self._returns)]
        due.append(
            self._improver.deadline_s if self._preloading is None else self._preloading.until_s
        )
        return min((at_s for at_s in due if at_s is not None), default=None)

    @property
    def _members(self) -> list[Session]:
        """The sessions that have a part in the epoch and are not lost."""
        return [session for session in self._rollout.members if session.is_present]

    def _needs(self, session: Session) -> bool:
        """Whether a node has a part in the epoch, or may get one in the next."""
        if self.life.state in WITHOUT_PLAN:
            return session.state is not SessionState.CONNECTING
        return session in self._rollout.members

    @property
    def _all_taken(self) -> bool:
        """Whether every result is taken."""
        return self.taken == self.frames

    def _is_stale(self, message: Control) -> bool:
        match message:
            case Failed(epoch=0):  # the failure concerns no deployment
                return False
            case Prepared():  # these may answer an abandoned preloading
                return self._preloading is None
            case Progress() | Deployed() | Stopped() | Failed():
                return self.life.state in WITHOUT_PLAN or message.epoch != self.blueprint.epoch
            case _:
                return False

    def _loss_error(
        self, session: Session, how: str, state: SessionState | None = None
    ) -> LauncherError:
        """The error about a node that is lost, `how` being a clause."""
        state = state or session.state
        return sentences.lost(session, state, how, self._progress(state))

    def _progress(self, state: SessionState) -> str:
        if self.life.has_streamed or state in (
            SessionState.RUNNING,
            SessionState.STOPPING,
            SessionState.STOPPED,
        ):
            of = "" if self.frames == ENDLESS else f" of {self.frames}"
            what = "results" if self._limits.batch == 1 else "batches of results"
            return f", after {self.taken}{of} {what}"
        return ""

    # ------------------------------------------------------------ greeting, deploying, starting

    def _begin(self, now_s: float) -> list[Action]:
        self._absences.begin(now_s)
        self._rolled_out_s = now_s
        for session in self.sessions.values():
            session.expect(now_s + self._limits.patience_s([session]))
        known = [
            (self.sessions[node], BadInputError(absence)) for node, absence in self._absent.items()
        ]
        return [
            StageProgress("connecting", 0, len(self._members)),
            *(
                session.greet(self._hello)
                for node, session in self.sessions.items()
                if node not in self._absent
            ),
            *self._handle_losses(known, now_s, strikes=0.0, is_known=True),
        ]

    def _receive(self, session: Session, event: MessageReceived, now_s: float) -> list[Action]:
        message, state = event.message, session.state
        if not session.awaits(message) or self._is_stale(message):
            return []
        try:
            session.receive(message, event.host)
            match message:
                case Welcome():
                    return self._welcomed(session, message, now_s)
                case Refused():
                    return self._refused(session, message, state, now_s)
                case Missing() | Stored() | Prepared() | Progress() | Deployed():
                    return self._received(session, message, now_s)
                case Failed():
                    return self._failed(session, message, state, now_s)
                case Stopped():
                    return self._finish_if_stopped(now_s)
                case Stats():
                    return self._keep_times(now_s) if now_s >= self._keep_at_s else []
                case _:  # a Pong or late Figures: the agent lives, which was noted above
                    pass
        except RemoteProtocolError as error:
            return self._breach(session, str(error), now_s)
        except BadInputError as error:
            return [End(error)]
        return []

    def _failed(
        self, session: Session, failure: Failed, state: SessionState, now_s: float
    ) -> list[Action]:
        """End the run if the model is at fault; lose the node, or ask the one that it blames."""
        if not failure.peer and state in LOADING and not self.life.has_streamed:
            others = [
                s
                for s in self.sessions.values()
                if s.is_open and s.state is not SessionState.FAILED
            ]
            if said := self._model_faults.note(session, failure.reason, others):
                return [End(sentences.unloadable(said))]
        why = sentences.failed(
            session, state, failure.reason, self._progress(state), failure.is_barred
        )
        if not self._needs(session):
            return self._handle_losses([(session, why)], now_s, failed=True)
        return self._watch.suspect(Suspicion(session, failure.peer, why), now_s)

    def _received(
        self,
        session: Session,
        answer: Missing | Stored | Prepared | Progress | Deployed,
        now_s: float,
    ) -> list[Action]:
        """Act on an answer about subnets, of the epoch that is rolled out or of a better plan."""
        if session.state in PRELOADED or isinstance(answer, Prepared):
            if self._preloading is None or isinstance(answer, Progress | Deployed):
                return []
            actions = self._preloading.receive(session, answer)
            return actions + self._change_if_preloaded(now_s)
        actions = self._rollout.receive(session, answer, now_s)
        return actions + (self._start(now_s) if self._rollout.is_ready else [])

    def _refused(
        self, session: Session, answer: Refused, state: SessionState, now_s: float
    ) -> list[Action]:
        if state is SessionState.CONNECTING:
            error = sentences.refused(session, answer, self._hello.process)
            if not is_understood(answer.protocol):
                return self._unusable(session, error, now_s)
            return self._handle_losses([(session, error)], now_s, strikes=0.0)
        if now_s < self._away_until_s:
            return self._greet_all_again(session, now_s)
        how = f"its agent no longer knows this launcher ({answer.reason})"
        return self._handle_losses([(session, self._loss_error(session, how, state))], now_s)

    def _welcomed(self, session: Session, welcome: Welcome, now_s: float) -> list[Action]:
        if (why := self._why_unusable(session, welcome)) is not None:
            session.close()
            return [*self._unusable(session, why, now_s), Send(session.node, session.goodbye)]
        self._watch.begin_pinging(now_s)
        if self.life.state in WITHOUT_PLAN:
            return self._answered(now_s)
        if session not in self._rollout.members:
            return []
        welcomed = sum(other.welcome is not None for other in self._members)
        report = StageProgress("connecting", welcomed, len(self._members))
        return [report, *self._rollout.join(session, now_s)]

    def _answered(self, now_s: float) -> list[Action]:
        """Act on a node's answer to the first greeting, or on its being late, without a plan."""
        self._recoverer.node_returned(now_s)
        return self._recoverer.node_answered(now_s)

    def _why_unusable(self, session: Session, welcome: Welcome) -> LauncherError | None:
        """The reason why a node cannot be used, by its agent's `Welcome`; None if it can."""
        if not is_understood(welcome.protocol):
            return sentences.other_protocol(session, welcome.protocol)
        needed = {channel.encoding for channel in self._channels_of(session.node)} - {"raw"}
        if missing := needed.difference(welcome.encodings):
            return sentences.lacks_encoding(session, min(missing))
        try:
            resolve(session.engine, welcome.engines)
        except EngineLackingError as error:
            return sentences.lacks_engine(session, error)
        return None

    def _channels_of(self, node: str) -> Iterable[ChannelSpec]:
        """The channels of a node in the current epoch; all channels if it has no part in it."""
        deployments = self.blueprint.deployments
        of = [deployments[node]] if node in deployments else deployments.values()
        return (channel for deployment in of for channel in deployment.channels)

    def _unusable(
        self, session: Session, error: LauncherError, now_s: float, *, is_barred: bool = False
    ) -> list[Action]:
        """Lose a node whose agent never accepted our session; waiting would not help."""
        self._returns.note_unusable(session.node, now_s, is_barred=is_barred)
        return self._handle_losses([(session, error)], now_s, strikes=0.0)

    def _start(self, now_s: float) -> list[Action]:
        actions = self._rollout.start()
        is_first = not self.life.has_streamed
        if is_first:
            self._absences.note_streaming(self.blueprint.deployments)
            self._returns.note_streaming(now_s)
        self.life.step(RunStep.START)
        self._loaded_ahead = []
        deployed = {s.node: s.deployed for s in self._members if s.deployed is not None}
        planned = self.blueprint
        self._doubted |= doubted(planned, deployed)
        self.blueprint = planned.rehearsed({n: each.phase_s for n, each in deployed.items()})
        welcomes = {s.node: s.welcome for s in self._members if s.welcome is not None}
        actions.append(Rehearsed(planned.epoch, deployed, welcomes))
        actions += self._recoverer.finish(now_s)
        self._improver.begin_epoch(self.blueprint, now_s)
        if is_first or self._is_held_back:
            left, loading_s = self.frames - self.taken, now_s - self._rolled_out_s
            asked = self._improver.correction(planned, self._members, left, loading_s)
            self._is_held_back = bool(asked)
            actions += asked
        return actions if self._is_held_back else [*actions, *self._stream(now_s)]

    def _stream(self, now_s: float) -> list[Action]:
        """Let frames stream by the plan that all nodes run."""
        self._is_held_back = False
        self._keep_at_s = now_s + KEPT_EVERY_S
        every = self._rollout.data_addresses()
        addresses = {peer: every[peer] for peer in self.blueprint.host_peers()}
        self._watch.expect_links(addresses, now_s)
        self._watch.expect_results(now_s)
        return [Stream(addresses, self.blueprint), self._streaming()]

    def _keep_times(self, now_s: float) -> list[Action]:
        """Keep the times of phases in the stream for later runs."""
        self._keep_at_s = now_s + KEPT_EVERY_S
        found: dict[str, Deployed] = {}
        welcomes: dict[str, Welcome] = {}
        for session in self._members:
            took = session.deployed and in_stream(session.deployed, session.stats)
            if took is not None and session.welcome is not None:
                found[session.node], welcomes[session.node] = took, session.welcome
        return [Rehearsed(self.blueprint.epoch, found, welcomes, in_stream=True)] if found else []

    def _streaming(self) -> StageProgress:
        frames = self._watch.offered if self.frames == ENDLESS else self.frames
        return StageProgress("streaming", self.taken, frames)

    # ------------------------------------------------------------ faults

    def _breach(self, session: Session, reason: str, now_s: float) -> list[Action]:
        why = sentences.unintelligible(session, reason)
        return self._handle_losses([(session, why)], now_s, failed=True)

    def _disconnected(self, session: Session, now_s: float) -> list[Action]:
        if now_s < self._away_until_s:
            return self._greet_all_again(session, now_s)
        if session.state is SessionState.FAILED:
            return self._handle_losses(
                [(session, self._watch.reported_failure(session))], now_s, failed=True
            )
        if not session.started_by_us:
            return self._handle_losses(
                [(session, self._loss_error(session, sentences.CLOSED))], now_s
            )
        # The exit code follows, and says more.
        session.expect(now_s + EXIT_GRACE_S, sentences.CLOSED)
        return []

    def _exited(self, session: Session, event: AgentExited, now_s: float) -> list[Action]:
        if session.state is SessionState.FAILED:
            error = self._watch.reported_failure(session)
        else:
            error = sentences.exited(session, event, self._progress(session.state))
        session.close()  # no process is left to say goodbye to
        self._returns.process_ended(session.node)
        return self._handle_losses([(session, error)], now_s)

    def _tick(self, now_s: float) -> list[Action]:
        unreached = self._watch.unreached(now_s)
        needed = [session for session in unreached if self._needs(session)]
        if needed and not self.may_do_without:
            return [End(sentences.unreachable(needed, self._limits.patience_s(needed)))]
        absent = [(s, sentences.unreachable([s], self._limits.patience_s([s]))) for s in unreached]
        actions = self._handle_losses(absent, now_s, strikes=0.0)
        if any(isinstance(action, End) for action in actions):
            return actions
        return [*actions, *self._returns.due(now_s), *self._check_members(now_s)]

    def _check_members(self, now_s: float) -> list[Action]:
        silence = self._watch.common_silence(now_s)
        if silence:
            return [Notice(silence, "warning")]
        gone = [
            (session, self._loss_error(session, how))
            for session, how in self._watch.find_lost(now_s)
        ]
        if gone:
            return self._handle_losses(gone, now_s)
        if self._watch.suspicion_is_due(now_s):
            return self._judge_suspicions(now_s)
        due = self._recoverer.due(now_s)
        stall_s = self._watch.stall_s(now_s)
        if stall_s is not None:
            return self._stalled(stall_s, now_s)
        questions = self._watch.pings(now_s)
        if self._watch.inquiry_is_due(now_s):
            questions += [Send(session.node, GetStats()) for session in self._members]
        if self._preloading is not None:
            return due + questions + self._change_if_preloaded(now_s)
        return due + questions + self._improver.due(self._members, now_s)

    # ------------------------------------------------------------ stopping and ending

    def _stop_if_done(self, now_s: float) -> list[Action]:
        if self.taken < self.frames or self._watch.suspicions:
            return []
        if self.life.is_down:
            return [End(None)]
        self.life.step(RunStep.STOP)
        self._watch.expect_no_results()
        self._returns.give_up()
        self._improver.cancel()
        actions = self._give_up_preloading()
        for session in self._members:
            if session.state is SessionState.RUNNING:
                session.step(Step.STOP)
                session.expect(now_s + self._limits.run.silence_timeout_s)
                actions.append(Send(session.node, Stop(self.blueprint.epoch)))
        return actions + self._finish_if_stopped(now_s)

    def _finish_if_stopped(self, now_s: float) -> list[Action]:
        stopped = all(session.state is SessionState.STOPPED for session in self._members)
        return [*self._keep_times(now_s), End(None)] if stopped else []

    def _end(self, actions: Sequence[Action], end: End) -> list[Action]:
        """End the run, as one of the actions demands: say goodbye to all nodes after the others."""
        self.life.step(RunStep.END)
        open_sessions = [
            s for s in self.sessions.values() if s.is_open or s.state is SessionState.RETURNING
        ]
        before = [action for action in actions if not isinstance(action, End)]
        again = [] if end.error is not None else self._measuring_again(open_sessions)
        return [*before, *again, *(Send(s.node, s.goodbye) for s in open_sessions), end]

    def _measuring_again(self, sessions: Iterable[Session]) -> list[Action]:
        """Let boards measure themselves again whose figures the rehearsal has contradicted.

        They do so after the run, and later launches use what they find.
        """
        nodes = tuple(
            session.node
            for session in sessions
            if session.node in self._doubted & self.blueprint.deployments.keys()
            and not session.started_by_us
            and session.welcome is not None
            and has_message(session.welcome.protocol, GetFigures)
        )
        if not nodes:
            return []
        threads = {node: self.blueprint.deployments[node].threads for node in nodes}
        text = f"{', '.join(nodes)}: much faster or slower than planned; measured again now"
        return [
            *(Send(node, GetFigures(threads[node], again=True)) for node in nodes),
            Notice(text, nodes=nodes),
        ]

    # ------------------------------------------------------------ losses and changes of epochs

    def _handle_losses(
        self,
        losses: Sequence[Loss],
        now_s: float,
        *,
        failed: bool = False,
        strikes: float = 1.0,
        is_known: bool = False,
    ) -> list[Action]:
        """Continue without these nodes if recovery is enabled and possible, or end the run.

        They `failed` by themselves, or else are out of reach. The loss counts `strikes` against
        them (`launcher.core.returns`). The user has been notified already if it `is_known`.
        """
        if not losses:
            return []
        needed = [loss for loss in losses if self._needs(loss[0])]
        if needed and not self.may_do_without:
            return [End(needed[0][1])]
        actions: list[Action] = [] if is_known else self._loss_notices(losses)
        for session, error in losses:
            actions += self._lose(session, error, now_s, strikes, failed=failed)
        if needed and self._all_taken:  # nodes that failed have no more work
            for session in [s for s in self._members if s.state is SessionState.FAILED]:
                error = self._watch.reported_failure(session)
                actions += self._lose(session, error, now_s, failed=True)
            self._watch.expect_nothing()
            return actions + self._stop_if_done(now_s)
        if needed:
            return actions + self._give_up_epoch(needed, now_s)
        return actions + self._recoverer.node_answered(now_s)

    def _loss_notices(self, losses: Sequence[Loss]) -> list[Action]:
        """Notices of losses that no notice of a recovery mentions."""
        notices: list[Action] = []
        for session, error in losses:
            if not self._needs(session):
                goes_on = "it stood by" if session.is_open else "the run continues without it"
                notices.append(Notice(f"{error}; {goes_on}", "warning", (session.node,)))
            elif not self.life.has_streamed:
                notices.append(Notice(str(error), "warning", (session.node,)))
        return notices

    def _lose(
        self,
        session: Session,
        error: LauncherError,
        now_s: float,
        strikes: float = 1.0,
        *,
        failed: bool,
    ) -> list[Action]:
        """Say goodbye to a node; an agent that we started keeps running if it may be used again."""
        goodbye = session.goodbye
        was_open, is_member = session.is_open, session in self._rollout.members
        was_loading = session.state in LOADING and not self.life.has_streamed
        session.lose(str(error))
        epoch = self.blueprint.epoch if is_member else 0
        strikes = strikes if is_member else min(strikes, STANDING_BY)
        self._returns.note_loss(session, now_s, epoch, strikes, failed=failed)
        if was_loading and strikes:
            self._returns.note_lost_loading(session.node)
        self._absences.note(session, has_streamed=self.life.has_streamed)
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
        broken = [s for s in self.sessions.values() if not s.may_be_renewed]
        failures = [(s, self._watch.reported_failure(s)) for s in broken]
        losses = [*losses, *failures]
        goodbyes = [
            action
            for s, error in failures
            for action in self._lose(s, error, now_s, failed=not self._watch.blames_another(s))
        ]
        self._watch.expect_nothing()
        self._improver.cancel()
        goodbyes += self._give_up_preloading()
        given_up = self._recoverer.give_up(losses, self.blueprint.epoch, now_s, dispute)
        return goodbyes + given_up + self._roll_out_better_plan(now_s)

    def _halted(self, event: Halted, now_s: float) -> list[Action]:
        found = self._recoverer.halted(event, self.frames, now_s)
        return found + self._roll_out_better_plan(now_s)

    def _roll_out_better_plan(self, now_s: float) -> list[Action]:
        """Deploy the better plan for which the epoch was abandoned, once the stream is halted."""
        better = self._recoverer.take_better_plan()
        return [] if better is None else self._roll_out(better, now_s)

    def _unplannable(self, event: Unplannable, now_s: float) -> list[Action]:
        found = self._recoverer.unplannable(event.epoch, event.reason, now_s)
        if found is None:
            return [*self._improver.unplannable(event), *self._release(now_s)]
        return found

    def _planned(self, event: PlanReply, now_s: float) -> list[Action]:
        blueprint = event.blueprint
        if not self.life.is_down:
            if self._preloading is not None:
                return []
            left = self.frames - self.taken
            found = self._improver.planned(event, self._members, left)
            if not isinstance(found, Change):
                return [*found, *self._release(now_s)]
            if self._watch.suspicions:
                return self._release(now_s)
            until_s = now_s + self._limits.run.deploy_timeout_s
            self._preloading = Preloading(found, self.sessions, until_s)
            return [*self._preloading.begin(), *self._change_if_preloaded(now_s)]
        instead = self._recoverer.planned(blueprint.epoch, blueprint.deployments, now_s)
        return self._roll_out(blueprint, now_s) if instead is None else instead

    def _change_if_preloaded(self, now_s: float) -> list[Action]:
        """Change to the better plan whose subnets are prepared, if that is still possible."""
        preloading = self._preloading
        if preloading is None or (preloading.can_be_carried_out and not preloading.is_over(now_s)):
            return []
        if not preloading.can_be_carried_out or self._watch.suspicions:
            self._improver.look_again(now_s)
            return [*self._give_up_preloading(), *self._release(now_s)]
        self._loaded_ahead = preloading.end()
        self._preloading = None
        self._watch.expect_nothing()
        self._improver.cancel()
        change = self._recoverer.change(preloading.change, self.blueprint.epoch, now_s)
        return [*self._keep_times(now_s), *change]

    def _keep_plan(self, session: Session, failure: Failed, now_s: float) -> list[Action]:
        """Abandon the change for which a node cannot store its blobs."""
        preloading = self._preloading
        if preloading is None:
            return []
        why = f"{sentences.where(session)}: {failure.reason}"
        kept = self._improver.keep_plan(preloading.change, why, now_s)
        return self._give_up_preloading() + kept + self._release(now_s)

    def _release(self, now_s: float) -> list[Action]:
        """Stream by the plan that was rehearsed, because it stays; nothing if frames stream."""
        may_stream = self._is_held_back and not self.life.is_down
        return self._stream(now_s) if may_stream else []

    def _give_up_preloading(self) -> list[Action]:
        preloading, self._preloading = self._preloading, None
        return [] if preloading is None else preloading.give_up()

    def _roll_out(self, blueprint: Blueprint, now_s: float) -> list[Action]:
        self.blueprint = blueprint
        self._rolled_out_s = now_s
        self._rollout = Rollout(blueprint, self.sessions, self._limits, renews=True)
        left_out = [s for s in self._loaded_ahead if s.is_open and s not in self._members]
        return [
            *(Send(session.node, Stop(NEVER_DEPLOYED)) for session in left_out),
            *(a for session in self._members for a in self._rollout.join(session, now_s)),
        ]

    # ------------------------------------------------------------ accusations and stalls

    def _judge_suspicions(self, now_s: float) -> list[Action]:
        suspicions = self._watch.take_suspicions()
        first = min((s.error for s in suspicions), key=lambda e: not isinstance(e, BarredError))
        if not self.may_do_without or (isinstance(first, BarredError) and not self.taken):
            return [End(first)]
        verdict = self._disputes.judge(suspicions, self._members, now_s)
        if verdict.failed:
            failed = [(self.sessions[node], said.error) for node, said in verdict.failed]
            return self._handle_losses(failed, now_s, failed=True)
        if verdict.suspect:
            suspects = [
                (self.sessions[node], sentences.suspect(self.sessions[node], said.error))
                for node, said in verdict.suspect
            ]
            return self._handle_losses(suspects, now_s, strikes=SUSPECT)
        if self._all_taken:
            return self._handle_losses([(s.session, s.error) for s in suspicions], now_s)
        return self._restart_epoch(suspicions, now_s)

    def _restart_epoch(self, suspicions: Sequence[Suspicion], now_s: float) -> list[Action]:
        """Begin a new epoch on the same nodes: all answer, although one accuses another."""
        nodes = sorted({node for s in suspicions for node in (s.session.node, s.peer)})
        why = f"{suspicions[0].error}; all nodes answer, and a new epoch begins"
        return self._give_up_epoch([], now_s, (nodes, why))

    def _stalled(self, stall_s: float, now_s: float) -> list[Action]:
        progress = self._progress(SessionState.RUNNING)
        error = sentences.stalled(self._members, stall_s, progress)
        firings = {s.node: s.stats.firings for s in self._members if s.stats is not None}
        if not self.may_do_without:
            return [End(error)]
        found = [
            self._disputes.blame_for_stall(node, self._neighbours(node), now_s)
            for number, network in enumerate(self._watch.networks)
            for node in stuck(self.blueprint, firings, network, number)
        ]
        if found:
            losses = [(self.sessions[node], error) for node in dict.fromkeys(found)]
            return self._handle_losses(losses, now_s, strikes=SUSPECT)
        if self._stalled_at == self.taken:
            self._stalls += 1
        else:
            self._stalled_at, self._stalls = self.taken, 1
        if self._stalls >= STALLS:
            return [End(error)]
        nodes = [session.node for session in self._members]
        return self._give_up_epoch([], now_s, (nodes, f"{error}; a new epoch begins on all nodes"))

    def _neighbours(self, node: str) -> list[str]:
        """The nodes with which a node shares a channel."""
        channels = self.blueprint.deployments[node].channels
        ends = {end for c in channels for end in (c.source_node, c.target_node)}
        return sorted(ends - {node, HOST})

    # ------------------------------------------------------------ after the launcher was stopped

    def _launcher_was_away(self, away_s: float, now_s: float) -> list[Action]:
        """Blame no agent for the silence, because this launcher was stopped or suspended."""
        self._watch.extend_deadlines(now_s)
        if away_s < self._limits.run.lease_s / 2:
            return []
        self._away_s = away_s
        self._away_until_s = now_s + self._limits.recovery.heartbeat_s
        return [Notice(f"this launcher was stopped for {away_s:.0f} s; asking all nodes")]

    def _greet_all_again(self, first: Session, now_s: float) -> list[Action]:
        """Greet all nodes again, because one has ended its session while this launcher was stopped:
        the others have as well, or will.
        """
        self._away_until_s = now_s
        gone = [s for s in self.sessions.values() if s.is_open or s is first]
        self._watch.expect_nothing()
        all_welcome = all(s.welcome is not None for s in self._rollout.members)
        if all_welcome and not self.life.has_streamed and not self.may_do_without:
            self.life.step(RunStep.START)  # it would have
        losses = [(s, sentences.was_away(s, self._away_s)) for s in gone]
        return self._handle_losses(losses, now_s, strikes=0.0)
