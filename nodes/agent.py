"""The agent's shell: a loop that waits for events, hands them to the core and performs its actions.

An agent has two threads. This loop owns the sockets, the cache and the core; the worker computes.
The loop sleeps in one poll of all sockets, of the event descriptor that other threads write to and,
if the agent is to exit with its parent, of standard input. It wakes up only for these and for the
core's next deadline.
"""

from __future__ import annotations

import gc
import logging
import os
import signal
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any

from nodes.cache.blobs import BlobStore, CacheError, Lookups
from nodes.core import actions as act
from nodes.core import events as ev
from nodes.core.agent import Agent, AgentFigures
from nodes.core.reactor import Reactor
from nodes.core.session import LONGEST_LEASE_S
from nodes.execution.trace import Recorder
from nodes.execution.worker import Worker
from nodes.executors.base import Executor
from nodes.executors.engines import Engines
from nodes.host.control_groups import available_bytes
from nodes.host.energy.base import Meter
from nodes.host.energy.metering import Metering
from nodes.host.systemd import ServiceManager
from nodes.host.usage import PeakMemory
from nodes.measuring.board import BEFORE_LAUNCHERS, BoardMeasuring, MeasuredEngine
from nodes.measuring.conditions import spare_cores, threads_of_board
from nodes.net.keys import KeysError
from nodes.net.loopback import Loopback, loopback_address
from nodes.net.sockets import AddressError, watched
from nodes.net.waiter import Readable
from nodes.net.wire import Wire
from nodes.protocol.errors import NodeError
from nodes.protocol.fields import printable
from nodes.protocol.messages import (
    Deployment,
    Prepared,
    Progress,
    Stored,
    TensorHeader,
    Welcome,
)
from nodes.quotas import Quotas

STOP_S = 2.0
"""How long an interrupted computation may take to end when the agent stops."""

SWITCH_S = 0.0005
"""The longest time for which one thread keeps the interpreter while the other one waits for it; the
engine computes without the interpreter."""

LEVELS = {"info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}

log = logging.getLogger("node-agent")


@dataclass(frozen=True, slots=True)
class AgentReport:
    """The report that `node-agent --json` prints about an agent that has stopped.

    Memory is as in `Stats`, the peak since the agent's start.
    """

    name: str
    why: str
    stale_messages: int
    bad_messages: int
    rss_bytes: int
    rss_peak_bytes: int
    cpu_s: float
    damaged_files: int


class Shell:
    """Runs one agent until it is stopped; a context manager that releases all resources.

    It owns `wire`, `store`, `executor`, `engines`, `meter` and `memory`, and closes them. `engines`
    open other executors than `executor` for the deployments that ask for them. `parent` is a file
    descriptor that reaches its end when the process that started the agent has ended. If `idle_s`
    is not None, the agent ends when no launcher has had it for that long. `is_slot` says that other
    agents with the same cache share this one's memory.
    """

    def __init__(
        self,
        identity: Welcome,
        wire: Wire,
        store: BlobStore,
        executor: Executor,
        quotas: Quotas | None = None,
        *,
        engines: Engines | None = None,
        obeys_shutdown: bool = False,
        longest_lease_s: float = LONGEST_LEASE_S,
        parent: int | None = None,
        manager: ServiceManager | None = None,
        meter: Meter | None = None,
        idle_s: float | None = None,
        is_slot: bool = False,
        memory: PeakMemory | None = None,
    ) -> None:
        self._core = Agent(
            identity,
            obeys_shutdown=obeys_shutdown,
            longest_lease_s=longest_lease_s,
            idle_s=idle_s,
        )
        self._wire = wire
        self._store = store
        self._lookups = Lookups(store, self._report)
        self._engines = engines or executor
        self._quotas = quotas or Quotas()
        self._rereads_keys = False
        self._is_slot = is_slot
        self._parent = parent
        self._manager = manager or ServiceManager({})
        self._metering = Metering(meter)
        self._memory = memory or PeakMemory()
        self._why: str | None = None
        self.is_restarting = False
        """Whether `run` has ended so that a new agent replaces this one."""
        self.is_abandoned = False
        """Whether the thread that computes is, at the end, in a call that does not return."""
        self._trace = Recorder()
        self._reactor: Reactor[ev.Event, act.Action] = Reactor(
            self._core.handle, self._perform, time.monotonic
        )
        self._reported: deque[ev.Event] = deque()
        self._looks: deque[Future[AgentFigures]] = deque()
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._signals: tuple[int, int] | None = None
        here = loopback_address(identity.data_address)
        self._measuring: BoardMeasuring | None = None
        loopback = partial(Loopback, here, wire.is_guarded)
        self._worker = Worker(executor, self._report, loopback, engines=engines)
        if engines is not None:
            own = MeasuredEngine(engines.own.engine, engines.own.device, identity.engine)
            self._measuring = BoardMeasuring(
                own,
                engines.notes,
                self._report,
                loopback=f"{here}.measuring" if here.startswith("ipc://") else here,
                guarded=wire.is_guarded,
                computing_thread=lambda: self._worker.thread_entry,
            )
        wire.watch(self._wake)
        if parent is not None:
            wire.watch(parent)

    def __enter__(self) -> Shell:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._signals is not None:
            signal.set_wakeup_fd(-1)
            for descriptor in self._signals:
                os.close(descriptor)
        self._engines.close()
        if self._measuring is not None:
            self._measuring.close()
        self._wire.close()
        self._metering.close()
        self._memory.close()
        if not self._worker.stop(0.0 if self.is_restarting else STOP_S):
            self.is_abandoned = True
            log.warning("the engine does not return and is abandoned")
        self._try_cache(self._store.release)

    def _report(self, event: ev.Event) -> None:
        """Queue an event for the core; other threads call this."""
        self._reported.append(event)
        os.eventfd_write(self._wake, 1)

    def stop(self, why: str) -> None:
        """End `run` soon; a signal handler or another thread may call this."""
        self._why = why
        os.eventfd_write(self._wake, 1)

    def reread_keys(self) -> None:
        """Read the keys again soon, and cut off peers that are no longer admitted.

        A signal handler or another thread may call this.
        """
        self._rereads_keys = True
        os.eventfd_write(self._wake, 1)

    def watch_signals(self) -> None:
        """Wake up for signals; call it in the main thread.

        Python runs a signal's handler between two instructions. Without this, a signal that comes
        just before the loop sleeps would be handled only after the next event.
        """
        self._signals = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._wire.watch(self._signals[0])
        signal.set_wakeup_fd(self._signals[1], warn_on_full_buffer=False)

    def run(self) -> AgentReport:
        """Serve until `stop`, a launcher's `Shutdown` or the parent's end."""
        sys.setswitchinterval(SWITCH_S)
        gc.collect()
        gc.freeze()  # imported modules stay for ever, so collections can skip them
        if self._memory.refusal:
            log.warning(
                "the kernel cannot reset its record of peak memory, so the peak of a deployment "
                "is the largest of a few samples: %s",
                self._memory.refusal,
            )
        self._manager.ready()
        if self._manager.is_present and not self._is_slot and self._measuring is not None:
            self._measuring.find(BEFORE_LAUNCHERS, 0, may_measure=True)
        self._take(ev.Tick())
        while self._why is None:
            self._turn()
            self._manager.alive(time.monotonic())
        used = self._memory.usage()
        return AgentReport(
            name=self._core.identity.name,
            why=self._why,
            stale_messages=self._core.tally.stale_messages,
            bad_messages=self._core.tally.bad_messages,
            rss_bytes=used.rss_bytes,
            rss_peak_bytes=self._memory.life_bytes,
            cpu_s=used.cpu_s,
            damaged_files=self._store.room.damaged,
        )

    def _turn(self) -> None:
        """Wait for events, and handle them."""
        due = (self._core.deadline_s, self._manager.deadline_s, self._metering.deadline_s)
        first_s = min((at_s for at_s in due if at_s is not None), default=None)
        timeout_s = None if first_s is None else first_s - time.monotonic()
        launcher_spoke = had_events = False
        for arrived in self._wire.wait(timeout_s):
            had_events = True
            if isinstance(arrived, Readable):
                self._woken(arrived.descriptor)
            else:
                launcher_spoke |= isinstance(arrived, ev.ControlReceived)
                self._take(arrived)
        if self._wire.has_new_secret and self._core.session is None:
            self._rebind()
        # A launcher whose messages were waiting is not silent, however late this loop is.
        deadline_s = self._core.deadline_s
        if deadline_s is not None and time.monotonic() >= deadline_s and not launcher_spoke:
            self._take(ev.Tick())
        if self._metering.deadline_s is not None:
            self._metering.turned(time.monotonic(), had_events=had_events)

    def _woken(self, descriptor: int) -> None:
        if descriptor == self._parent:
            if not os.read(descriptor, 4096):
                self._why = "its parent process has ended"
            return
        if self._signals is not None and descriptor == self._signals[0]:
            os.read(descriptor, 4096)  # the handlers have already run
            return
        os.eventfd_read(self._wake)
        if self._rereads_keys:
            self._rereads_keys = False
            for event in self._wire.reread_keys():
                self._take(event)
        while self._looks:
            self._looks.popleft().set_result(self._figures())
        while self._reported:
            event = self._reported.popleft()
            if isinstance(event, ev.Unloaded):
                self._wire.schedule_trim()
            self._take(event)

    def _rebind(self) -> None:
        try:
            self._wire.rebind()
        except AddressError as error:
            self._why = f"its ports cannot be opened with the new key: {error}"
        else:
            log.warning("the agent uses its new key from now on")

    def _take(self, event: ev.Event) -> None:
        """Hand an event to the core, and perform the actions that it returns."""
        if self._trace.is_on:
            self._trace.note_event(event, time.monotonic())
        self._reactor.take(event)

    def _perform(self, action: act.Action) -> None:  # noqa: PLR0912, PLR0915 - one case per action
        match action:
            case act.SendData():
                self._send_data(action)
            case act.Fire():
                self._worker.fire(action)
            case act.Reply(peer, message, protocol):
                if isinstance(message, Welcome):
                    message = self._as_it_is_now(message)
                if not self._wire.reply(peer, message, protocol):
                    log.info(
                        "a launcher disconnected before it received %s", type(message).__name__
                    )
            case act.Dial(node, address):
                self._dial(node, address)
            case act.HangUp(node):
                self._wire.hang_up(node)
            case act.CutOffPeer(peer):
                self._wire.cut_off_peer(peer)
            case act.CutOffLink(link):
                self._wire.cut_off_link(link)
            case act.LookUp(peer, digests):
                answer = self._lookups.look_up(peer, digests)
                if answer is not None:
                    self._take(answer)
            case act.WriteChunk():
                self._write_chunk(action)
            case act.LoadPhases(deployment):
                self._load(deployment)
            case act.PrepareSubnets(deployment, loads):
                self._prepare(deployment, loads=loads)
            case act.FindFigures():
                self._find_figures(action)
            case act.CloseAhead():
                self._worker.close_ahead()
            case act.Unload(epoch):
                self._worker.unload(epoch)
                self._try_cache(self._store.unpin)
            case act.Release():
                self._release()
            case act.Measure(purpose):
                energy_j = self._metering.measured(purpose, time.monotonic())
                used = replace(self._memory.usage(), energy_j=energy_j)
                self._take(ev.Measured(purpose, used))
            case act.SendTrace(peer, number, now_s, frames, protocol):
                self._wire.reply(peer, self._trace.answer(number, now_s, frames), protocol)
            case act.Log():
                self._log(action)
            case act.Exit(why):
                self._why = why
            case act.ExitIfUnused(why):
                self._exit_if_unused(why)
            case act.Restart(why):
                self._why = why
                self.is_restarting = True

    # ------------------------------------------------------------ metrics and announcements

    @property
    def run_name(self) -> str:
        """The name of the launcher's run that has deployed here; empty if there is none."""
        plane = self._core.life.plane
        return "" if plane is None else plane.deployment.run

    def look(self) -> Future[AgentFigures]:
        """Return what the agent does, as soon as the loop has a moment; for other threads."""
        figures: Future[AgentFigures] = Future()
        self._looks.append(figures)
        os.eventfd_write(self._wake, 1)
        return figures

    def _figures(self) -> AgentFigures:
        now_s = time.monotonic()
        energy_j = self._metering.measured("stats", now_s)
        measured = replace(self._memory.usage(), energy_j=energy_j)
        return self._core.figures(measured, now_s)

    def _log(self, action: act.Log) -> None:
        fields: dict[str, object] = {}
        if action.firing is not None and self._core.life.plane is not None:
            phase, frame = action.firing
            fields = {
                "phase": self._core.life.plane.deployment.phases[phase].name,
                "frame": frame,
            }
        log.log(LEVELS[action.level], "%s", printable(action.text), extra={"fields": fields})

    def _as_it_is_now(self, welcome: Welcome) -> Welcome:
        """Return a welcome with what changes: memory that is left, and cores by the quotas."""
        computing = self._worker.thread_entry
        return replace(
            welcome,
            available_bytes=self._available_bytes(),
            threads=threads_of_board(computing),
            spare_cores=spare_cores(computing),
        )

    def _available_bytes(self) -> int | None:
        """Return the memory that is left for this agent.

        The kernel counts mapped weights as available, because it can read them again. Those of the
        node's other slots are not available for that: every frame reads them. They are about as
        long as the blobs that the agents there have pinned.
        """
        left_bytes = available_bytes()
        if left_bytes is None or not self._is_slot:
            return left_bytes
        try:
            return max(0, left_bytes - self._store.pinned_by_others_bytes())
        except CacheError as error:
            log.warning("%s", error)
            return left_bytes

    def _exit_if_unused(self, why: str) -> None:
        try:
            if self._wire.close_if_unused():
                self._why = why
        except AddressError as error:
            self._why = f"its control port cannot be opened again: {error}"

    # ------------------------------------------------------------ actions of the core

    def _send_data(self, action: act.SendData) -> None:
        payload: Any = action.payload
        if action.report_sent and isinstance(action.message, TensorHeader):
            header = action.message
            event = ev.Sent(header.epoch, header.channel, header.frame)
            payload = watched(payload, partial(self._report, event))
        began_s = time.monotonic()
        if not self._wire.send(action.link, action.message, payload):
            self._take(ev.LinkLost(action.link))
        elif self._trace.is_on:
            self._trace.note_sent(action, began_s, time.monotonic())

    def _dial(self, node: str, address: str) -> None:
        try:
            self._wire.dial(node, address)
        except AddressError as error:
            unknown = isinstance(error.__cause__, KeysError)
            self._take(ev.LinkLost(node, str(error), is_barred=unknown))

    def _write_chunk(self, action: act.WriteChunk) -> None:
        blob, offset = action.put.blob, action.put.offset_bytes
        try:
            complete = self._store.write(blob, offset, action.put.data)
        except CacheError as error:
            self._take(ev.ChunkFailed(action.peer, str(error)))
        else:
            self._take(ev.Answered(action.peer, Stored(blob.digest, offset, complete)))

    def _load(self, deployment: Deployment) -> None:
        try:
            blobs, graphs = self._pinned(deployment)
        except NodeError as error:
            self._take(ev.LoadFailed(deployment.epoch, str(error)))
            return
        if self._measuring is not None:
            self._measuring.yield_to_deployment()
        self._memory.begin(is_loaded=self._worker.has_loaded(deployment))
        self._worker.load(deployment, graphs, partial(self._verify, deployment, blobs))

    def _prepare(self, deployment: Deployment, *, loads: bool) -> None:
        try:
            blobs, graphs = self._pinned(deployment)
        except NodeError as error:
            self._take(Prepared(deployment.epoch, str(error)))
            return
        verify = partial(self._store.verify, blobs)
        if loads:
            self._memory.begin_ahead()
        self._worker.prepare_ahead(deployment, graphs, verify, loads=loads)

    def _find_figures(self, action: act.FindFigures) -> None:
        if self._measuring is None:
            reason = "its only engine is not measured"
            self._take(ev.FiguresFound(action.session, None, reason))
            return
        self._measuring.find(
            action.session,
            action.threads,
            may_measure=action.may_measure,
            again=action.again,
        )

    def _release(self) -> None:
        self._trace.end()
        self._worker.close_ahead()
        self._try_cache(self._store.release)

    def _pinned(self, deployment: Deployment) -> tuple[list[str], tuple[Path, ...]]:
        """Pin the blobs of a deployment; return their digests and the phases' graphs.

        Raises `NodeError` if a quota or the cache does not allow it.
        """
        excess = self._quotas.excess(deployment)
        if excess is not None:
            raise NodeError(excess)
        blobs = [
            blob.digest
            for phase in deployment.phases
            for blob in (phase.graph, phase.weights)
            if blob is not None
        ]
        self._store.pin(blobs)
        paths = {digest: self._store.path(digest) for digest in blobs}
        return blobs, tuple(paths[phase.graph.digest] for phase in deployment.phases)

    def _verify(self, deployment: Deployment, blobs: Sequence[str]) -> None:
        """Check the digests of cached blobs that no `Query` has checked; runs in another thread."""
        if self._store.has_unread(blobs):
            total = len(deployment.phases)
            self._report(Progress(deployment.epoch, 0, total, "reading the cache"))
            self._store.verify(blobs)

    def _try_cache(self, give_up: Callable[[], None]) -> None:
        """Let the cache release something; an error is logged, because nothing depends on it."""
        try:
            give_up()
        except CacheError as error:
            log.warning("%s", error)
