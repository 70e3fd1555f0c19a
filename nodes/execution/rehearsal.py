"""Warms subnets up under the conditions of the stream, and measures what phases and messages cost.

A subnet that ran alone, repeatedly, would find its weights in the processor's cache and no
competition for the CPU, and the agent's code for messages would be in the cache as well. In the
stream none of this holds. So a rehearsal runs the phases in turn. While a subnet runs, the node
sends to itself the tensors that this subnet needs from other nodes and those that the previous
subnet makes for them (only a part of large ones).

The cost of messages is fitted to the processor time that such rounds take in addition to the
subnets', and to the time of a single small message after a round without messages, when little of
the agent's code is in the cache. The model: the first message of a round costs `message_s`; each
further one costs a part of it (`MORE`), because no thread has to be woken; and every byte costs
`byte_s`.

A CPU quota is a property of the device, so times are measured under it. For phases that is the
quota of the thread that computes, for messages that of the process, which may differ.
"""

from __future__ import annotations

import contextlib
import os
import statistics
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import cast

import numpy as np

from nodes.executors.base import BoundRun, ComputesElsewhere, LoadedSubnet, ThreadTimes, binder
from nodes.host.control_groups import core_share, undisturbed_s
from nodes.host.usage import opened_waits, waited_s
from nodes.net.loopback import Loopback
from nodes.protocol.payload import Array

FEWEST_ROUNDS, MOST_ROUNDS = 5, 61
LONG_ENOUGH_S = 0.2
"""Each phase runs once per round. There are at least `FEWEST_ROUNDS`, and more until
`LONG_ENOUGH_S` have passed, because small networks need more until they are warm. The first and
every other round is without messages and not timed, except the last of the fewest; so at least
three are timed."""

MORE = 0.25
"""The cost of a further message of a burst, as a fraction of the first one's."""

SMALL_BYTES = 1024
LARGE_BYTES = 64 * SMALL_BYTES

MOST_BYTES = 1024 * SMALL_BYTES
"""The most bytes of a phase's tensors that move in each direction: enough to measure their cost,
and little compared to what the stream holds.
"""


@dataclass(frozen=True, slots=True)
class WireCosts:
    """Processor seconds of sender and receiver together, per message and per byte."""

    message_s: float
    byte_s: float


def fit(small_s: Sequence[float], rounds: Sequence[tuple[int, int, float]]) -> WireCosts:
    """Fit the costs to the seconds of single small messages and to rounds of (messages, bytes,
    seconds).

    Only the later half of the small messages counts, because caches are cold at first. Both costs
    are lower quartiles, because every disturbance makes a message more expensive. A slow board has
    time for two small messages, so a disturbed one may decide; but bytes cost at least nothing, so
    a message costs at most what the rounds took. Small rounds do not determine the cost of a byte.
    A cost without samples is 0.
    """
    if not small_s:
        return WireCosts(0.0, 0.0)
    message_s = _lower_quartile(small_s[len(small_s) // 2 :])
    most_s = [seconds / (1 + MORE * (messages - 1)) for messages, _, seconds in rounds if messages]
    if most_s:
        message_s = min(message_s, _lower_quartile(most_s))
    rates = [
        max(0.0, seconds - message_s * (1 + MORE * (messages - 1))) / size
        for messages, size, seconds in rounds
        if size >= LARGE_BYTES
    ]
    return WireCosts(message_s, _lower_quartile(rates) if rates else 0.0)


def _beginnings(arrays: Iterable[Array]) -> list[Array]:
    """Copy the same fraction from the beginning of each array, at most `MOST_BYTES` in all."""
    whole = list(arrays)
    share = min(1.0, MOST_BYTES / max(1, sum(array.nbytes for array in whole)))
    return [array.reshape(-1)[: max(1, int(array.size * share))].copy() for array in whole]


def engine_threads() -> frozenset[int]:
    """Return the threads of this process that are neither Python's nor ZeroMQ's: an engine's."""
    found = {int(name) for name in os.listdir("/proc/self/task")}
    found -= {thread.native_id for thread in threading.enumerate()}
    return frozenset(thread for thread in found if not _comm(thread).startswith("ZMQ"))


def _comm(thread: int) -> str:
    try:
        return Path(f"/proc/self/task/{thread}/comm").read_text("utf-8", "replace")
    except OSError:  # it has ended meanwhile
        return "ZMQ"


@dataclass(frozen=True, slots=True)
class TimedRun:
    """A run of a subnet: its outputs, when it began on the clock of `perf_counter`, the seconds
    that passed, its seconds without waits for a CPU that other processes used, and the processor
    time of the threads that computed it."""

    outputs: dict[str, Array]
    began_s: float
    passed_s: float
    seconds: float
    computed_s: float
    is_elsewhere: bool
    """Whether a thread of the engine's own has computed it."""


class RunClock:
    """Times runs that `threads` compute, of which the calling thread is one.

    The threads of an engine share the work of a run, and when one of them waits for a CPU, the
    others may do its part. So each counts as computing, and as waiting, for as long as their mean.
    The engine's threads are those that exist now, except the `others`, which compute something
    else. Each thread has a quota of `core_share` of a core (None: unknown).
    """

    def __init__(
        self, threads: int, core_share: float | None, others: Collection[int] = frozenset()
    ) -> None:
        self._threads = threads
        self._core_share = core_share
        shared = engine_threads().difference(others) if threads > 1 else ()
        self._shared = [(~thread << 3) | 6 for thread in shared]  # see clock_getcpuclockid(3)
        computing = (threading.get_native_id(), *shared)
        self._files = [opened_waits(f"self/task/{thread}") for thread in computing]

    def timed(
        self,
        subnet: LoadedSubnet,
        bound: BoundRun,
        rest: Mapping[str, Array] = MappingProxyType({}),
        *,
        with_waits: bool = True,
    ) -> TimedRun:
        """Run a subnet whose inputs are `bound`, except those in `rest`.

        Without `with_waits`, which takes some 20 µs, its `seconds` are 0.
        """
        elsewhere, waited = _elsewhere(subnet), self._waited_s() if with_waits else None
        shared_s = self._shared_s()
        began_s, began_own_s = time.perf_counter(), time.thread_time()
        outputs = bound.run(rest)
        own_s, passed_s = time.thread_time() - began_own_s, time.perf_counter() - began_s
        computed_s = own_s + self._shared_s() - shared_s
        each_s, waits_s = computed_s / self._threads, None
        if waited is not None and (now := self._waited_s()) is not None:
            waits_s = (now - waited) / self._threads
        after = _elsewhere(subnet)
        if is_elsewhere := after.computed_s > elsewhere.computed_s:
            each_s = computed_s = own_s + after.computed_s - elsewhere.computed_s
            waits_s = (after.waited_s or 0.0) - (elsewhere.waited_s or 0.0)
        seconds = 0.0
        if with_waits:
            seconds = undisturbed_s(passed_s, each_s, waits_s, self._core_share)
        return TimedRun(outputs, began_s, passed_s, seconds, computed_s, is_elsewhere)

    def _shared_s(self) -> float:
        """Return the processor time of the engine's threads that share the work."""
        return sum(map(_processor_s, self._shared)) if self._shared else 0.0

    def _waited_s(self) -> float | None:
        """Return the waits of all threads; None if the kernel does not count those of one."""
        total_s = 0.0
        for file in self._files:
            if (each_s := waited_s(file)) is None:
                return None
            total_s += each_s
        return total_s

    def close(self) -> None:
        """Close the files of the kernel's counts."""
        while self._files:
            if (file := self._files.pop()) is not None:
                os.close(file)


def _processor_s(clock: int) -> float:
    try:
        return time.clock_gettime(clock)
    except OSError:  # the thread has ended
        return 0.0


def _elsewhere(subnet: LoadedSubnet) -> ThreadTimes:
    """Return the times of the engine's own thread; zeros if it has none."""
    if _computes_elsewhere(type(subnet)):
        return cast(ComputesElsewhere, subnet).engine_times()
    return NO_TIMES


@cache
def _computes_elsewhere(kind: type) -> bool:
    """Whether a kind of subnets `ComputesElsewhere`; to ask takes 3 µs, and every run asks."""
    return issubclass(kind, ComputesElsewhere)


NO_TIMES = ThreadTimes(0.0, 0.0)


def _lower_quartile(values: Sequence[float]) -> float:
    return sorted(values)[len(values) // 4]


@dataclass(slots=True)
class RehearsedPhase:
    """A phase in a rehearsal.

    `received` are its inputs from other nodes, `sent` its outputs that other nodes read.
    `make_inputs` returns new inputs for a run.
    """

    subnet: LoadedSubnet
    make_inputs: Callable[[], dict[str, Array]]
    received: Sequence[str] = ()
    sent: Sequence[str] = ()
    seconds: list[float] = field(default_factory=list)
    """Seconds of each timed run so far, without waits for a CPU that other processes used."""

    @property
    def typical_s(self) -> float:
        """Return the median of the timed runs, in seconds."""
        return statistics.median(self.seconds)


class Rehearsal:
    """Runs phases in rounds, and measures what messages cost if there is a `loopback`.

    `threads` compute a run, and the `others` something else meanwhile (`RunClock`). All agents of a
    machine rehearse at once, so times exclude waits for one another: the plan's prediction accounts
    for how agents share the cores of a machine.
    """

    def __init__(
        self,
        loopback: Loopback | None = None,
        threads: int = 1,
        others: Collection[int] = frozenset(),
    ) -> None:
        self._loopback = loopback
        self._threads = threads
        self._others = others
        self._small_s: list[float] = []
        self._rounds: list[tuple[int, int, float]] = []
        self._left: list[Array] = []

    def perform(self, phases: Sequence[RehearsedPhase]) -> Iterator[int]:
        """Run all rounds, and yield the round's number, from 1, after each run of a phase."""
        began_s = time.monotonic()
        clock = RunClock(self._threads, core_share("thread-self", self._threads), self._others)
        with contextlib.closing(clock):
            yield from self._rounds_of(phases, clock, began_s)

    def _rounds_of(
        self, phases: Sequence[RehearsedPhase], clock: RunClock, began_s: float
    ) -> Iterator[int]:
        for number in range(MOST_ROUNDS):
            if number >= FEWEST_ROUNDS and time.monotonic() > began_s + LONG_ENOUGH_S:
                return
            for phase in phases:
                if number % 2 or number == FEWEST_ROUNDS - 1:
                    self._run(phase, clock)
                else:
                    self._run_without_messages(phase)
                yield number + 1

    def _run(self, phase: RehearsedPhase, clock: RunClock) -> None:
        """Run a phase once, timed, while tensors move."""
        inputs = phase.make_inputs()
        bound = binder(phase.subnet)(inputs)
        moving = self._left + _beginnings(inputs[tensor] for tensor in phase.received)
        began_cpu_s = time.process_time()
        if self._loopback is not None:
            self._loopback.send(moving)
        run = clock.timed(phase.subnet, bound)
        if self._loopback is not None:
            self._loopback.receive(len(moving))
            spent_s = time.process_time() - began_cpu_s - run.computed_s
            if not run.is_elsewhere:  # else processor time of messages and phases is not separable
                self._rounds.append((len(moving), sum(array.nbytes for array in moving), spent_s))
            self._left = _beginnings(run.outputs[tensor] for tensor in phase.sent)
        phase.seconds.append(run.seconds)

    def _run_without_messages(self, phase: RehearsedPhase) -> None:
        """Run a phase once, and then time one small message."""
        phase.subnet.run(phase.make_inputs())
        if self._loopback is not None:
            began_s = time.process_time()
            self._loopback.send([np.zeros(SMALL_BYTES, np.uint8)])
            self._loopback.receive(1)
            self._small_s.append(time.process_time() - began_s)

    def costs(self) -> WireCosts:
        """Return the costs of messages, fitted to the rounds so far."""
        found, quota = fit(self._small_s, self._rounds), core_share("self") or 1.0
        return WireCosts(found.message_s / quota, found.byte_s / quota)
