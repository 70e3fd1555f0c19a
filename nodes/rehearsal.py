"""Warming up as in earnest: frame by frame through all phases, tensors over the wire and back.

A subnet that only ran by itself, again and again, would find its weights and inputs in the cache
and its outputs' memory free, and the agent's own code would be at hand when a message comes: all of
that is faster than it will be in the stream. So a rehearsal goes through the phases in turn: each
time it sends the inputs that come from other nodes to itself, runs the subnet on what arrives, and
sends itself the outputs that other nodes read.

A single small message comes right after each run, when little of the agent is left in the cache.
What a message costs is fitted to what the rounds have cost: the first message of a burst a whole
`message_s`, each more a part of it, because nobody has to be woken for it, and all their bytes
`byte_s`.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from nodes.executors.base import Subnet
from nodes.loopback import Loopback
from nodes.payload import as_array
from nodes.usage import waited_s

RUNS = 5
"""Runs of each phase before it is called ready; the first is not timed."""

MORE = 0.25
"""What another message of a burst costs, beside the first one."""

SMALL_BYTES = 1024
LARGE_BYTES = 64 * SMALL_BYTES

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class WireCosts:
    """Processor seconds of sender and receiver together: for a message, and for a byte."""

    message_s: float
    byte_s: float


def fit(small_s: Sequence[float], rounds: Sequence[tuple[int, int, float]]) -> WireCosts:
    """The costs that follow from the seconds of single small messages and from rounds of (messages,
    bytes, seconds). Small rounds say nothing of bytes; zeros for what nothing is said of."""
    if not small_s:
        return WireCosts(0.0, 0.0)
    message_s = statistics.median(small_s)
    rates = [
        max(0.0, seconds - message_s * (1 + MORE * (messages - 1))) / size
        for messages, size, seconds in rounds
        if size >= LARGE_BYTES
    ]
    return WireCosts(message_s, statistics.median(rates) if rates else 0.0)


@dataclass(slots=True)
class Part:
    """A phase in a rehearsal: `came` are its inputs that come from other nodes, `sent` its outputs
    that other nodes read; `make_up` makes inputs that it can run on."""

    subnet: Subnet
    make_up: Callable[[], dict[str, Array]]
    came: Sequence[str] = ()
    sent: Sequence[str] = ()
    seconds: list[float] = field(default_factory=list)
    """Of each run so far, waits for a CPU left out."""

    @property
    def typical_s(self) -> float:
        """The median of its runs, without the first."""
        return statistics.median(self.seconds[1:])


class Rehearsal:
    """Performs phases and keeps count of what the wire costs; without a `loopback` it has none.

    All agents of a machine rehearse at once. How its cores are then shared is for the plan's
    prediction to say: a run that had to wait for another agent's would count that twice.
    """

    def __init__(self, loopback: Loopback | None = None) -> None:
        self._loopback = loopback
        self._small_s: list[float] = []
        self._rounds: list[tuple[int, int, float]] = []

    def perform(self, part: Part) -> None:
        """One run of a phase."""
        inputs = part.make_up()
        for tensor, payload in zip(part.came, self._carry(inputs, part.came), strict=False):
            made_up = inputs[tensor]
            inputs[tensor] = as_array(payload, str(made_up.dtype), made_up.shape)
        waited, began, cpu = waited_s(), time.perf_counter(), time.thread_time()
        outputs = part.subnet.run(inputs)
        computed_s = time.thread_time() - cpu
        passed_s = time.perf_counter() - began - (waited_s() - waited)
        part.seconds.append(max(passed_s, computed_s))  # two clocks are not read at one instant
        if self._loopback is not None:
            _, spent_s = self._loopback.carry([np.zeros(SMALL_BYTES, np.uint8)])
            self._small_s.append(spent_s)
        self._carry(outputs, part.sent)

    def costs(self) -> WireCosts:
        """What the rounds say."""
        return fit(self._small_s, self._rounds)

    def _carry(self, tensors: Mapping[str, Array], names: Sequence[str]) -> list[object]:
        if self._loopback is None or not names:
            return []
        arrays = [tensors[name] for name in names]
        arrived, spent_s = self._loopback.carry(arrays)
        self._rounds.append((len(arrays), sum(array.nbytes for array in arrays), spent_s))
        return arrived
