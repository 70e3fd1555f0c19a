"""The launcher's decisions from the first greeting to the last goodbye: `handle(event, now_s)`.

A run has four barriers, and all nodes pass each together: every agent is welcome before any is
told to deploy (a deployment names its peers' addresses), every one is ready before any starts,
every result is taken before any is stopped, every one has stopped before any hears goodbye. What
goes wrong on one node ends the run on all: each open session is closed, so that daemons are free
for the next launcher, and `End` carries the sentence to tell the user.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from launcher.core import sentences
from launcher.core.addresses import data_address, host_of
from launcher.core.blueprint import Blueprint
from launcher.core.events import (
    Abandoned,
    Action,
    Begin,
    Disconnected,
    End,
    Event,
    Exited,
    Garbled,
    Heard,
    Linked,
    Report,
    Send,
    SendChunk,
    Stream,
    Taken,
    Tick,
)
from launcher.core.session import Session, State, Step
from launcher.core.upload import Upload
from launcher.core.watch import Limits, Watch
from launcher.errors import BadInputError, LauncherError
from nodes.core.errors import RemoteProtocolError
from nodes.core.messages import (
    PROTOCOL,
    Bye,
    Control,
    Deploy,
    Deployed,
    Failed,
    GetStats,
    Hello,
    Missing,
    Ping,
    Progress,
    Query,
    Refused,
    Shutdown,
    Start,
    Stats,
    Stop,
    Stopped,
    Stored,
    Welcome,
)

EXIT_GRACE_S = 2.0
"""After the connection of an agent of ours closed: how long to wait for its exit code."""


@dataclass(frozen=True, slots=True)
class Contact:
    """A node to work with: its control address, and whether its agent is a process of ours."""

    name: str
    address: str
    started_by_us: bool


class Supervisor:
    """One run of a blueprint over its agents; `handle` every event, perform every action."""

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
        self._watch = Watch(self.sessions.values(), limits)

    @property
    def deadline_s(self) -> float | None:
        """When the next `Tick` is due at the latest; None if none is."""
        return None if self.ended else self._watch.deadline_s

    def handle(self, event: Event, now_s: float) -> list[Action]:
        """Follow an event at `now_s` (seconds of any steady clock); nothing once it has ended."""
        if self.ended:
            return []
        match event:
            case Begin():
                return self._begin(now_s)
            case Heard(node, message, host):
                self.sessions[node].host = host or self.sessions[node].host
                return self._hear(self.sessions[node], message, now_s)
            case Garbled(node, reason):
                return self._end(sentences.unintelligible(self.sessions[node], reason))
            case Linked(node):
                self._watch.linked(node)
                return []
            case Disconnected(node):
                return self._disconnected(self.sessions[node], now_s)
            case Exited(node, code, last_words):
                return self._exited(self.sessions[node], code, last_words)
            case Taken(frames):
                self.taken = frames
                self._watch.expect_results(now_s)
                return [Report("streaming", frames, self.frames), *self._stop_if_done(now_s)]
            case Abandoned(error):
                return self._end(error)
            case Tick():
                return self._tick(now_s)

    # ------------------------------------------------------------ the way up

    def _begin(self, now_s: float) -> list[Action]:
        hello = Hello(PROTOCOL, self._session_name, self._limits.lease_s)
        for session in self.sessions.values():
            session.deadline_s = now_s + self._patience_s([session])
        return [
            Report("connecting", 0, len(self.sessions)),
            *(Send(node, hello) for node in self.sessions),
        ]

    def _hear(self, session: Session, message: Control, now_s: float) -> list[Action]:
        session.asked_s = None
        if session.state in (State.FAILED, State.LOST) or self._is_stale(message):
            return []
        state = session.state
        try:
            session.hear(message)
            match message:
                case Welcome():
                    return self._welcomed(session, message, now_s)
                case Refused() if state is State.CONNECTING:
                    return self._end(sentences.refused(session, message))
                case Refused(reason):
                    how = f"its agent no longer knows this launcher ({reason})"
                    return self._end(self._lost(session, how, state))
                case Missing(digests):
                    return self._upload(session, digests, now_s)
                case Stored():
                    session.upload.stored(message)
                    return [self._report_upload(), *self._continue_upload(session, now_s)]
                case Progress(_, done, _, _):
                    return self._loaded(session, done, now_s)
                case Deployed():
                    return self._deployed(session, message, now_s)
                case Failed(_, reason):
                    why = sentences.failed(session, state, reason, self._progress(state))
                    self._watch.suspect(why, now_s)
                case Stopped(_, stats):
                    session.stats = stats
                    session.deadline_s = None
                    return self._finish_if_stopped()
                case Stats():
                    session.stats = message
        except RemoteProtocolError as error:
            return self._end(sentences.unintelligible(session, str(error)))
        return []

    def _is_stale(self, message: Control) -> bool:
        return (
            isinstance(message, Progress | Deployed | Stopped)
            and message.epoch != self.blueprint.epoch
        )

    def _welcomed(self, session: Session, welcome: Welcome, now_s: float) -> list[Action]:
        if welcome.protocol != PROTOCOL:
            return self._end(sentences.other_protocol(session, welcome.protocol))
        session.welcome = welcome
        session.deadline_s = now_s + self._limits.deploy_timeout_s
        self._watch.begin(now_s)
        digests = tuple(blob.digest for blob in self.blueprint.blobs(session.node))
        welcomed = sum(other.welcome is not None for other in self.sessions.values())
        return [
            Report("connecting", welcomed, len(self.sessions)),
            Send(session.node, Query(digests)),
        ]

    def _upload(self, session: Session, lacking: Iterable[str], now_s: float) -> list[Action]:
        needed = {blob.digest: blob for blob in self.blueprint.blobs(session.node)}
        unknown = [digest for digest in lacking if digest not in needed]
        if unknown:
            raise RemoteProtocolError(f"it lacks {unknown[0][:12]}, which nobody asked it about")
        session.upload = Upload(needed[digest] for digest in dict.fromkeys(lacking))
        return self._continue_upload(session, now_s)

    def _continue_upload(self, session: Session, now_s: float) -> list[Action]:
        session.deadline_s = now_s + self._limits.deploy_timeout_s
        if not session.upload.is_complete:
            return [SendChunk(session.node, *chunk) for chunk in session.upload.due()]
        session.step(Step.STOCKED)
        session.deadline_s = None
        return self._deploy_if_all_welcome(now_s)

    def _report_upload(self) -> Report:
        uploads = [session.upload for session in self.sessions.values()]
        return Report(
            "uploading",
            sum(upload.stored_bytes for upload in uploads),
            sum(upload.total_bytes for upload in uploads),
        )

    def _deploy_if_all_welcome(self, now_s: float) -> list[Action]:
        addresses = self._data_addresses()
        if len(addresses) < len(self.sessions):
            return []
        try:
            deployments = self.blueprint.addressed(addresses)
        except BadInputError as error:
            return self._end(error)
        actions: list[Action] = []
        for session in self.sessions.values():
            if session.state is State.STOCKED:
                session.step(Step.DEPLOY)
                session.deadline_s = now_s + self._limits.deploy_timeout_s
                actions.append(Send(session.node, Deploy(deployments[session.node])))
        return actions

    def _data_addresses(self) -> dict[str, str]:
        return {
            session.node: data_address(
                session.welcome.data_address, session.host or host_of(session.address)
            )
            for session in self.sessions.values()
            if session.welcome is not None
        }

    def _loaded(self, session: Session, done: int, now_s: float) -> list[Action]:
        session.loaded = done
        session.deadline_s = now_s + self._limits.deploy_timeout_s
        return [self._report_loading()]

    def _report_loading(self) -> Report:
        phases = [len(d.phases) for d in self.blueprint.deployments.values()]
        return Report("loading", sum(s.loaded for s in self.sessions.values()), sum(phases))

    def _deployed(self, session: Session, deployed: Deployed, now_s: float) -> list[Action]:
        session.deployed = deployed
        session.loaded = len(self.blueprint.deployments[session.node].phases)
        session.deadline_s = None
        actions: list[Action] = [self._report_loading()]
        if all(other.state is State.READY for other in self.sessions.values()):
            for other in self.sessions.values():
                other.step(Step.START)
                actions.append(Send(other.node, Start(self.blueprint.epoch)))
            every = self._data_addresses()
            addresses = {peer: every[peer] for peer in self.blueprint.host_peers()}
            self._watch.expect_links(addresses, now_s)
            self._watch.expect_results(now_s)
            actions += [Stream(addresses), Report("streaming", 0, self.frames)]
        return actions

    # ------------------------------------------------------------ the way down

    def _stop_if_done(self, now_s: float) -> list[Action]:
        if self.taken < self.frames or self._watch.suspicion is not None:
            return []
        self._watch.expect_no_results()
        actions: list[Action] = []
        for session in self.sessions.values():
            session.step(Step.STOP)
            session.deadline_s = now_s + self._limits.silence_timeout_s
            actions.append(Send(session.node, Stop(self.blueprint.epoch)))
        return actions

    def _finish_if_stopped(self) -> list[Action]:
        if all(session.state is State.STOPPED for session in self.sessions.values()):
            return self._end(None)
        return []

    def _end(self, error: LauncherError | None) -> list[Action]:
        self.ended = True
        goodbyes: list[Action] = [
            Send(session.node, Shutdown() if session.started_by_us else Bye())
            for session in self.sessions.values()
            if session.is_open
        ]
        return [*goodbyes, End(error)]

    # ------------------------------------------------------------ what can go wrong

    def _disconnected(self, session: Session, now_s: float) -> list[Action]:
        if not session.is_open:
            return []
        if session.state is State.FAILED:
            return self._end(self._watch.suspicion)
        if not session.started_by_us:
            return self._end(self._lost(session, sentences.CLOSED))
        # Its exit code, which says more, is about to follow.
        session.deadline_s = now_s + EXIT_GRACE_S
        session.overdue = sentences.CLOSED
        return []

    def _exited(self, session: Session, code: int, last_words: str) -> list[Action]:
        if session.state is State.FAILED:
            return self._end(self._watch.suspicion)
        error = sentences.exited(session, code, last_words, self._progress(session.state))
        session.step(Step.LOSE)
        return self._end(error)

    def _tick(self, now_s: float) -> list[Action]:
        unreached = self._watch.unreached(now_s)
        if unreached:
            return self._end(sentences.unreachable(unreached, self._patience_s(unreached)))
        gone = self._watch.gone(now_s)
        if gone:
            return self._end(self._lost(*gone))
        if self._watch.suspicion_is_due(now_s):
            return self._end(self._watch.suspicion)
        stall_s = self._watch.stall_s(now_s)
        if stall_s is not None:
            progress = self._progress(State.RUNNING)
            return self._end(sentences.stalled(self.sessions.values(), stall_s, progress))
        questions: list[Action] = [Send(node, Ping()) for node in self._watch.to_ping(now_s)]
        if self._watch.inquiry_is_due(now_s):
            questions += [Send(node, GetStats()) for node in self.sessions]
        return questions

    def _patience_s(self, sessions: Iterable[Session]) -> float:
        ours = all(session.started_by_us for session in sessions)
        return self._limits.start_timeout_s if ours else self._limits.connect_timeout_s

    def _lost(self, session: Session, how: str, state: State | None = None) -> LauncherError:
        state = state or session.state
        return sentences.lost(session, state, how, self._progress(state))

    def _progress(self, state: State) -> str:
        if state in (State.RUNNING, State.STOPPING, State.STOPPED):
            return f", after {self.taken} of {self.frames} results"
        return ""
