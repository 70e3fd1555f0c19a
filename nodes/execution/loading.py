"""Loads the subnets of a deployment as phases, and rehearses them.

Usually the executor thread does both before a deployment starts. Before a change of plans they
happen *ahead*: in a separate thread, while the phases of the present deployment fire. The executor
thread then takes the phases over, and the change need not wait for them.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from pathlib import Path
from threading import Lock, Thread

from nodes.execution.loaded_phase import LoadedPhase
from nodes.execution.rehearsal import FEWEST_ROUNDS, Rehearsal, WireCosts, engine_threads
from nodes.executors.base import Executor, LoadOptions, LoadsBesideRuns
from nodes.host.control_groups import room_bytes
from nodes.net.loopback import Loopback
from nodes.protocol.errors import NodeError
from nodes.protocol.messages import Deployment

GoesOn = Callable[[], bool]
"""Whether the phases are still wanted."""

OnProgress = Callable[[int, str], None]
"""Receives the number of loaded phases, and what was done."""


class DroppedError(NodeError):
    """The deployment was dropped before its phases were loaded and rehearsed."""


def threads_of(deployment: Deployment) -> int:
    """Return the threads per run: at most one per processor, since every subnet has its own."""
    return min(deployment.threads, len(os.sched_getaffinity(0)))


def load_phases(
    deployment: Deployment,
    graphs: Sequence[Path],
    executor: Executor,
    options: LoadOptions,
    into: list[LoadedPhase],
    goes_on: GoesOn,
    on_progress: OnProgress,
) -> None:
    """Load the phases, whose subnets are `graphs`, one by one into the list `into`.

    Raises `DroppedError` once it no longer `goes_on`, and other errors of `NodeError` if a phase
    cannot be loaded or used; those before it are in the list.
    """
    for index, (spec, graph) in enumerate(zip(deployment.phases, graphs, strict=True)):
        if not goes_on():
            raise DroppedError("the deployment was dropped while its subnets were loaded")
        subnet = executor.load(graph, options)
        try:
            into.append(LoadedPhase(spec, index, deployment, subnet))
        except BaseException:
            subnet.close()
            raise
        on_progress(index + 1, f"loaded {spec.name}")
    for phase in into:
        phase.check_room()


def rehearse(
    deployment: Deployment,
    phases: Sequence[LoadedPhase],
    loopback: Loopback | None,
    goes_on: GoesOn,
    on_progress: OnProgress,
    others: Collection[int] = frozenset(),
) -> tuple[tuple[float, ...], WireCosts]:
    """Return the phases' seconds, and what messages cost over the `loopback`, or zeros.

    The threads in `others` compute something else meanwhile. Raises `DroppedError` once it no
    longer `goes_on`.
    """
    total = len(phases)
    rehearsed = [phase.rehearsed() for phase in phases]
    rehearsal = Rehearsal(loopback, threads_of(deployment), others)
    reported = 0
    for number in rehearsal.perform(rehearsed):
        if not goes_on():
            raise DroppedError("the deployment was dropped in its rehearsal")
        if reported < number <= FEWEST_ROUNDS:
            on_progress(total, f"rehearsing, round {number}")
            reported = number
    if deployment.check_finite:
        for phase in phases:
            phase.watch_values()
    return tuple(phase.typical_s for phase in rehearsed), rehearsal.costs()


class LoadedAhead:
    """The phases of a deployment that may follow, from the beginning of their preparation on.

    The `thread` that loads them owns them until they are ready; then the executor thread does.
    """

    def __init__(self, deployment: Deployment) -> None:
        self.deployment = deployment
        self.executor: Executor | None = None
        self.phases: list[LoadedPhase] = []
        self.seconds: tuple[float, ...] = ()
        self.costs = WireCosts(0.0, 0.0)
        self.thread: Thread | None = None
        self._lock = Lock()
        self._is_ready = self._is_dropped = False

    def load(
        self,
        executor: Executor,
        options: LoadOptions,
        graphs: Sequence[Path],
        loopback: Callable[[], Loopback] | None,
        costs: WireCosts,
    ) -> None:
        """Load and rehearse the phases; without a `loopback`, messages are taken to cost `costs`.

        Raises `NodeError`, with nothing loaded, if the phases cannot be loaded in addition to
        others or are dropped meanwhile.
        """
        self.executor = executor
        if not isinstance(executor, LoadsBesideRuns):
            raise NodeError(f"{executor.describe()} loads no subnets while others run")
        needed = sum(p.weights.size_bytes for p in self.deployment.phases if p.weights is not None)
        if needed > (room := room_bytes()):
            raise NodeError(
                f"the next subnets take {needed / 1e6:.0f} MB in addition to the present ones, "
                f"and the room left is {room / 1e6:.0f} MB"
            )
        others = engine_threads()
        try:
            given = self.deployment, graphs, executor, options
            load_phases(*given, self.phases, self._goes_on, _unreported)
            with contextlib.nullcontext() if loopback is None else loopback() as connection:
                self.seconds, measured = rehearse(
                    self.deployment, self.phases, connection, self._goes_on, _unreported, others
                )
            self.costs = costs if loopback is None else measured
            with self._lock:
                if self._is_dropped:
                    raise DroppedError("the deployment was dropped after its rehearsal")
                self._is_ready = True
        except BaseException:
            self.close()
            raise

    def serves(self, deployment: Deployment) -> bool:
        """Whether the phases are ready and are those of this deployment."""
        with self._lock:
            return self._is_ready and _phases_of(deployment) == _phases_of(self.deployment)

    def drop(self) -> bool:
        """Note that the phases are not wanted; return whether the executor thread has to close
        them, because they are ready."""
        with self._lock:
            self._is_dropped = True
            return self._is_ready

    def wait(self) -> None:
        """Wait until the thread that loads them has ended."""
        if self.thread is not None:
            self.thread.join()

    def close(self) -> None:
        """Close all phases that are loaded."""
        while self.phases:
            self.phases.pop().subnet.close()

    def _goes_on(self) -> bool:
        return not self._is_dropped


def _phases_of(deployment: Deployment) -> Deployment:
    """Return the deployment with only those parts that concern its phases."""
    return replace(deployment, epoch=0, dial=(), run="")


def _unreported(_done: int, _what: str) -> None:
    """Nobody waits for phases that are loaded ahead."""
