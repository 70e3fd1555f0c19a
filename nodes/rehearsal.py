"""Warming up as in earnest: each run's tensors come and go over the wire, as far as they will.

A subnet that only ran by itself, again and again, would find its inputs in the cache and its
outputs' memory free, and the agent's own code would be at hand when a message comes: all three are
faster than they will be in the stream. So a rehearsal sends the inputs that come from other nodes
to itself, runs the subnet on what arrives, and sends itself the outputs that other nodes read.

What a message costs is fitted to what the rounds have cost: the first message of a burst a whole
`message_s`, each more a part of it, because nobody has to be woken for it, and all their bytes
`byte_s`.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping, Sequence
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
class Rehearsal:
    """What was measured so far; `loopback` is None where the wire is left out."""

    loopback: Loopback | None
    _small_s: list[float] = field(default_factory=list)
    _rounds: list[tuple[int, int, float]] = field(default_factory=list)
    """Messages, bytes, seconds."""

    def rehearse(self, subnet: Subnet, inputs: Mapping[str, Array], remote: Remote) -> float:
        """Seconds of a run of `subnet`: their median, waits for a CPU left out.

        All agents of a machine warm up at once. How its cores are then shared is for the plan's
        prediction to say: a run that had to wait for another agent's would count that twice.
        """
        seconds = []
        for _ in range(RUNS):
            self._small()
            came = self._carry([inputs[tensor] for tensor in remote.inputs])
            received = dict(inputs)
            for tensor, payload in zip(remote.inputs, came, strict=False):
                made_up = inputs[tensor]
                received[tensor] = as_array(payload, str(made_up.dtype), made_up.shape)
            waited, began, cpu = waited_s(), time.perf_counter(), time.thread_time()
            outputs = subnet.run(received)
            computed_s = time.thread_time() - cpu
            passed_s = time.perf_counter() - began - (waited_s() - waited)
            seconds.append(max(passed_s, computed_s))  # the two clocks are not read at one instant
            self._carry([outputs[tensor] for tensor in remote.outputs])
        return statistics.median(seconds[1:])

    def costs(self) -> WireCosts:
        """What the rounds say."""
        return fit(self._small_s, self._rounds)

    def _small(self) -> None:
        if self.loopback is not None:
            _, spent_s = self.loopback.carry([np.zeros(SMALL_BYTES, np.uint8)])
            self._small_s.append(spent_s)

    def _carry(self, arrays: Sequence[Array]) -> list[object]:
        if self.loopback is None or not arrays:
            return []
        arrived, spent_s = self.loopback.carry(arrays)
        self._rounds.append((len(arrays), sum(array.nbytes for array in arrays), spent_s))
        return arrived


@dataclass(frozen=True, slots=True)
class Remote:
    """A phase's tensors that come from other nodes, and those that other nodes read."""

    inputs: Sequence[str]
    outputs: Sequence[str]
