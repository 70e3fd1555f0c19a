"""Finds new plans during a run: after a loss, after the rehearsal, and while frames stream.

After a loss, the user's strategy may search for a fraction (`SEARCH_SHARE`) of `recovery_s`. If it
takes longer, finds no plan on these nodes, or needs packages that are not installed, the quick
dynamic program `sequential` replaces it. Before the first frame, a search that takes longer than
that is abandoned, and the present plan stays. Pins and memory limits hold.
"""

from __future__ import annotations

import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, wait
from dataclasses import replace
from functools import partial
from pathlib import Path

from cnn.errors import CnnError
from ga.auto import HURRIED
from ga.ranking import is_preferred
from launcher.core.events import PlanRequest, Rehearsed
from launcher.core.roll import Greeted, Roll
from launcher.errors import BadInputError, LauncherError, RunFailedError
from launcher.plan.batch_size import QUICK
from launcher.plan.boards import with_boards
from launcher.plan.engines import split_by_engine, with_declared_memory
from launcher.plan.files import certified
from launcher.plan.planner import Planner
from launcher.plan.reported_memory import reported_limits, within_limits
from launcher.plan.subnet_files import cut_subnets
from launcher.run.background import IsWanted
from launcher.run.runtime import CutPlan
from launcher.threads import in_thread
from nodes.protocol.messages import Deployed, Welcome
from partition.plan import Plan

SEARCH_SHARE = 0.5
"""The fraction of `recovery_s` for which the user's strategy may search."""

AS_PLANNED = 1.05
"""A plan whose period is longer than planned by this factor is not where the next run begins, but
competes with what that run finds."""

CLOSING_S = 5.0
"""How long the end of a run waits for a search to stop."""


class TooLateError(LauncherError):
    """The search took too long."""


class UnwantedError(LauncherError):
    """The plan is no longer needed: the run is over, or another plan was requested."""


class NotBetterError(LauncherError):
    """The best plan is not worth a change."""


def _check(is_wanted: IsWanted) -> None:
    if not is_wanted():
        raise UnwantedError("the plan is no longer needed")


class SearchLimit:
    """A `ProgressDisplay` that shows nothing and stops a search by an exception.

    It stops the search at `until_s` of the monotonic clock, and when its plan is no longer needed.
    """

    def __init__(self, until_s: float, is_wanted: IsWanted) -> None:
        self._until_s = until_s
        self._is_wanted = is_wanted

    def __enter__(self) -> SearchLimit:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def name_run(self, run: str) -> None:
        """See `launcher.progress.ProgressDisplay`."""

    def say(self, text: str, level: str = "info", nodes: Sequence[str] = ()) -> None:
        """See `launcher.progress.ProgressDisplay`."""

    def update(self, stage: str, done: int, total: int | None, note: str = "") -> None:  # noqa: ARG002
        """See `launcher.progress.ProgressDisplay`; raises `TooLateError`, `UnwantedError`."""
        _check(self._is_wanted)
        if time.monotonic() > self._until_s:
            raise TooLateError("the search took too long")


class Replanner:
    """Makes plans by a planner, and writes their subnets."""

    def __init__(
        self, planner: Planner, folder: Path, say: Callable[[str], None] = lambda _: None
    ) -> None:
        """`say` receives a sentence with the rate that a rehearsed plan is expected to reach."""
        self._say = say
        self._announcing: list[Future[None]] = []
        self._planner = planner
        self._folder = folder
        self._lock = threading.Lock()
        self._knowing = threading.Lock()
        self._count = 0
        self._newcomers: set[str] = set()
        self._passing: Plan | None = None
        """The last plan for nodes that other programs make slow; later runs do not use it."""
        self._is_over = threading.Event()
        self.has_searched = False
        """Whether the search that follows a plan made in a hurry has ended; its plan is kept."""

    def learn(self, plan: Plan, rehearsed: Rehearsed) -> None:
        """Use the nodes' measurements of a plan's rehearsal from now on, and keep them for later
        runs. Measurements in the stream are only kept.
        """
        with self._knowing:
            planner = self._planner.after(plan, rehearsed.deployed)
            if not rehearsed.in_stream:
                self._planner = planner
        measured = plan, rehearsed.deployed, rehearsed.welcomes
        if rehearsed.in_stream:  # frames must not wait for the disk
            thread = in_thread(partial(self._remember, planner, *measured), "remembering")
        else:
            planner.remember(*measured)
            thread = in_thread(partial(self._announce, planner, plan), "announcing")
        self._announcing = [*(other for other in self._announcing if not other.done()), thread]

    def _remember(
        self,
        planner: Planner,
        plan: Plan,
        deployed: Mapping[str, Deployed],
        welcomes: Mapping[str, Welcome],
    ) -> None:
        try:
            planner.remember(plan, deployed, welcomes)
            if (
                not self.has_searched and plan is not self._passing
            ):  # the next run need not search before its first frame
                others = {n: each for n, each in planner.learned.items() if n not in welcomes}
                later = replace(planner, learned=others).remembering(welcomes)
                problem = later.problem([device.name for device in plan.devices])
                measured_s = later.made_again(problem, plan).period_s
                as_planned = measured_s < AS_PLANNED * plan.period_s
                if as_planned or plan.strategy == HURRIED:
                    later.keep(problem, plan, as_planned=as_planned)
        except BaseException as error:  # noqa: BLE001 - later runs begin with the rehearsed times
            self._say(f"the times of phases in the stream could not be saved: {error}")

    def _announce(self, planner: Planner, plan: Plan) -> None:
        """Say which rate a plan is expected to reach, in a thread: the run must not wait for it."""
        try:
            problem = planner.problem([device.name for device in plan.devices])
            expected = planner.made_again(problem, plan)
        except BaseException:  # noqa: BLE001 - such as a pin to a lost node; the sentence is missing
            return
        self._say(f"{1 / expected.frame_s:.2f} frames/s expected, by the rehearsal")

    @property
    def planner(self) -> Planner:
        """The planner, with what was learned."""
        return self._planner

    def close(self) -> None:
        """Stop a search and wait for subnets being written: the run's folder will be deleted."""
        self._is_over.set()
        wait(self._announcing)
        if self._lock.acquire(timeout=CLOSING_S):
            self._lock.release()

    def __call__(
        self,
        request: PlanRequest,
        to_beat: Plan | None = None,
        is_wanted: IsWanted = lambda: True,
    ) -> CutPlan:
        """Find a plan and write its subnets (see `launcher.run.runtime.Replan`).

        Raises `NotBetterError` if it is not enough faster than `to_beat`, and other errors of
        `LauncherError` if there is no plan.
        """

        def is_needed() -> bool:
            return is_wanted() and not self._is_over.is_set()

        with self._lock:
            _check(is_needed)
            self._count += 1
            folder = self._folder / f"replanned-{self._count}"
            try:
                self._note(request.newcomers)
                planner = self._planner
                if request.slower:  # other programs make nodes slow, and may have ended by then
                    planner = replace(planner, store=None)
                plan = self._plan(planner, request, to_beat, is_needed)
                if request.slower:
                    self._passing = plan
                gain, note = 1.0, ""
                if to_beat is not None:
                    gain = _gain(planner, plan, to_beat, request)
                    note = _moved(to_beat, plan)
                _check(is_needed)
                certified(plan, planner.cluster.model)
                model = planner.planned
                subnets = cut_subnets(model, plan, folder, lambda _done, _total: None)
            except (CnnError, OSError) as error:
                raise RunFailedError(str(error)) from error
            return CutPlan(plan, subnets, gain, note)

    def _note(self, newcomers: Mapping[str, Welcome]) -> None:
        """Use the reports of boards that were absent when the first plan was made."""
        unknown = {node: w for node, w in newcomers.items() if node not in self._newcomers}
        self._newcomers |= unknown.keys()
        cluster, facts = self._planner.cluster, self._planner.facts
        roll = Roll({node: Greeted("", welcome) for node, welcome in unknown.items()})
        facts = with_boards(facts, roll, facts.nodes(cluster))
        limits = reported_limits(facts.nodes(cluster), unknown)
        choices, _ = split_by_engine(cluster, unknown, facts)
        facts = within_limits(with_declared_memory(facts, choices, unknown), limits)
        with self._knowing:
            self._planner = replace(self._planner, facts=facts)

    def _plan(
        self, planner: Planner, request: PlanRequest, to_beat: Plan | None, is_wanted: IsWanted
    ) -> Plan:
        endless = SearchLimit(float("inf"), is_wanted)
        until_s = time.monotonic() + SEARCH_SHARE * planner.cluster.config.recovery.recovery_s
        if to_beat is not None and request.effort != "bounded":
            problem = planner.problem(_without_standby(planner, request.nodes, to_beat))
            is_quick = request.effort == "quick"  # unless the user's strategy is a long search
            limit = SearchLimit(until_s, is_wanted) if is_quick else endless
            found = (
                replace(planner, hurries=is_quick, searches_again=True).find(problem, limit).plan
            )
            if is_quick and (
                earlier := planner.streamed_before(problem, limit, found)
            ):  # the first estimate of another plan may have been too good
                found = earlier.plan
            if request.effort == "whole":  # kept also if the run ends before a change to it
                is_better = is_preferred(problem, found, planner.made_again(problem, to_beat))
                planner.keep(problem, found if is_better else to_beat)
                self.has_searched = True
            return found
        failed: LauncherError | None = None
        problem = planner.problem(request.nodes, request.slower)
        try:
            return planner.find(problem, SearchLimit(until_s, is_wanted)).plan
        except TooLateError:
            pass
        except BadInputError as error:
            failed = error
        except ModuleNotFoundError:  # the extra `run` has no search; `sequential` needs none
            pass
        try:
            return planner.find(problem, endless, planner.strategy(problem, QUICK)).plan
        except BadInputError as error:
            raise failed or error from error


def _gain(planner: Planner, plan: Plan, to_beat: Plan, request: PlanRequest) -> float:
    """Return how many times as fast as `to_beat` a plan is; both are foreseen in the same way.

    Where frames stream faster by `to_beat` than is foreseen, it is their measured pace that counts.
    Raises `NotBetterError` if that is not enough. After a whole search, the preference of the
    problem's objective decides.
    """
    nodes = list(dict.fromkeys(d.name for d in (*to_beat.devices, *plan.devices)))
    problem = planner.problem(nodes, request.slower)
    before = planner.made_again(problem, to_beat)
    gain = min(before.frame_s, request.period_s or math.inf) / plan.frame_s
    if request.effort == "whole":
        if dict(plan.assignment) == dict(to_beat.assignment) or not is_preferred(
            problem, planner.made_again(problem, plan), before
        ):
            raise NotBetterError("the search has found nothing better")
    elif gain < request.least_gain:
        raise NotBetterError(
            f"the best plan that was found is {gain:.2f} times as fast as this one, but a "
            f"change needs {request.least_gain:g} times"
        )
    return gain


def _without_standby(planner: Planner, nodes: Sequence[str], used: Plan) -> list[str]:
    """Return `nodes` without those that stand by, unless the plan uses them already."""
    standby = {node.name for node in planner.cluster.config.nodes if node.standby}
    known = {device.name for device in used.devices}
    return [node for node in nodes if node not in standby or node in known]


def _moved(before: Plan, after: Plan) -> str:
    """Say how many layers change their node, and which nodes gain most."""
    if before.rewrites != after.rewrites:
        used = dict.fromkeys(phase.device for phase in after.phases)
        return f"layers are divided differently, and run on {', '.join(used)}"
    moved = Counter(
        node for layer, node in after.assignment.items() if before.assignment[layer] != node
    )
    gaining = ", ".join(node for node, _ in moved.most_common(2))
    return f"{moved.total()} layers move, most of them to {gaining}" if moved else "as before"
