"""The executor thread: loads subnets, warms them up, fires phases, one job after another.

Where all phases of a deployment are brief, only loading is its job: the I/O thread fires them
itself, because handing them over and hearing of their ends would cost more (decision 023).

It never waits for the I/O thread between firings, because the core keeps one queued behind the one
that runs. Tensors between two phases of this node never leave this thread: they lie in a store
until the last phase that reads them has run.

Others may bound what this thread may use, which is why it has a name that shows outside. Whatever
does not compute is therefore started from the I/O thread: the process that prepares subnets, and
ZeroMQ's threads for a rehearsal.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from threading import Thread, get_native_id
from typing import Any

import numpy as np
import numpy.typing as npt

from nodes.code_pages import forget_code_pages
from nodes.core import events as ev
from nodes.core.actions import Fire
from nodes.core.errors import NodeError
from nodes.core.finite import check_finite, is_finite
from nodes.core.messages import ChannelSpec, Deployment, PhaseSpec
from nodes.errand import Call, Errand
from nodes.executors.base import Executor, LoadOptions, Subnet
from nodes.executors.heap import give_back_free_memory
from nodes.loopback import Loopback
from nodes.made_up import made_up
from nodes.payload import as_array
from nodes.rehearsal import FEWEST_ROUNDS, Part, Rehearsal, WireCosts
from nodes.time_slice import ask_for_usual_slices
from nodes.usage import usage

BRIEF_S = 0.0001
"""Phases that take no longer are fired in the I/O thread: about what it costs to hand one over."""

MOST_BRIEF_S = 0.001
"""Of all phases of a deployment together, so that a frame does not keep the loop for long."""

SLOW_FACTOR, PATIENCE_S = 10, 0.1
"""Brief firings may take so many times longer than agreed; once they have taken `PATIENCE_S` more
than that, those that stayed below counted against it, the executor's thread fires."""

THREAD_NAME = "executor"
"""How tools such as `top -H` call the thread that computes."""

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class _Load:
    deployment: Deployment
    graphs: tuple[Path, ...]
    preparing: Errand
    loopback: Loopback | None


@dataclass(frozen=True, slots=True)
class _Unload:
    epoch: int


class _LoadedPhase:
    """A subnet and where its tensors come from and go to."""

    def __init__(self, spec: PhaseSpec, index: int, deployment: Deployment, subnet: Subnet) -> None:
        node = self.node = deployment.node
        self.spec = spec
        self.subnet = subnet
        self.inputs: dict[str, ChannelSpec] = {
            channel.tensor: channel
            for channel in deployment.channels
            if channel.target_node == node and index in channel.target_phases
        }
        outgoing = [
            channel
            for channel in deployment.channels
            if channel.source_node == node and channel.source_phase == index
        ]
        self.outputs = {channel.tensor: channel for channel in outgoing}
        self.dtypes = {
            channel.tensor: np.dtype(channel.dtype)
            for channel in (*self.inputs.values(), *outgoing)
        }
        self.sent = {channel.tensor for channel in outgoing if channel.target_node != node}
        self.kept = {
            channel.tensor: len(channel.target_phases)
            for channel in outgoing
            if channel.target_node == node
        }
        self.may_be_infinite: frozenset[str] | None = None
        """Outputs that are not looked at for NaN and infinity; None: none is."""
        self._check(subnet.inputs, self.inputs, "input")
        self._check(subnet.outputs, self.outputs, "output")

    def _check(
        self, model: Mapping[str, Any], planned: Mapping[str, ChannelSpec], what: str
    ) -> None:
        for tensor, channel in planned.items():
            found = model.get(tensor)
            if found is None:
                raise NodeError(
                    f"the subnet of phase {self.spec.name!r} has no {what} {tensor!r}, "
                    "as its plan says: make the plan anew"
                )
            if (found.dtype, tuple(found.shape)) != (channel.dtype, channel.shape):
                raise NodeError(
                    f"phase {self.spec.name!r}: its subnet's {what} {tensor!r} is "
                    f"{found.dtype}{list(found.shape)}, in its plan {channel.dtype}"
                    f"{list(channel.shape)}: make the plan anew"
                )
        if what == "input" and model.keys() != planned.keys():
            missing = sorted(model.keys() - planned.keys())
            raise NodeError(
                f"the subnet of phase {self.spec.name!r} has inputs that its plan does not "
                f"know: {', '.join(missing)}; make the plan anew"
            )

    def part(self) -> Part:
        """What it is in a rehearsal."""
        came = [name for name, spec in self.inputs.items() if spec.source_node != self.node]
        return Part(self.subnet, self._make_up, came, tuple(self.sent))

    def watch_values(self) -> None:
        """From now on look at outputs, but for those that are not finite when it is tried."""
        tried = self.subnet.run(self._make_up())
        infinite = (name for name in self.outputs if not is_finite(tried[name]))
        self.may_be_infinite = frozenset(infinite)

    def check_values(self, inputs: Mapping[str, Array], outputs: Mapping[str, Array]) -> None:
        """Raise `NodeError` for NaN or infinity that this phase brought into the frame."""
        if self.may_be_infinite is not None:
            made = {name: outputs[name] for name in self.outputs}
            check_finite(inputs.values(), made, self.may_be_infinite)

    def _make_up(self) -> dict[str, Array]:
        return {
            tensor: made_up(channel.dtype, channel.shape) for tensor, channel in self.inputs.items()
        }


class Worker:
    """The thread and its queue; `report` is called from it with every event it has for the core.

    With a `loopback` (what opens one), it measures what messages cost while it warms up.
    Deployments of which no phase takes longer than `brief_s` are fired by whoever calls `fire`.
    """

    def __init__(
        self,
        executor: Executor,
        report: Callable[[ev.Event], None],
        loopback: Callable[[], Loopback] | None = None,
        brief_s: float = 0.0,
    ) -> None:
        self._executor = executor
        self._loopback = loopback
        self._report = report
        self._jobs: SimpleQueue[_Load | Fire | _Unload | None] = SimpleQueue()
        self._dropped: set[int] = set()
        self._epoch: int | None = None
        self._brief_s = brief_s
        self._brief_epoch: int | None = None
        self._excess_s = 0.0
        self._holds_more = False
        self._phases: list[_LoadedPhase] = []
        self._store: dict[tuple[str, int], tuple[Array, int]] = {}
        self._thread = Thread(target=self._run, name=THREAD_NAME, daemon=True)
        self._thread.start()

    # ------------------------------------------------------------ from the I/O thread

    def load(self, deployment: Deployment, graphs: tuple[Path, ...], *before: Call) -> None:
        """Make the calls `before`, then load and warm up the phases, whose graphs lie there."""
        preparing = Errand(*before, lambda: self._prepare(deployment, graphs))
        loopback = None if self._loopback is None else self._loopback()
        self._jobs.put(_Load(deployment, graphs, preparing, loopback))

    def fire(self, firing: Fire) -> ev.Event | None:
        """Run a phase after everything handed in before: its end if it is brief, else that is
        reported."""
        if firing.epoch != self._brief_epoch:
            self._jobs.put(firing)
            return None
        ended = self._fired(firing)
        if isinstance(ended, ev.FiringEnded):
            longest_s = SLOW_FACTOR * self._brief_s
            self._excess_s = max(0.0, self._excess_s + ended.busy_s - longest_s)
            if self._excess_s > PATIENCE_S:
                self._brief_epoch = None  # a throttled CPU, say: whoever has the sockets must go on
        return ended

    def unload(self, epoch: int) -> None:
        """Drop what is queued of this epoch, then everything it holds."""
        self._dropped.add(epoch)
        self._brief_epoch = None
        self._executor.interrupt()  # a load of it, which may take minutes and nobody waits for
        self._jobs.put(_Unload(epoch))

    def stop(self, timeout_s: float) -> bool:
        """End the thread after the job it is at; False if that takes longer."""
        if self._epoch is not None:
            self.unload(self._epoch)
        self._jobs.put(None)
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    # ------------------------------------------------------------ in the thread

    def _run(self) -> None:
        Path(f"/proc/self/task/{get_native_id()}/comm").write_text(THREAD_NAME, "ascii")
        ask_for_usual_slices()  # so that I/O threads need not wait long for this one
        while (job := self._jobs.get()) is not None:
            match job:
                case Fire():
                    if job.epoch not in self._dropped:
                        self._report(self._fired(job))
                    if self._holds_more:  # until now, so that the first result did not wait
                        _let_go()
                        self._holds_more = False
                case _Load():
                    with job.loopback or contextlib.nullcontext():
                        self._load(job)
                case _Unload():
                    self._unload(job.epoch)
            del job  # while the thread waits, nothing keeps the last tensors alive

    def _load(self, job: _Load) -> None:
        epoch = self._epoch = job.deployment.epoch
        try:
            seconds, costs = self._load_phases(job)
        except Exception as error:  # noqa: BLE001 - whatever an engine raises, the agent lives on
            self._report(ev.LoadFailed(epoch, _sentence(error)))
            return
        if epoch not in self._dropped:
            self._excess_s = 0.0
            is_brief = self._is_brief(seconds)
            self._holds_more = not is_brief
            if is_brief:
                _let_go()
            self._brief_epoch = epoch if is_brief else None
            rss_bytes = usage().rss_bytes
            loaded = ev.Loaded(epoch, seconds, rss_bytes, costs.message_s, costs.byte_s)
            self._report(loaded)

    def _is_brief(self, seconds: tuple[float, ...]) -> bool:
        """Whether phases that take so long are fired in the I/O thread."""
        return (
            max(seconds) <= self._brief_s
            and sum(seconds) <= MOST_BRIEF_S
            and not is_set_apart()
            and not getattr(self._executor, "is_bound_to_thread", False)
        )

    def _prepare(self, deployment: Deployment, graphs: tuple[Path, ...]) -> None:
        """Not in the executor thread, see `Errand`, but while that waits."""
        epoch, total = deployment.epoch, len(deployment.phases)
        prepared = 0

        def tell(_: Path) -> None:
            nonlocal prepared
            prepared += 1
            self._report(ev.LoadProgress(epoch, 0, total, f"prepared {prepared} of {total}"))

        self._report(ev.LoadProgress(epoch, 0, total, "preparing"))
        self._executor.prepare(graphs, LoadOptions(threads=_threads(deployment)), tell)

    def _load_phases(self, job: _Load) -> tuple[tuple[float, ...], WireCosts]:
        deployment = job.deployment
        epoch, total = deployment.epoch, len(deployment.phases)
        options = LoadOptions(threads=_threads(deployment))
        job.preparing.run()
        for index, (spec, graph) in enumerate(zip(deployment.phases, job.graphs, strict=True)):
            if epoch in self._dropped:
                break
            subnet = self._executor.load(graph, options)
            try:
                self._phases.append(_LoadedPhase(spec, index, deployment, subnet))
            except BaseException:
                subnet.close()
                raise
            self._report(ev.LoadProgress(epoch, index + 1, total, f"loaded {spec.name}"))
        _let_go()  # before weights come into memory beside it
        return self._rehearse(job, total)

    def _rehearse(self, job: _Load, total: int) -> tuple[tuple[float, ...], WireCosts]:
        epoch = job.deployment.epoch
        parts = [phase.part() for phase in self._phases]
        if job.loopback is not None:
            job.loopback.connect()
        rehearsal = Rehearsal(job.loopback, _threads(job.deployment))
        told = 0
        for number in rehearsal.perform(parts):
            if epoch in self._dropped:
                return (), rehearsal.costs()
            if told < number <= FEWEST_ROUNDS:
                what = f"rehearsing, round {number}"
                self._report(ev.LoadProgress(epoch, total, total, what))
                told = number
        if job.deployment.check_finite:
            for phase in self._phases:
                phase.watch_values()
        return tuple(part.typical_s for part in parts), rehearsal.costs()

    def _fired(self, firing: Fire) -> ev.FiringEnded | ev.FiringFailed:
        """Run a phase; how it ended."""
        phase = self._phases[firing.phase]
        try:
            outputs, began_s, busy_s, cpu_s = self._compute(phase, firing)
        except Exception as error:  # noqa: BLE001 - whatever an engine raises, the agent lives on
            reason = f"phase {phase.spec.name!r} at frame {firing.frame}: {_sentence(error)}"
            return ev.FiringFailed(firing.epoch, firing.phase, firing.frame, reason)
        return ev.FiringEnded(
            firing.epoch, firing.phase, firing.frame, outputs, busy_s, cpu_s, began_s
        )

    def _compute(
        self, phase: _LoadedPhase, firing: Fire
    ) -> tuple[dict[str, object], float, float, float]:
        frame = firing.frame
        inputs = {
            tensor: (
                as_array(firing.inputs[tensor], phase.dtypes[tensor], channel.shape)
                if tensor in firing.inputs
                else self._store[tensor, frame][0]
            )
            for tensor, channel in phase.inputs.items()
        }
        began, cpu = time.perf_counter(), time.thread_time()
        outputs = phase.subnet.run(inputs)
        cpu_s, busy_s = time.thread_time() - cpu, time.perf_counter() - began
        for tensor, channel in phase.outputs.items():
            made = outputs[tensor]
            if made.dtype != phase.dtypes[tensor] or made.shape != channel.shape:
                raise NodeError(
                    f"{tensor!r} came out as {made.dtype}{list(made.shape)} instead of "
                    f"{channel.dtype}{list(channel.shape)}"
                )
        phase.check_values(inputs, outputs)
        for tensor in inputs.keys() - firing.inputs.keys():
            array, readers = self._store.pop((tensor, frame))
            if readers > 1:
                self._store[tensor, frame] = array, readers - 1
        for tensor, readers in phase.kept.items():
            self._store[tensor, frame] = outputs[tensor], readers
        sent: dict[str, object] = {tensor: outputs[tensor].data for tensor in phase.sent}
        return sent, began, busy_s, cpu_s

    def _unload(self, epoch: int) -> None:
        if self._epoch == epoch:
            for phase in self._phases:
                phase.subnet.close()
            self._phases.clear()
            self._store.clear()
            self._epoch = None
            self._holds_more = False
            _let_go()
        self._dropped.discard(epoch)
        self._executor.resume()  # no other load has been asked for before this is told
        self._report(ev.Unloaded(epoch))


def _threads(deployment: Deployment) -> int:
    """More threads than processors gain nothing, and each subnet has its own: hundreds of them."""
    return min(deployment.threads, len(os.sched_getaffinity(0)))


def is_set_apart(proc: Path = Path("/proc")) -> bool:
    """Whether the calling thread has bounds of its own, which hold for what it computes only."""
    if os.sched_getaffinity(0) != os.sched_getaffinity(os.getpid()):
        return True
    groups = (proc / "thread-self" / "cgroup", proc / "self" / "cgroup")
    try:
        return groups[0].read_bytes() != groups[1].read_bytes()
    except OSError:
        return False  # the kernel has no control groups


def _let_go() -> None:
    """Of what loading needed and firing does not."""
    give_back_free_memory()
    forget_code_pages()


def _sentence(error: Exception) -> str:
    """What an error says, its kind in front unless it is one of ours; at most 2000 characters."""
    text = str(error) if isinstance(error, NodeError) else f"{type(error).__name__}: {error}"
    return text if len(text) <= 2000 else text[:2000] + " …"
