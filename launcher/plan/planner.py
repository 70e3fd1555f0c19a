"""Makes plans for a cluster: `Planner` formulates the problem, and a strategy solves it.

All commands, sweeps and replanning use `Planner`. Its `cluster` is what the user wrote; its profile
and its `facts` are what was measured or reported. Strategies have the parameters that the section
`ga` of `cluster.yaml` gives them. If a profile has a choice for the problem, it replaces the
search.
"""

from __future__ import annotations

import fnmatch
import hashlib
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib.metadata import version
from statistics import median
from types import MappingProxyType

from cnn.errors import CnnError
from cnn.model import Model
from cnn.network import Network
from cnn.rewrite.rewrites import Rewrite
from ga.auto import ALONE_MARGIN, HURRIED, Auto
from ga.ranking import is_preferred
from ga.strategies import find_strategy
from launcher.config.load import Cluster
from launcher.config.mistakes import suggestion
from launcher.config.node import NodeConfig
from launcher.config.tuning import GaConfig
from launcher.config.units import AUTO_BATCH
from launcher.errors import BadInputError, LacksRoomError
from launcher.plan.batch_size import BatchChoice, check_curves, check_latency, choose, fill_s
from launcher.plan.devices import NO_FACTS, Facts, devices_of
from launcher.plan.files import SavedPlan, check_assignment, check_made_for
from launcher.plan.machines import THIS_MACHINE
from launcher.plan.profile.choice import Decided, MeasuredPlans, made_for, measured_plan
from launcher.plan.profile.file import KeptPlan, NodeIdentity, NodeTimes, ProfileCache, ProfileFile
from launcher.plan.profile.links import identities, kept_links
from launcher.plan.profile.use import engine_reasons, profile_file, profiled, with_own_watts
from launcher.plan.profile.use import facts_of as facts_of_profile
from launcher.plan.settings import read_model, wire_of
from launcher.progress import ProgressDisplay
from launcher.quantities import counted, megabytes
from nodes.protocol.messages import Deployed, Welcome
from partition.alone import fullest_bytes, plan_alone
from partition.devices import Device
from partition.errors import DoesNotFitError, PartitionError
from partition.measured.profiles import (
    LinkProfile,
    NodeProfile,
    Profile,
    measured_factor,
    measured_part,
    pooled,
    sharing,
)
from partition.objective import PERIOD_FIRST, WITHIN
from partition.plan import Plan
from partition.planner import Planned, find_plan, foreseen_plan
from partition.prediction.foreseen import RunFacts
from partition.pricing.compute_time import slowed
from partition.strategies.base import Problem, SearchProgress, Solution, Strategy

MARGIN = 0.5
"""Unless the user gives `within` or a profile, this part of it is kept for the errors of predicted
periods."""

ODD = 1.3
"""Boards that are alike share their measurements unless they differ by this factor from the usual
one: they took that much longer, or shorter, than their figures say."""

MADE_EARLIER = "; made in an earlier run"

WORTH_KEEPING_S = 1.0
"""A plan that was found within this time is not kept: another search finds it as quickly."""


@dataclass(frozen=True)
class Planner:
    """Makes plans of a model for a cluster.

    `model` is that of a single frame. `file` is the profile that the cluster names, if it names
    one. `batch` is the number of frames that nodes compute at once, after it was chosen for `batch:
    auto`. `learned` has measurements of nodes that are newer than the profile's, and `links` those
    of links, if there is no profile. `store` keeps plans and measurements; the planner uses kept
    plans unless it `searches_again`. A planner that `hurries` takes about a second if the strategy
    is `auto`.
    """

    cluster: Cluster
    model: Model
    file: ProfileFile | None = None
    facts: Facts = NO_FACTS
    batch: int | None = None
    learned: Mapping[str, NodeProfile] = field(default_factory=dict)
    links: tuple[LinkProfile, ...] = ()
    store: ProfileCache | None = None
    searches_again: bool = False
    hurries: bool = False

    @cached_property
    def planned(self) -> Model:
        """The model in the batches of plans, or of single frames until their number is chosen.

        Raises `BadInputError`, which names the layer, if it cannot compute several frames at once.
        """
        batch = self.batch or self.cluster.config.batch
        try:
            return self.model if batch == AUTO_BATCH else self.model.in_batches(batch)
        except CnnError as error:
            raise self.cluster.error(("batch",), str(error)) from error

    @cached_property
    def profile(self) -> Profile | None:
        """The measurements of firings in the batches of plans; None if there are none."""
        known = Profile({}, self.links) if self.file is None else self.file.profile()
        known = replace(known, nodes={**known.nodes, **self._shared()})
        is_empty = not (known.nodes or known.links)
        return None if is_empty else known.in_batches(self.planned.network.batch)

    def _shared(self) -> dict[str, NodeProfile]:
        """Return what was learned of nodes; those whose boards are alike share it.

        A node that took `ODD` times as long as is usual in its group, or as short, does not: its
        board is throttled, or another program uses it. With a profile that the user names, all
        nodes keep their own times.
        """
        found = dict(self.learned)
        if self.file is not None:
            return found
        network = self.planned.network
        for group in self.facts.alike:
            learned = {name: self.learned[name] for name in group if name in self.learned}
            devices = devices_of(self.cluster, group, self.facts)
            slower = {
                name: factor
                for name, each in learned.items()
                if (factor := measured_factor(each, network, devices[0])) is not None
            }
            if not slower:
                continue
            usual = median(slower.values())
            odd = {name for name, each in slower.items() if not usual / ODD <= each <= usual * ODD}
            usual_ones = [each for name, each in learned.items() if name not in odd]
            if not usual_ones:
                continue
            shared = pooled(usual_ones)
            for name in group:
                if name not in odd:
                    found[name] = sharing(learned.get(name, NodeProfile()), shared)
        return found

    def remembering(
        self, welcomes: Mapping[str, Welcome], say: Callable[[str], None] = lambda _: None
    ) -> Planner:
        """Return the planner with the measurements of the model that profiling and earlier runs
        made there, and of the links.

        A node whose speed the user states keeps that. A profile that the user names replaces all.
        `say` receives a sentence for each node whose board has another speed now.
        """
        if self.store is None or self.file is not None:
            return self
        stated = {node.name for node in self.nodes if node.macs_per_s is not None}
        who = identities(self.nodes, welcomes)
        known = {
            node: times
            for node, each in who.items()
            if node not in stated and (times := self._kept_of(node, each, self.store, say))
        }
        links = () if self.searches_again else kept_links(who, self.store)  # measured again
        return replace(self, learned={**known, **self.learned}, links=links)

    @property
    def begins_with(self) -> str:
        """Say which earlier measurements are used, as a sentence; empty if none are."""
        known = [f"{node} ({_extent(each)})" for node, each in self.learned.items()]
        known += [counted(len(self.links), "link")] if self.links else []
        return f"begins with what was measured earlier: {', '.join(known)}" if known else ""

    def remember(
        self, plan: Plan, deployed: Mapping[str, Deployed], welcomes: Mapping[str, Welcome]
    ) -> None:
        """Keep the nodes' measurements of a plan's rehearsal.

        Later runs begin with them. The nodes have sent these `welcomes`.
        """
        if self.store is None:
            return
        with suppress(BadInputError):  # without a cache, every run begins with estimates
            for node, who in identities(self.nodes, welcomes).items():
                if node in deployed:
                    known = self._kept_of(node, who, self.store) or NodeProfile()
                    times = _rehearsed(known, plan, node, deployed[node])
                    data = NodeTimes.of(times, self._mac_s(node))
                    self.store.keep_node(self.model.digest, who, data)

    def _kept_of(
        self,
        node: str,
        who: NodeIdentity,
        store: ProfileCache,
        say: Callable[[str], None] = lambda _: None,
    ) -> NodeProfile | None:
        """Return the kept measurements of a node, if its board is about as fast as it was."""
        times, mac_s = (
            store.node(self.model.digest, who, self.model.network.layer),
            self._mac_s(node),
        )
        if times is None:
            return None
        if times.hold(mac_s):
            return times.profile()
        slower = (mac_s or 0.0) / (times.mac_s or 1.0)
        how = f"{max(slower, 1 / slower):.3g} times as {'slow' if slower > 1 else 'fast'}"
        say(
            f"node {node} has become {how} since it was measured; its earlier measurements are "
            "ignored"
        )
        return None

    def _mac_s(self, node: str) -> float | None:
        figures = self.facts.figures.get(node)
        return None if figures is None else figures.dense_s_per_mac

    def after(self, plan: Plan, deployed: Mapping[str, Deployed]) -> Planner:
        """Return the planner with the nodes' measurements of a plan's rehearsal."""
        known = {} if self.file is None else self.file.profile().nodes
        found = {
            node: _rehearsed(
                self.learned.get(node) or known.get(node) or NodeProfile(), plan, node, each
            )
            for node, each in deployed.items()
        }
        return replace(self, learned={**self.learned, **found})

    @property
    def nodes(self) -> tuple[NodeConfig, ...]:
        """The nodes of `cluster.yaml`, completed by the facts."""
        return self.facts.nodes(self.cluster)

    @property
    def reasons(self) -> dict[str, str]:
        """Why nodes compute with their engine, by node, where measurements chose it."""
        return {} if self.file is None else engine_reasons(self.nodes, self.file)

    def problem(
        self,
        nodes: Collection[str] | None = None,
        slower: Mapping[str, float] = MappingProxyType({}),
        measured: Profile | None = None,
    ) -> Problem:
        """Return the partitioning problem of the cluster; raises `BadInputError`.

        The devices are the nodes called `nodes`, or all that do not stand by. Times are `measured`,
        or else those of the profile, or else estimates; those of a node in `slower` are multiplied
        by its factor.
        """
        cluster, config, model = self.cluster, self.cluster.config, self.planned
        profile = self.profile if measured is None else measured
        is_profiled = self.file is not None or measured is not None
        devices = devices_of(cluster, nodes, self.facts)
        devices, layer_s = profiled(cluster, model.network, devices, profile)
        devices, layer_s = slowed(devices, layer_s, slower)
        pins = pinned_layers(cluster, model.network)
        if nodes is not None:
            _check_pins_to(nodes, pins)
        layer_w = {} if profile is None else profile.layer_w(with_own_watts(cluster))
        if slower:  # a profile's times of phases and copies do not include slowdowns
            profile = None
        with self._no_plan():
            return Problem(
                model.network,
                devices,
                pins,
                config.seed,
                slack_frames=config.slack_frames,
                objective=config.objective,
                within=WITHIN if config.within is None else config.within,
                within_margin=MARGIN if config.within is None and not is_profiled else 0.0,
                model=model,
                layer_s=layer_s,
                copies={} if profile is None else profile.copies(),
                wire=wire_of(cluster),
                layer_w=layer_w,
                profile=profile,
                run=RunFacts(
                    config.run.order, THIS_MACHINE, {node.name: node.cpus for node in config.nodes}
                ),
            )

    def strategy(self, problem: Problem, name: str | None = None) -> Strategy:
        """Return the strategy called `name`, or the cluster's, with the cluster's parameters.

        If the profile has a choice for exactly this problem, return that choice instead. Raises
        `PartitionError` if there is no such name.
        """
        name = name or self.cluster.config.strategy
        choice = None if self.file is None else self.file.choice
        if choice is not None and choice.made_for == self.question(problem, name):
            return Decided(choice)
        return configured(self.cluster.config.ga, name)

    def question(self, problem: Problem, name: str) -> str:
        """Return a digest of all that a choice by measurements depends on, for strategy `name`."""
        limits = Facts(memory=self.facts.memory)
        return self._digest(problem, name, devices_of(self.cluster, facts=limits))

    def _digest(self, problem: Problem, name: str, devices: Sequence[Device]) -> str:
        settings = self.cluster.config.ga.model_dump(exclude_none=True)
        return made_for(problem, name, devices, settings)

    def find(
        self, problem: Problem, progress: ProgressDisplay, strategy: Strategy | None = None
    ) -> Planned:
        """Search for a plan by a strategy, or by that of the cluster; raises `BadInputError`.

        A kept plan replaces a search by the cluster's strategy.
        """
        if strategy is None and (kept := self._kept(problem)) is not None:
            with suppress(PartitionError):  # the plan does not fit, or can no longer be read
                found = search(problem, kept, progress)
                if not self._loses_to_one(problem, found.plan):
                    origin = "run" if found.plan.strategy == HURRIED else "search"
                    progress.say(
                        f"the plan is that of an earlier {origin}; --search again makes another"
                    )
                    return found
        began_s, is_own = time.monotonic(), strategy is None
        with self._no_plan():
            strategy = strategy or self.strategy(problem)
            if self.hurries and isinstance(strategy, Auto):
                strategy = Auto.in_a_hurry()
            found = search(problem, strategy, progress)
        if is_own and self.hurries:
            return self.streamed_before(problem, progress, found.plan) or found
        if is_own and time.monotonic() - began_s > WORTH_KEEPING_S:
            self.keep(problem, found.plan)
        return found

    def plan(
        self,
        progress: ProgressDisplay,
        nodes: Collection[str] | None = None,
        *,
        strategy: str | None = None,
    ) -> Plan:
        """Return the plan that the cluster's strategy, or another one, finds for these nodes.

        Raises `BadInputError` if there is none.
        """
        problem, by = self.problem(nodes), None
        if strategy is not None:
            with self._no_plan():
                by = self.strategy(problem, strategy)
        return self.find(problem, progress, by).plan

    def _kept(self, problem: Problem) -> Strategy | None:
        """Return the strategy that repeats what an earlier search has found for this problem."""
        if self.store is None or self.searches_again:
            return None
        if isinstance(self.strategy(problem), Decided):  # the choice of a profile takes precedence
            return None
        kept = self.store.plan(self._kept_for(problem))
        if kept is None or not kept.as_planned or not kept.holds(facts_of(problem)):
            return None
        if kept.choice.strategy == HURRIED and not self.hurries:
            return None
        if kept.choice.strategy == HURRIED:
            return Decided(kept.choice, MADE_EARLIER)
        return Decided(kept.choice, "; found by an earlier search")

    def streamed_before(
        self, problem: Problem, progress: ProgressDisplay, found: Plan
    ) -> Planned | None:
        """Return the plan with which an earlier run streamed, where the objective prefers it to
        `found` with what has been measured since; else None.
        """
        if self.store is None or self.searches_again:
            return None
        kept = self.store.plan(self._kept_for(problem))
        if kept is None or kept.choice.strategy != HURRIED:
            return None
        with suppress(PartitionError):  # it does not fit, or can no longer be read
            earlier = search(problem, Decided(kept.choice, MADE_EARLIER), progress)
            if is_preferred(problem, earlier.plan, found):
                return earlier
        return None

    def _loses_to_one(self, problem: Problem, plan: Plan) -> bool:
        """Whether `auto` would use one device alone with the present times instead of `plan`."""
        if self.cluster.config.strategy != Auto.name or problem.objective not in PERIOD_FIRST:
            return False
        if problem.pins or len({phase.device for phase in plan.phases}) == 1:
            return False
        alone = plan_alone(problem)
        room = {device.name: device.memory_bytes for device in problem.devices}
        most_bytes = room[alone.phases[0].device]
        has_room = most_bytes is None or fullest_bytes(alone) <= most_bytes
        return has_room and alone.period_s * (1 + ALONE_MARGIN) < plan.period_s

    def keep(self, problem: Problem, plan: Plan, *, as_planned: bool = True) -> None:
        """Keep the plan that the cluster's strategy has found, for later runs.

        One that was found in a hurry is only for runs that hurry too. For `as_planned`, see
        `KeptPlan`.
        """
        strategy = self.cluster.config.strategy
        if self.store is None or plan.strategy not in (strategy, HURRIED):
            return
        question = self._kept_for(problem)
        plans = (measured_plan(plan, plan.period_s),)
        choice = MeasuredPlans(made_for=question, strategy=plan.strategy, plans=plans)
        with suppress(BadInputError):  # without a cache, every run searches
            kept = KeptPlan(choice=choice, facts=facts_of(problem), as_planned=as_planned)
            self.store.keep_plan(question, kept)

    def _kept_for(self, problem: Problem) -> str:
        """Return a digest of what a plan depends on except for facts: `KeptPlan.holds` compares
        times, and a plan that no longer fits is refused.
        """
        written = devices_of(self.cluster, [device.name for device in problem.devices])
        question = self._digest(problem, self.cluster.config.strategy, written)
        parts = (question, self.planned.digest, version("csdf-edge"))
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()

    def with_batch(
        self,
        progress: ProgressDisplay,
        nodes: Collection[str] | None = None,
        *,
        is_pushed: bool,
    ) -> tuple[Planner, Plan, BatchChoice | None]:
        """Return the planner for the chosen batch, a plan that meets the bound on latency, and how
        the batch was chosen (None if the user chose it).

        For `is_pushed` see `fill_s`. Raises `BadInputError`.
        """
        cluster, fill = self.cluster, fill_s(self.cluster, is_pushed=is_pushed)
        if cluster.config.batch != AUTO_BATCH:
            plan = self.plan(progress, nodes)
            check_latency(cluster, plan, fill)
            return self, plan, None

        def in_batches(batch: int, strategy: str | None) -> Plan:
            return replace(self, batch=batch).plan(progress, nodes, strategy=strategy)

        plan, choice = choose(cluster, in_batches, fill)
        progress.say(f"batches of {choice.batch}: {choice.reason}")
        return replace(self, batch=choice.batch), plan, choice

    def made_again(self, problem: Problem, plan: Plan) -> Plan:
        """Return the plan of the same assignment for another problem of the same model."""
        solution = Solution(
            plan.assignment, plan.explanation, plan.rewrites, self._rewritten(plan.rewrites)
        )
        return foreseen_plan(problem, solution, plan.strategy)

    def alone(self, nodes: Collection[str], plan: Plan) -> tuple[Plan, str]:
        """Return the plan of the best of these nodes alone, and a clause.

        If one node alone is faster than `plan`, the clause says why other nodes are used and what
        the user can do about it. Otherwise it is empty.
        """
        problem = self.problem(nodes)
        alone = plan_alone(problem)
        used = {phase.device for phase in plan.phases}
        is_slower = alone.frame_s < plan.frame_s and len(used) > 1
        return alone, self._why_not_alone(problem, alone) if is_slower else ""

    def _why_not_alone(self, problem: Problem, alone: Plan) -> str:
        """Return why a plan that is slower than one node alone was made, and the remedy."""
        node, strategy = alone.phases[0].device, self.cluster.config.strategy
        room = {device.name: device.memory_bytes for device in problem.devices}[node]
        if problem.pins:
            return "`pins` place layers elsewhere: without them, `auto` would use it alone"
        if room is not None and fullest_bytes(alone) > room:
            return f"it may hold only {megabytes(room)}, so the others are needed"
        if strategy != Auto.name:
            return f"`strategy: {strategy}` uses the other nodes; `auto` would not"
        if self.file is not None:
            return (
                "the profile's times are not those of this run: measure again with csdf-edge "
                "partition profile"
            )
        stated = [each.name for each in self.nodes if each.macs_per_s is not None]
        if stated:
            return f"the plan was made with the `macs_per_s` of {', '.join(stated)}: leave it out"
        return "the plan was made with other times; the next run begins with the measured ones"

    def saved(self, saved: SavedPlan, measured: Profile | None = None) -> Plan:
        """Make a plan from a saved and perhaps edited assignment.

        The assigned layers are those that the saved rewrites make from the model's. For `measured`
        see `problem`. Raises `BadInputError`.
        """
        model = self.planned
        nodes = [node.name for node in self.cluster.config.nodes if not node.standby]
        check_made_for(saved, model.network.name, model.digest, nodes)
        try:
            network = self._rewritten(saved.rewrites)
        except CnnError as error:
            raise BadInputError(f"{saved.path}, rewrites: {error}") from error
        check_assignment(saved, network or model.network, nodes)
        explanation = saved.explanation
        if saved.edited:
            explanation = f"edited by hand in {saved.path.name}; before: {explanation}"
        solution = Solution(
            saved.assignment,
            explanation,
            saved.rewrites,
            network,
            optimal=None if saved.edited else saved.optimal,
            gap=None if saved.edited else saved.gap,
        )
        problem = self.problem(measured=measured)
        try:
            return foreseen_plan(problem, solution, saved.strategy)
        except PartitionError as error:
            raise BadInputError(f"{saved.path}: {error}") from error

    def _rewritten(self, rewrites: Sequence[Rewrite]) -> Network | None:
        return self.planned.rewritten(rewrites).network if rewrites else None

    @contextmanager
    def _no_plan(self) -> Iterator[None]:
        """Turn errors of strategies into errors that name the user's file."""
        try:
            yield
        except PartitionError as error:
            kind = LacksRoomError if isinstance(error, DoesNotFitError) else BadInputError
            raise kind(f"{self.cluster.source.name}: {error}") from error


def _rehearsed(known: NodeProfile, plan: Plan, node: str, found: Deployed) -> NodeProfile:
    return known.with_rehearsal(plan, node, found.phase_s, found.message_s, found.byte_s)


def _extent(measured: NodeProfile) -> str:
    """Return a text that says what was measured on a node."""
    parts = [counted(len(measured.layer_s), "layer")] if measured.layer_s else []
    parts += [counted(len(measured.subnets), "subnet")] if measured.subnets else []
    parts += ["a copy"] if measured.batches else []
    return ", ".join(parts) or "batches"


def facts_of(problem: Problem) -> dict[str, float]:
    """Return the times that a search for the problem uses: the seconds of a run of all layers on
    each device, and those of a byte of its wire."""
    totals = problem.costs.layer_s.sum(axis=0)
    found = {}
    for device, total_s in zip(problem.devices, totals, strict=True):
        found[device.name] = float(total_s) + device.run_s
        found[f"{device.name}'s wire"] = device.wire_s_per_byte + 1 / device.link_bytes_per_s
    return found


def watched(problem: Problem, strategy: Strategy, progress: ProgressDisplay) -> Problem:
    """Return `problem` such that a search by the strategy shows its progress."""

    def show(search: SearchProgress) -> None:
        progress.update(f"searching ({strategy.name})", search.done, search.total, search.best)

    return replace(problem, on_progress=show)


def search(problem: Problem, strategy: Strategy, progress: ProgressDisplay) -> Planned:
    """Search for a plan by a strategy, and show its progress; raises `PartitionError`."""
    found = find_plan(watched(problem, strategy, progress), strategy)
    if problem.profile is not None:
        progress.say(measured_part(found.plan, problem.profile))
    return found


def read_planner(cluster: Cluster, progress: ProgressDisplay) -> Planner:
    """Read the model and the profile that a cluster names; raises `BadInputError`."""
    progress.say("reading " + ", ".join(model.path for model in cluster.config.models))
    model = read_model(cluster)
    file = profile_file(cluster, model)
    check_curves(cluster, file)
    return Planner(cluster, model, file, facts_of_profile(file))


def pinned_layers(cluster: Cluster, network: Network) -> dict[str, str]:
    """Return layer → node for all pins; an exact name takes precedence over a glob.

    Raises `BadInputError` for a pattern that no layer matches, and for a layer that two patterns
    pin to different nodes.
    """
    pins: dict[str, tuple[str, str]] = {}
    for pattern, node in cluster.config.pins.items():
        names = [layer.name for layer in network.layers]
        exact = pattern in network.layer
        found = [pattern] if exact else fnmatch.filter(names, pattern)
        if not found:
            raise cluster.error(
                ("pins", pattern),
                f"no layer of {network.name} is called {pattern!r} or matches it"
                + suggestion(pattern, names),
            )
        for layer in found:
            earlier, other = pins.get(layer, (node, pattern))
            if earlier != node and not exact and other not in network.layer:
                raise cluster.error(
                    ("pins", pattern),
                    f"pins layer {layer!r} to {node!r}, but {other!r} pins it to {earlier!r}; "
                    "make the two patterns disjoint",
                )
            if exact or other not in network.layer:
                pins[layer] = (node, pattern)
    return {layer: node for layer, (node, _) in pins.items()}


def _check_pins_to(nodes: Collection[str], pins: Mapping[str, str]) -> None:
    lost = {layer: node for layer, node in pins.items() if node not in nodes}
    if lost:
        layer, node = next(iter(lost.items()))
        more = f" (and {len(lost) - 1} more)" if len(lost) > 1 else ""
        raise BadInputError(
            f"layer {layer!r}{more} is pinned to node {node!r}, which is lost; without the pin "
            "another node could compute it"
        )


def configured(ga: GaConfig, name: str) -> Strategy:
    """Return the strategy called `name` with the parameters in `ga`.

    Raises `PartitionError` if there is no such name.
    """
    sections = ga.sections()
    if not sections:
        return find_strategy(name)
    from ga.sweep.spaces import tuned  # noqa: PLC0415 - slow to import

    return tuned(name, sections)
