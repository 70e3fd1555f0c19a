"""Warms subnets up under the conditions of the stream, and measures what phases and messages cost.

A subnet that only ran by itself, again and again, would find its weights in the cache and a CPU
that nobody else wants, and the agent's own code would be at hand when a message comes: all of that
is better than it will be in the stream. So a rehearsal goes through the phases in turn, and while a
subnet runs, the tensors that it needs from other nodes, and those that the subnet before it makes
for them, are on their way from this node to itself (of large ones, a part).

What the wire costs is fitted to the processor time that such rounds take besides the subnet's, and
to that of a single small message right after a round in which nothing moved, when little of the
agent is left in the cache: the first message of a round costs a whole `message_s`, each more a part
of it, because nobody has to be woken for it, and all their bytes `byte_s`.

A CPU quota is part of what a device is: times are those under it. For phases that is the quota of
the thread that computes, for messages that of the process, which may be another.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from nodes.executors.base import LoadedSubnet
from nodes.host.control_groups import speed, undisturbed_s
from nodes.host.usage import waited_s
from nodes.net.loopback import Loopback

FEWEST_ROUNDS, MOST_ROUNDS = 5, 61
LONG_ENOUGH_S = 0.2
"""Rounds in which each phase runs once, before a deployment is called ready: small networks need
more until they are warm. Those in which nothing moves are not timed: the first and every other one,
but not the last of the fewest, so that three are timed at least."""

MORE = 0.25
"""What another message of a burst costs, beside the first one."""

SMALL_BYTES = 1024
LARGE_BYTES = 64 * SMALL_BYTES

MOST_BYTES = 1024 * SMALL_BYTES
"""Of a phase's tensors each way: enough to measure by, and little beside what the stream holds."""

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class WireCosts:
    """Processor seconds of sender and receiver together: for a message, and for a byte."""

    message_s: float
    byte_s: float


def fit(small_s: Sequence[float], rounds: Sequence[tuple[int, int, float]]) -> WireCosts:
    """Fit the costs to the seconds of single small messages and to rounds of (messages, bytes,
    seconds).

    Only the later half of the small messages counts, because the first meet cold caches. Both costs
    are lower quartiles, because every disturbance makes a message dearer. Small rounds do not
    determine the cost of a byte. A cost without samples is 0.
    """
    if not small_s:
        return WireCosts(0.0, 0.0)
    message_s = _lower_quartile(small_s[len(small_s) // 2 :])
    rates = [
        max(0.0, seconds - message_s * (1 + MORE * (messages - 1))) / size
        for messages, size, seconds in rounds
        if size >= LARGE_BYTES
    ]
    return WireCosts(message_s, _lower_quartile(rates) if rates else 0.0)


def _beginnings(arrays: Iterable[Array]) -> list[Array]:
    """Copy the beginning of each array, all in proportion, so that they take `MOST_BYTES`."""
    whole = list(arrays)
    share = min(1.0, MOST_BYTES / max(1, sum(array.nbytes for array in whole)))
    return [array.reshape(-1)[: max(1, int(array.size * share))].copy() for array in whole]


def _lower_quartile(values: Sequence[float]) -> float:
    return sorted(values)[len(values) // 4]


@dataclass(slots=True)
class RehearsedPhase:
    """A phase in a rehearsal: `came` are its inputs that come from other nodes, `sent` its outputs
    that other nodes read; `make_inputs` makes inputs that it can run on."""

    subnet: LoadedSubnet
    make_inputs: Callable[[], dict[str, Array]]
    came: Sequence[str] = ()
    sent: Sequence[str] = ()
    seconds: list[float] = field(default_factory=list)
    """Seconds of each timed run so far, without waits for a CPU that others had."""

    @property
    def typical_s(self) -> float:
        """The median of its timed runs."""
        return statistics.median(self.seconds)


class Rehearsal:
    """Runs phases in rounds and measures what messages cost, if there is a `loopback`.

    `threads` compute a run.

    All agents of a machine rehearse at once. How its cores are then shared is for the plan's
    prediction to say: a run that had to wait for another agent's would count that twice.
    """

    def __init__(self, loopback: Loopback | None = None, threads: int = 1) -> None:
        self._loopback = loopback
        self._threads = threads
        self._speed: float | None = None
        self._small_s: list[float] = []
        self._rounds: list[tuple[int, int, float]] = []
        self._left: list[Array] = []

    def perform(self, parts: Sequence[RehearsedPhase]) -> Iterator[int]:
        """Run all rounds; yields the round's number, from 1, after each run of a part."""
        began_s = time.monotonic()
        self._speed = speed("thread-self", self._threads)
        for number in range(MOST_ROUNDS):
            if number >= FEWEST_ROUNDS and time.monotonic() > began_s + LONG_ENOUGH_S:
                return
            for part in parts:
                if number % 2 or number == FEWEST_ROUNDS - 1:
                    self._run(part)
                else:
                    self._run_quietly(part)
                yield number + 1

    def _run(self, part: RehearsedPhase) -> None:
        """Run a part once, timed, while tensors move."""
        inputs = part.make_inputs()
        moving = self._left + _beginnings(inputs[tensor] for tensor in part.came)
        began_cpu_s = time.process_time()
        if self._loopback is not None:
            self._loopback.send(moving)
        waited, began, cpu = waited_s(), time.perf_counter(), time.thread_time()
        outputs = part.subnet.run(inputs)
        computed_s, passed_s = time.thread_time() - cpu, time.perf_counter() - began
        waits_s = None if waited is None else (waited_s() or 0.0) - waited
        if self._loopback is not None:
            self._loopback.receive(len(moving))
            spent_s = time.process_time() - began_cpu_s - computed_s
            self._rounds.append((len(moving), sum(array.nbytes for array in moving), spent_s))
            self._left = _beginnings(outputs[tensor] for tensor in part.sent)
        part.seconds.append(undisturbed_s(passed_s, computed_s, waits_s, self._speed))

    def _run_quietly(self, part: RehearsedPhase) -> None:
        part.subnet.run(part.make_inputs())
        if self._loopback is not None:
            began_s = time.process_time()
            self._loopback.send([np.zeros(SMALL_BYTES, np.uint8)])
            self._loopback.receive(1)
            self._small_s.append(time.process_time() - began_s)

    def costs(self) -> WireCosts:
        """Return the costs that fit the rounds so far."""
        found, quota = fit(self._small_s, self._rounds), speed("self") or 1.0
        return WireCosts(found.message_s / quota, found.byte_s / quota)
