"""Loads subnets, rehearses them and fires phases in a separate thread, one job after another.

The executor thread never waits for the I/O thread between firings, because the core keeps one
firing queued behind the one that runs. The I/O thread meanwhile binds the tensors that have arrived
for the queued one, if the engine can bind ahead: whatever Python does between two firings keeps an
accelerator waiting, and takes long, because its code has left the processor's caches. Tensors
between two phases of this node never leave the executor thread: they are in a store until the last
phase that reads them has run. The thread also encodes and decodes the tensors of channels that are
not raw. Before a change of plans, another thread prepares the subnets of the next deployment, and
may load and rehearse them.

The thread has a name that is visible outside the process, so that tools can distinguish its CPU
time from that of other threads.
"""

from __future__ import annotations

import contextlib
import ctypes
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from threading import Lock, Thread

from nodes.core import events as ev
from nodes.core.actions import Fire
from nodes.core.deployment import MAX_VARYING_BYTES, borders_in_blocks, fits
from nodes.execution.encoding import UndecodableError, check_available, encode
from nodes.execution.loaded_phase import BegunFiring, LoadedPhase
from nodes.execution.loading import DroppedError, LoadedAhead, load_phases, rehearse, threads_of
from nodes.execution.rehearsal import RunClock, TimedRun, WireCosts
from nodes.executors.base import ComputesInBlocks, Executor, LoadedSubnet, LoadOptions
from nodes.executors.engines import Engines
from nodes.host.control_groups import core_share
from nodes.host.heap import give_back_free_memory
from nodes.host.time_slice import ask_for_usual_slices
from nodes.host.usage import usage
from nodes.net.loopback import Loopback
from nodes.protocol.errors import NodeError
from nodes.protocol.messages import ChannelSpec, Deployed, Deployment, Prepared, Progress
from nodes.protocol.payload import Array

THREAD_NAME = "executor"
"""The name of the thread that computes in tools such as `top -H`."""

log = logging.getLogger("node-agent")

COUNTED_FIRST, COUNTED_EVERY, LONG_S = 256, 8, 0.002
"""The waits of a phase's first firings are counted, then those of one firing of eight; those of a
phase that takes longer than `LONG_S`, always. To count them takes as long as computing a few
kilobytes."""

TRIM_PERIOD_S = 60.0
"""How often a worker that computes gives the heap's free memory back.

When the machine is busy for a moment, channels fill and tensors lie in the heap that usually do not
exist at once. Without this, an agent would hold that memory to its end. New tensors then make the
kernel map pages again, which takes some milliseconds.
"""


class Worker:
    """The executor thread and its queue.

    It computes with `executor`, or with the one of `engines` that a deployment asks for. The thread
    calls `report` with each event for the core. Given a function that opens a
    `loopback`, it measures the cost of messages during the rehearsal.
    """

    def __init__(
        self,
        executor: Executor,
        report: Callable[[ev.Event], None],
        loopback: Callable[[], Loopback] | None = None,
        trim_period_s: float = TRIM_PERIOD_S,
        engines: Engines | None = None,
    ) -> None:
        self._executor = executor
        self._engines = engines
        self._options = LoadOptions()
        self._opening = Lock()
        self._loopback = loopback
        self._report = report
        self._trim_period_s = trim_period_s
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._dropped: set[int] = set()
        self._ahead: LoadedAhead | None = None
        self._costs: WireCosts | None = None
        """The costs of messages in the last rehearsal that measured them."""
        self._epoch: int | None = None
        self._phases: list[LoadedPhase] = []
        self._store: dict[tuple[str, int], tuple[Array, int]] = {}
        self._clock: RunClock | None = None
        """Opened by the first firing of an epoch, when all threads of its engine exist."""
        self._thread = Thread(target=self._run, name=THREAD_NAME, daemon=True)
        self._thread.start()

    @property
    def thread_entry(self) -> str:
        """The entry in /proc of the thread that computes (`nodes.host.control_groups`)."""
        return f"self/task/{self._thread.native_id}"

    # ------------------------------------------------------------ from the I/O thread

    def load(
        self,
        deployment: Deployment,
        graphs: tuple[Path, ...],
        verify: Callable[[], None] = lambda: None,
    ) -> None:
        """Call `verify`, then prepare, load and rehearse the phases, whose subnets are `graphs`.

        Verifying and preparing happen in a thread that this call starts. Phases that are loaded
        ahead are taken over instead. Reports `Progress`, then `Deployed` or `LoadFailed`.
        """
        ahead = self._ahead
        if ahead is not None and ahead.executor is not None and self.has_loaded(deployment):
            self._ahead, self._executor = None, ahead.executor
            self._jobs.put(partial(self._take_over, deployment.epoch, ahead))
            return
        self.close_ahead()
        threads = ThreadPoolExecutor(1, "preparing")
        preparing = threads.submit(self._prepare, deployment, graphs, verify, ahead)
        threads.shutdown(wait=False)  # ends the thread after this one call
        self._jobs.put(partial(self._load, deployment, graphs, preparing))

    def has_loaded(self, deployment: Deployment) -> bool:
        """Return whether the phases of a deployment are loaded ahead."""
        return self._ahead is not None and self._ahead.serves(deployment)

    def prepare_ahead(
        self,
        deployment: Deployment,
        graphs: tuple[Path, ...],
        verify: Callable[[], None],
        *,
        loads: bool = False,
    ) -> None:
        """Call `verify`, then prepare subnets, in a thread that this call starts, while the present
        phases fire; reports `Prepared`. Prepared subnets stay in the cache.

        With `loads`, they are also loaded and rehearsed, for `load` to take over. Call it again
        only after the report.
        """
        self.close_ahead()
        ahead = self._ahead = LoadedAhead(deployment) if loads else None

        def prepare() -> None:
            reason = ""
            try:
                check_available(deployment)
                verify()
                executor, options = self._chosen(deployment, graphs)
                executor.prepare(graphs, options, lambda _: None)
                if ahead is not None:
                    self._load_ahead(ahead, executor, options, graphs)
            except Exception as error:  # noqa: BLE001 - the present phases fire on
                reason = _sentence(error)
            self._report(Prepared(deployment.epoch, reason))

        thread = Thread(target=prepare, name="preparing ahead", daemon=True)
        if ahead is not None:
            ahead.thread = thread
        # The executor thread starts it, so that it is in that one's control group, and what it
        # rehearses is measured under the quota under which that one computes.
        self._jobs.put(thread.start)

    def close_ahead(self) -> None:
        """Close the phases that are loaded ahead, if there are any."""
        ahead, self._ahead = self._ahead, None
        if ahead is not None and ahead.drop():
            self._jobs.put(partial(_close, ahead))

    def fire(self, firing: Fire) -> None:
        """Queue a firing. Reports `FiringEnded` or `FiringFailed`.

        Tensors that have arrived from other nodes are bound here, while the executor thread still
        computes the firing before.
        """
        try:
            begun: BegunFiring | Exception = self._phases[firing.phase].begin(firing.inputs)
        except Exception as error:  # noqa: BLE001 - reported as an error of the firing is
            begun = error
        self._jobs.put(partial(self._fire, firing.epoch, firing.phase, firing.frame, begun))

    def unload(self, epoch: int) -> None:
        """Interrupt and drop all jobs of this epoch, then free its memory; reports `Unloaded`."""
        self._dropped.add(epoch)  # before the executor is looked up, because `_prepare` sets it
        executor = self._executor
        executor.interrupt()  # the job may take minutes, and its result is not needed
        self._jobs.put(partial(self._unload, epoch, executor))

    def stop(self, timeout_s: float) -> bool:
        """Interrupt the running job and end the thread; False if it is not over in time."""
        self.close_ahead()
        if self._epoch is not None:
            self.unload(self._epoch)
        self._jobs.put(None)
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    # ------------------------------------------------------------ in the thread

    def _run(self) -> None:
        ctypes.CDLL(None).prctl(15, THREAD_NAME.encode("ascii"), 0, 0, 0)  # PR_SET_NAME
        ask_for_usual_slices()  # I/O threads would wait longer for this one otherwise
        trim_at_s = time.monotonic() + self._trim_period_s
        while (job := self._jobs.get()) is not None:
            try:
                job()
            except Exception:  # a bug: what an engine raises, each job reports itself
                log.exception("a job of the thread that computes failed")
            del job  # the last tensors must not stay alive while the thread waits
            if time.monotonic() >= trim_at_s:
                give_back_free_memory()
                self._close_clock()  # the next one reads the quota again
                trim_at_s = time.monotonic() + self._trim_period_s
        self._close_clock()

    def _close_clock(self) -> None:
        if self._clock is not None:
            self._clock.close()
        self._clock = None

    def _load(
        self,
        deployment: Deployment,
        graphs: Sequence[Path],
        preparing: Future[Loopback | None],
    ) -> None:
        epoch = self._epoch = deployment.epoch
        try:
            with preparing.result() or contextlib.nullcontext() as loopback:
                seconds, costs = self._load_phases(deployment, graphs, loopback)
        except DroppedError:
            return
        except Exception as error:  # noqa: BLE001 - whatever an engine raises, the agent lives on
            self._report(ev.LoadFailed(epoch, _sentence(error)))
            return
        if epoch not in self._dropped:
            give_back_free_memory()
            self._report_loaded(epoch, seconds, costs)

    def _take_over(self, epoch: int, ahead: LoadedAhead) -> None:
        """Let the phases that were loaded ahead be those that fire."""
        self._epoch = epoch
        self._phases, self._costs = ahead.phases, ahead.costs
        if epoch not in self._dropped:
            total = len(ahead.phases)
            self._report(Progress(epoch, total, total, "loaded ahead"))
            self._report_loaded(epoch, ahead.seconds, ahead.costs)

    def _report_loaded(self, epoch: int, seconds: tuple[float, ...], costs: WireCosts) -> None:
        rss_bytes = usage().rss_bytes
        self._report(Deployed(epoch, seconds, rss_bytes, costs.message_s, costs.byte_s))

    def _load_ahead(
        self, ahead: LoadedAhead, executor: Executor, options: LoadOptions, graphs: Sequence[Path]
    ) -> None:
        """Load and rehearse phases in addition to those that fire.

        The processor time of messages could not be separated from that of firings, so their costs
        come from an earlier rehearsal, if there was one.
        """
        known = self._costs
        loopback = self._loopback if known is None and self._epoch is None else None
        ahead.load(executor, options, graphs, loopback, known or WireCosts(0.0, 0.0))

    def _prepare(
        self,
        deployment: Deployment,
        graphs: tuple[Path, ...],
        verify: Callable[[], None],
        ahead: LoadedAhead | None = None,
    ) -> Loopback | None:
        """Prepare the subnets, and open the connection over which they are rehearsed, once nothing
        is loaded `ahead`.
        """
        if ahead is not None:
            ahead.wait()
        check_available(deployment)
        verify()
        self._choose_engine(deployment, graphs)
        epoch, total = deployment.epoch, len(deployment.phases)
        prepared = 0

        def report_progress(_: Path) -> None:
            nonlocal prepared
            prepared += 1
            self._report(Progress(epoch, 0, total, f"prepared {prepared} of {total}"))

        self._report(Progress(epoch, 0, total, "preparing"))
        self._executor.prepare(graphs, self._options, report_progress)
        return None if self._loopback is None else self._loopback()

    def _choose_engine(self, deployment: Deployment, graphs: Sequence[Path]) -> None:
        """Choose the executor and the options with which to load a deployment."""
        self._executor, self._options = self._chosen(deployment, graphs)
        if deployment.epoch in self._dropped:
            raise NodeError("the deployment was dropped while its engine was opened")

    def _chosen(
        self, deployment: Deployment, graphs: Sequence[Path]
    ) -> tuple[Executor, LoadOptions]:
        """Return the executor and the options that a deployment asks for."""
        executor, choice = self._executor, deployment.engine
        if self._engines is not None:
            with self._opening:
                executor, choice = self._engines.executor_for(choice)
        block, borders = borders_in_blocks(deployment)
        in_blocks: dict[str, tuple[str, ...]] = {}
        for graph, names in zip(graphs, borders, strict=True):
            if in_blocks.setdefault(str(graph), names) != names:
                raise NodeError(
                    f"two phases compute the subnet {graph.name}, one of them with "
                    f"{', '.join(names)} in blocks of channels"
                )
        has = executor.block if isinstance(executor, ComputesInBlocks) else 1
        if block not in (1, has):
            raise NodeError(
                f"{executor.describe()} cannot take tensors in blocks of {block} channels, which "
                "its deployment requires"
            )
        return executor, LoadOptions(
            threads=threads_of(deployment),
            precision=choice.precision,
            engine_options={option.name: option.value for option in choice.options},
            in_blocks={graph: names for graph, names in in_blocks.items() if names},
            block=block,
        )

    def _load_phases(
        self, deployment: Deployment, graphs: Sequence[Path], loopback: Loopback | None
    ) -> tuple[tuple[float, ...], WireCosts]:
        epoch, total = deployment.epoch, len(deployment.phases)

        def goes_on() -> bool:
            return epoch not in self._dropped

        def report_progress(done: int, what: str) -> None:
            self._report(Progress(epoch, done, total, what))

        given = deployment, graphs, self._executor, self._options
        load_phases(*given, self._phases, goes_on, report_progress)
        give_back_free_memory()  # before the first runs bring weights into memory
        seconds, costs = rehearse(deployment, self._phases, loopback, goes_on, report_progress)
        if loopback is not None:
            self._costs = costs
        return seconds, costs

    def _fire(self, epoch: int, index: int, frame: int, begun: BegunFiring | Exception) -> None:
        if epoch not in self._dropped:
            self._report(self._fired(epoch, index, frame, begun))

    def _fired(
        self, epoch: int, index: int, frame: int, begun: BegunFiring | Exception
    ) -> ev.FiringEnded | ev.FiringFailed:
        """Run a phase, and return the event with its outputs or its error."""
        phase = self._phases[index]
        try:
            run = self._compute(phase, begun, frame)
            outputs = run.outputs
            encoded = _encoded(phase, outputs) if phase.encoded else {}
        except UndecodableError as error:
            return ev.FiringFailed(epoch, index, frame, str(error), error.node)
        except Exception as error:  # noqa: BLE001 - whatever an engine raises, the agent lives on
            reason = f"phase {phase.spec.name!r} at frame {frame}: {_sentence(error)}"
            return ev.FiringFailed(epoch, index, frame, reason)
        shapes = {tensor: outputs[tensor].shape for tensor in phase.varying}
        sent = {tensor: outputs[tensor].data for tensor in phase.sent_raw}
        return ev.FiringEnded(
            epoch,
            index,
            frame,
            sent,
            run.passed_s,
            run.computed_s,
            run.began_s,
            shapes,
            encoded,
            run.seconds,
        )

    def _compute(self, phase: LoadedPhase, firing: BegunFiring | Exception, frame: int) -> TimedRun:
        if isinstance(firing, Exception):
            raise firing
        rest = firing.rest({tensor: self._store[tensor, frame][0] for tensor in phase.stored})
        if self._clock is None:
            threads = self._options.threads
            self._clock = RunClock(threads, core_share("thread-self", threads))
        counts = frame < COUNTED_FIRST or frame % COUNTED_EVERY == 0 or phase.passed_s > LONG_S
        run = self._clock.timed(phase.subnet, firing.bound, rest, with_waits=counts)
        phase.passed_s, outputs = run.passed_s, run.outputs
        for tensor, dtype, shape in phase.static_outputs:
            made = outputs[tensor]
            if made.dtype != dtype or made.shape != shape:
                raise NodeError(_unfit(phase.outputs[tensor], made))
        for tensor in phase.varying:
            channel, made = phase.outputs[tensor], outputs[tensor]
            if made.dtype != channel.dtype or not fits(channel, channel.dtype, made.shape):
                raise NodeError(_unfit(channel, made))
        phase.check_values((*firing.came.values(), *rest.values()), outputs)
        for tensor in phase.stored:
            array, readers = self._store.pop((tensor, frame))
            if readers > 1:
                self._store[tensor, frame] = array, readers - 1
        for tensor, readers in phase.kept.items():
            self._store[tensor, frame] = outputs[tensor], readers
        if phase.kept_from:
            phase.keep(outputs)
        return run

    def _unload(self, epoch: int, interrupted: Executor) -> None:
        if self._epoch == epoch:
            for phase in self._phases:
                _close(phase.subnet)
            self._phases.clear()
            self._store.clear()
            self._close_clock()
            self._epoch = None
            give_back_free_memory()
        self._dropped.discard(epoch)
        interrupted.resume()  # the core starts no other load before it has `Unloaded`
        self._report(ev.Unloaded(epoch))


def _close(what: LoadedSubnet | LoadedAhead) -> None:
    with contextlib.suppress(Exception):  # whatever an engine raises, the thread fires on
        what.close()


def _encoded(phase: LoadedPhase, outputs: Mapping[str, Array]) -> dict[int, memoryview]:
    """Return by channel number the payloads of the channels that are not raw."""
    return {
        number: payload
        for (tensor, encoding), numbers in phase.encoded.items()
        for payload in (encode(outputs[tensor], encoding),)
        for number in numbers
    }


def _unfit(channel: ChannelSpec, made: Array) -> str:
    found = f"{channel.tensor!r} was computed as {made.dtype}{list(made.shape)}"
    if channel.varies and made.dtype == channel.dtype:
        return (
            f"{found}, and a result of varying shape may have at most {MAX_VARYING_BYTES >> 20} "
            "MiB: make the network select fewer"
        )
    return f"{found} instead of {channel.dtype}{list(channel.shape)}"


def _sentence(error: Exception) -> str:
    """Return an error's message, with its type unless it is ours, of at most 2000 characters."""
    text = str(error) if isinstance(error, NodeError) else f"{type(error).__name__}: {error}"
    return text if len(text) <= 2000 else text[:2000] + " …"
