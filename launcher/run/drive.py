"""Drives one run: reports events to the supervisor and performs the actions that it decides on.

Events come from connections, agents' processes, the planner, the user and the host. A single thread
waits until something arrives or the supervisor's next deadline has passed.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from cnn.reading.regular_files import open_regular
from launcher.core.events import (
    Abandoned,
    Action,
    AgentExited,
    Begin,
    Consented,
    End,
    Event,
    Halt,
    MessageMalformed,
    MessageReceived,
    NotAdmitted,
    Notice,
    PlanReply,
    PlanRequest,
    Redial,
    Rehearsed,
    Send,
    SendChunk,
    StageProgress,
    Stream,
    Unplannable,
)
from launcher.core.supervisor import Supervisor
from launcher.errors import BadInputError, BarredError, LauncherError, RunFailedError
from launcher.run.background import Background, IsWanted
from launcher.run.connections import Arrival, Connections
from launcher.run.consent import Consent
from launcher.run.host import Host
from launcher.run.observer import Observer
from launcher.run.processes import LocalAgent, LocalAgents
from launcher.run.runtime import OnUpdate, Update
from launcher.view.frame_trace import TraceRequests
from nodes.core.events import DataReceived, Tick
from nodes.core.reactor import Reactor
from nodes.net.waiter import Readable
from nodes.protocol.errors import RemoteProtocolError
from nodes.protocol.messages import Control, Put, Traced, Welcome

FoundPlan = tuple[PlanReply, Mapping[str, Path]]
"""A plan that was found, and the files of its blobs by digest."""

PlanSearch = Callable[[PlanRequest, IsWanted], FoundPlan]
"""Searches for a plan, in a separate thread; raises `LauncherError` if there is none."""

ENDING_S = 1.0
"""How long an agent may take to end after it has closed its standard error."""

GREETING_S = 2.0
"""How long the other agents may take to answer once one cannot be authenticated."""

LOOK_EVERY_S = 1.0
"""How often to check for agents that have ended while a child keeps their standard error open."""

_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""The supervisor's clock. It runs while the machine is suspended, as the agents' leases do."""


def _now_s() -> float:
    return time.clock_gettime(_CLOCK)


class Drive:
    """Drives a supervisor and a host until the run ends; see `run`."""

    def __init__(
        self,
        supervisor: Supervisor,
        host: Host,
        connections: Connections,
        agents: LocalAgents,
        files: Mapping[str, Path],
        on_update: OnUpdate,
        replan: PlanSearch | None = None,
        learn: Callable[[Rehearsed], None] = lambda _: None,
        tracer: TraceRequests | None = None,
        consent: Consent | None = None,
        pushed: Sequence[int] = (),
        observer: Observer | None = None,
    ) -> None:
        """`files` maps digests to blobs; `on_update` is called for progress and notices; `replan`
        searches for another plan, and without it plan requests are ignored; `learn` receives what
        nodes have measured in the rehearsal of an epoch; `tracer` collects traces; `consent`
        reports that the user agrees to the use of nodes that returned; `pushed` are the descriptors
        that signal new frames; `observer` lets other threads view the run.
        """
        self._observer = observer
        self._pushed = frozenset(pushed)
        self._consent = consent
        self._supervisor = supervisor
        self._reactor: Reactor[Event, Action] = Reactor(supervisor.handle, self._perform, _now_s)
        self._host = host
        self._connections = connections
        self._agents = agents
        self._by_stderr = {agent.stderr: agent for agent in agents.values()}
        self._files = dict(files)
        self._on_update = on_update
        self._tracer = tracer
        self._barred_nodes: set[str] = set()
        self._barred_error: LauncherError | None = None
        self._barred_until_s = 0.0
        self._end: End | None = None
        self._last_progress = host.progress
        self._replan = replan
        self._learn = learn
        self._background: Background[FoundPlan] = Background()

    def run(self) -> None:
        """Run to the end; raises the `LauncherError` with which the run ended, if any.

        It is a `BadInputError` only if no frame was sent, or if nodes do not agree on their
        keys and there is no result.
        """
        try:
            self._run()
        except BadInputError as error:
            barred = isinstance(error, BarredError) and not self._supervisor.taken
            if barred or not self._host.has_sent:
                raise
            raise RunFailedError(str(error)) from error

    def _run(self) -> None:
        for descriptor in (*self._by_stderr, self._background.descriptor):
            self._connections.watch(descriptor)
        if self._consent is not None:
            self._connections.watch(self._consent.descriptor)
        for descriptor in self._pushed:
            self._connections.watch(descriptor)
        if self._observer is not None:
            self._connections.watch(self._observer.descriptor)
        try:
            self._handle(Begin())
            while self._end is None:
                self._turn()
        except BaseException:
            self._handle(Abandoned(None))
            raise
        finally:
            self._background.close()
            if self._observer is not None:
                self._connections.unwatch(self._observer.descriptor)
                self._observer.end()
        if self._end.error is not None:
            raise self._end.error

    def _turn(self) -> None:
        for arrival in self._connections.wait(self._patience_s()):
            self._arrived(arrival)
        if (look_s := self._host.deadline_s) is not None and time.monotonic() >= look_s:
            self._host.look()
        if self._host.is_busy:
            self._host.step()
        self._report_progress()
        if self._tracer is not None:
            for node in self._tracer.due(time.monotonic()):
                self._connections.send(node, self._tracer.ask(node))
        if self._observer is not None:
            self._observer.turned(time.monotonic())
        self._give_up_if_barred()
        deadline_s = self._supervisor.deadline_s
        if deadline_s is not None and _now_s() >= deadline_s:
            self._look_at_processes()
            self._handle(Tick())

    def _report_progress(self) -> None:
        progress = self._host.progress
        if progress != self._last_progress:
            self._last_progress = progress
            self._handle(progress)

    def _patience_s(self) -> float | None:
        if self._host.is_busy:
            return 0.0
        if self._barred_error is not None:
            return self._barred_until_s - time.monotonic()
        deadline_s, look_s = self._supervisor.deadline_s, self._host.deadline_s
        patience_s = LOOK_EVERY_S if deadline_s is None else deadline_s - _now_s()
        publish_s = None if self._observer is None else self._observer.deadline_s
        for at_s in (look_s, publish_s):
            if at_s is not None:
                patience_s = min(patience_s, max(0.0, at_s - time.monotonic()))
        return patience_s

    def _ask_for_trace(self, node: str, message: Control) -> None:
        question = None if self._tracer is None else self._tracer.before(node, message)
        if question is not None:
            self._connections.send(node, question)

    # ------------------------------------------------------------ events

    def _arrived(self, arrival: Arrival) -> None:
        match arrival:
            case DataReceived(str() as node, message, payload, payload_bytes):
                try:
                    self._host.arrived(node, message, payload, payload_bytes)
                except RemoteProtocolError as error:
                    self._handle(MessageMalformed(node, str(error)))
            case DataReceived(link):
                raise AssertionError(f"data over {link!r}, which this launcher has not dialled")
            case NotAdmitted(node, error) if not self._supervisor.may_do_without:
                self._barred(node, error)
            case Readable(descriptor):
                self._readable(descriptor)
            case MessageReceived(node, Traced() as traced):
                if self._tracer is not None:
                    self._tracer.receive(node, traced)
            case MessageReceived(node, Welcome()) if node in self._agents:
                self._agents[node].forget_stderr()
                self._handle(arrival)
            case _:
                if self._observer is not None and isinstance(arrival, MessageReceived):
                    self._observer.received(arrival.node, arrival.message)
                self._handle(arrival)

    def _readable(self, descriptor: int) -> None:
        if descriptor == self._background.descriptor:
            for planned in self._background.done():
                self._planned(*planned)
        elif self._consent is not None and descriptor == self._consent.descriptor:
            self._consent.take()
            self._handle(Consented())
        elif self._observer is not None and descriptor == self._observer.descriptor:
            self._observer.looked_at()
        elif descriptor in self._pushed:
            self._host.look()
        else:
            self._read_stderr(self._by_stderr[descriptor])

    def _barred(self, node: str, error: LauncherError) -> None:
        """Note that an agent and this launcher cannot authenticate each other; if the run needs it
        and it has never answered, the run cannot begin."""
        session = self._supervisor.sessions[node]
        needed = node in self._supervisor.blueprint.deployments
        has_streamed = self._supervisor.life.has_streamed
        if session.welcome is None and needed and not has_streamed:
            self._barred_nodes.add(node)
            if self._barred_error is None:
                self._barred_error = error
                self._barred_until_s = time.monotonic() + GREETING_S

    def _give_up_if_barred(self) -> None:
        """End the run once all other agents have answered, so that each can be released."""
        if self._barred_error is None or self._end is not None:
            return
        waiting = [
            node
            for node, session in self._supervisor.sessions.items()
            if session.welcome is None and node not in self._barred_nodes
        ]
        if not waiting or time.monotonic() >= self._barred_until_s:
            self._handle(Abandoned(self._barred_error))

    def _read_stderr(self, agent: LocalAgent) -> None:
        if not agent.read_stderr():
            self._connections.unwatch(agent.stderr)
            agent.wait(time.monotonic() + ENDING_S)
            self._look_at(agent)

    def _look_at_processes(self) -> None:
        for agent in self._agents.values():
            self._look_at(agent)

    def _look_at(self, agent: LocalAgent) -> None:
        code = agent.exit_code()
        if code is not None and agent.name in self._supervisor.sessions:
            self._handle(AgentExited(agent.name, code, agent.stderr_tail(), agent.oom_kills()))

    def _planned(self, epoch: int, found: FoundPlan | LauncherError) -> None:
        if isinstance(found, LauncherError):
            self._handle(Unplannable(epoch, str(found)))
            return
        reply, files = found
        self._files |= files
        self._handle(reply)

    # ------------------------------------------------------------ actions

    def _handle(self, event: Event) -> None:
        self._reactor.take(event)

    def _perform(self, action: Action) -> None:
        match action:
            case Send(node, message):
                self._ask_for_trace(node, message)
                self._connections.send(node, message)
            case Redial(node):
                self._connections.redial_control(node, self._supervisor.sessions[node].address)
            case SendChunk(node, blob, offset, size):
                data = self._read_blob(blob.digest, offset, size)
                self._connections.send(node, Put(blob, offset, data))
            case Stream(data_addresses, blueprint):
                self._host.attach(blueprint, data_addresses)
            case Halt():
                self._handle(self._host.halt())
            case PlanRequest(epoch):
                self._search(epoch, action)
            case Rehearsed():
                self._learn(action)
            case StageProgress(stage, done, total, note):
                self._on_update(Update(stage, done, total, note))
            case Notice(text, level, nodes):
                self._note(text, level)
                self._on_update(Update("", 0, 0, text, level, nodes))
            case End(error):
                if error is not None:
                    self._note(str(error), "error")
                self._end = action

    def _search(self, epoch: int, request: PlanRequest) -> None:
        if self._replan is not None:
            self._background.start(epoch, functools.partial(self._replan, request))

    def _note(self, text: str, level: str) -> None:
        if self._observer is not None:
            self._observer.note(text, level)

    def _read_blob(self, digest: str, offset: int, size: int) -> bytes:
        path = self._files[digest]
        try:
            with open_regular(path, may_be_link=False) as file:
                file.seek(offset)
                return file.read(size)
        except OSError as error:
            raise RunFailedError(f"the subnet {path} cannot be read: {error}") from error
