"""Measures a model on the nodes of a cluster and makes the profile (`csdf-edge partition profile`).

Only what the cache does not have is measured. Where `cluster.yaml` leaves a node's engine open, its
agent's engines are compared, and the best one is used for everything else
(`launcher.plan.profile.engines`). Layers come first, one by one and node after node, so that nodes
of one machine do not disturb each other; then firings of several frames, if nodes are to compute
batches; then links between machines; then subnets as the engine fuses them. These are the subnets
of a given plan, or of the best few plans that the cluster's strategy finds with the times that are
known by then. Searching and measuring are repeated in a few rounds, because the choice depends on
the times of fused subnets (`launcher.plan.profile.choice`).
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace

from cnn.errors import CnnError
from cnn.model import Model
from launcher.config.load import Cluster
from launcher.config.units import AUTO_BATCH
from launcher.core.roll import Roll
from launcher.errors import BadInputError, LauncherError
from launcher.plan.batch_size import BatchChoice, choose, fill_s
from launcher.plan.boards import figures_wanted, with_boards
from launcher.plan.devices import Facts, devices_of, nodes_of
from launcher.plan.engines import engines_of, with_declared_memory
from launcher.plan.files import SavedPlan
from launcher.plan.planner import Planner, configured, watched
from launcher.plan.profile.bench import Bench, bench_options, whole_copy
from launcher.plan.profile.choice import (
    MeasuredPlans,
    Shape,
    candidates,
    measured_plan,
    ranked,
    shape,
)
from launcher.plan.profile.engines import EngineComparison
from launcher.plan.profile.file import (
    ComparedEngines,
    LinkEntry,
    NodeEntry,
    NodeIdentity,
    NodeTimes,
    ProfileCache,
    ProfileFile,
)
from launcher.plan.profile.links import identities, kept_links, measure_machines
from launcher.plan.profile.power import device_watts, idle_watts, layer_watts
from launcher.progress import ProgressDisplay
from launcher.run.runner import Runtime, real_runtime
from launcher.scratch import scratch_folder
from nodes.core.engines import AUTO
from partition.devices import Device
from partition.errors import DoesNotFitError
from partition.measured.profiles import (
    BatchTimes,
    LinkProfile,
    NodeProfile,
    Profile,
    fused_phases,
    subnet_time,
)
from partition.plan import Plan
from partition.pricing.memory_budget import START_UP_BYTES

ROUNDS = (3, 1, 1)
"""The most new plans that are measured after each search."""

NOT_MEASURED = "watts were not measured; those of cluster.yaml are used"

LADDER = (2, 4, 8, 16, 32)
"""The numbers of frames per firing that are measured for `batch: auto`."""

FLAT = 0.99
"""A firing of more frames that takes at least this part of the time per frame ends the ladder once
`FEWEST_RUNGS` are measured: larger batches follow the line through the last two."""

FEWEST_RUNGS = 3

FIRINGS = 10
"""About how often each layer runs alone, and in a whole copy, to measure a firing."""

ANY_HOST = ""
"""The host of a kind of nodes that may be on any machine."""

START_S = 60.0
"""The shortest timeout for agents that `launch` starts here, because all start at once."""

MOST_S = 120.0
"""Seconds after which no further plan is measured."""


@dataclass
class NewMeasurements:
    """Numbers of measurements that were made now and not found in the cache."""

    layers: int = 0
    copies: int = 0
    batches: int = 0
    links: int = 0
    subnets: int = 0


@dataclass
class Profiling:
    """Measures one profile; the cache is used unless everything is to be measured `again`.

    Nodes of one kind share their measurements (`kinds`). All is kept for each node by itself, where
    runs without this profile find it.
    """

    planner: Planner
    bench: Bench
    roll: Roll
    cache: ProfileCache
    again: bool
    most_s: float = MOST_S
    alike: bool = False
    engines: Mapping[str, ComparedEngines] = field(default_factory=dict)
    renew: Callable[[], Bench] = field(kw_only=True)
    """Restarts the agents after a failure, and returns a new bench."""
    taken: NewMeasurements = field(default_factory=NewMeasurements)
    choice: BatchChoice | None = None
    """How the number of frames in a batch was chosen, once it is, for `batch: auto`."""
    _identity: dict[str, NodeIdentity] = field(default_factory=dict)
    _kind: dict[str, NodeIdentity] = field(default_factory=dict)
    _meter: dict[str, str] = field(default_factory=dict)
    _known: dict[NodeIdentity, NodeProfile] = field(default_factory=dict)

    def perform(self, saved: SavedPlan | None) -> tuple[ProfileFile, Plan]:
        """Measure, and return the profile and a plan that was made with it."""
        nodes, facts = self.planner.nodes, self.planner.facts
        welcomes = self.roll.welcomes
        choices = engines_of(self.planner.cluster, welcomes, facts)
        facts = with_declared_memory(facts, choices, welcomes)
        self.planner = replace(self.planner, facts=facts)
        self._identity = identities(nodes, welcomes)
        self._meter = {name: each.meter for name, each in welcomes.items() if each.meter}
        self._kind = kinds(self._identity, self.alike)
        self._measure_layers()
        self._measure_copies()
        self._measure_power()
        self._measure_batches()
        links = self._measure_links()
        if saved is not None:
            plan = self._measure_saved(saved, self._profile(links))
            return self._file(links), plan
        self._choose_batch(links)
        plan, choice = self._decide(links)
        return self._file(links, choice), plan

    @property
    def _model(self) -> Model:
        """The model of a single frame."""
        return self.planner.model

    def _devices(self, nodes: Collection[str] | None = None) -> tuple[Device, ...]:
        return devices_of(self.planner.cluster, nodes, self.planner.facts)

    def _profile(self, links: tuple[LinkProfile, ...] = ()) -> Profile:
        return Profile({name: self._known[who] for name, who in self._kind.items()}, links)

    def _batched(self, profile: Profile) -> Profile:
        """Return a profile for the batches of the plans that are measured."""
        return profile.in_batches(self.planner.planned.network.batch)

    def _keep(self, kind: NodeIdentity, found: NodeProfile) -> None:
        self._known[kind] = found
        for name, who in self._identity.items():
            if self._kind[name] == kind:
                times = NodeTimes.of(found, self._mac_s(name))
                self.cache.keep_node(self._model.digest, who, times)

    def _mac_s(self, name: str) -> float | None:
        figures = self.roll.figures.get(name)
        return None if figures is None else figures.dense_s_per_mac

    def _measure_layers(self) -> None:
        names = [layer.name for layer in self._model.network.layers]
        for name, who in {} if self.again else self._identity.items():
            times = self.cache.node(self._model.digest, who, names)
            if self._kind[name] in self._known or times is None:
                continue
            # without times of layers, only rehearsals of runs have been measured
            if times.layer_s and times.hold(self._mac_s(name)):
                self._keep(self._kind[name], times.profile())
        for device in self._devices([node.name for node in self.planner.nodes]):
            kind = self._kind[device.name]
            if kind in self._known:
                continue
            found = self.bench.layers(self._model, device, names)
            self.taken.layers += len(found.layer_s)
            self._keep(kind, found)

    def _measure_copies(self) -> None:
        on_machine = Counter(identity.host for identity in self._identity.values())
        devices = self._devices()
        idle_w: dict[str, float] = {}
        if any(d.name in self._meter and not self._has_watts(d.name) for d in devices):
            idle_w = idle_watts(self.bench, self.planner.nodes)
        for device in devices:
            kind = self._kind[device.name]
            known = self._known[kind]
            if known.batches and (device.name not in idle_w or self._has_watts(device.name)):
                continue
            layers_s = sum(known.layer_s.values())
            batches, whole, stats = self.bench.copy(self._model, device, layers_s)
            if batches and stats is not None:
                self.taken.copies += 1
                sharing = on_machine[self._identity[device.name].host]
                known = replace(known, batches=batches).with_subnets(whole)
                if device.name in idle_w:
                    busy, idle = device_watts(stats, idle_w[device.name], sharing)
                    known = replace(known, busy_w=busy, idle_w=idle)
                self._keep(kind, known)

    def _measure_power(self) -> None:
        """Measure what nodes with a meter take while they compute each part of the network."""
        on_machine = Counter(identity.host for identity in self._identity.values())
        for device in self._devices():
            kind = self._kind[device.name]
            known = self._known[kind]
            if device.name not in self._meter or known.idle_w is None or known.layer_w is not None:
                continue
            sharing = on_machine[self._identity[device.name].host]
            idle_w = known.idle_w * sharing
            found = layer_watts(self.bench, self._model, device, known.layer_s, idle_w, sharing)
            self._keep(kind, replace(known, layer_w=found))

    def _measure_batches(self) -> None:
        """Measure firings of several frames on every node, if the cluster asks for any."""
        asked = self.planner.cluster.config.batch
        rungs = LADDER if asked == AUTO_BATCH else (asked,)
        if rungs == (1,):
            return
        for device in self._devices():
            kind = self._kind[device.name]
            known = self._known[kind]
            done = {each.frames for each in known.batched or () if each.layer_s}
            if rungs[0] in done:
                continue
            known = replace(known, batched=known.batched or ())
            for frames in rungs:
                found = None if frames in done else self._firing(device, frames)
                if found is not None:
                    self.taken.batches += 1
                    known = known.with_batched(found)
                elif frames not in done:
                    break
                if _is_flat(known):
                    break
            self._keep(kind, known)

    def _firing(self, device: Device, frames: int) -> BatchTimes | None:
        """Measure layers and a whole copy that compute `frames` frames at once; None if the device
        has no room, fails, would take too long, or the network cannot."""
        layers_s = self._known[self._kind[device.name]].in_batches(frames).layer_s
        try:
            model = self._model.in_batches(frames)
        except CnnError:
            return None
        if FIRINGS * sum(layers_s.values()) > self.most_s or not fits(model, device):
            return None
        names = [layer.name for layer in model.network.layers]
        try:
            found = self.bench.layers(model, device, names)
            plan = whole_copy(model, device)
            stage = f"measuring {frames} frames at once on {device.name}"
            whole = self.bench.phases(model, plan, stage)
        except DoesNotFitError:
            return BatchTimes(frames, found.layer_s)
        except LauncherError as error:  # such as a board without `memory` that has no memory left
            text = f"node {device.name}: {frames} frames at once are not measured: {error}"
            self.bench.progress.say(text)
            self.bench = self.renew()
            return None
        return BatchTimes(frames, found.layer_s, whole[device.name])

    def _choose_batch(self, links: tuple[LinkProfile, ...]) -> None:
        """Choose how many frames the plans that are measured compute at once."""
        cluster, profile = self.planner.cluster, self._profile(links)
        if cluster.config.batch != AUTO_BATCH:
            return

        def in_batches(batch: int, strategy: str | None) -> Plan:
            asked = replace(self.planner, batch=batch)
            problem = asked.problem(measured=profile.in_batches(batch))
            by = configured(cluster.config.ga, strategy or cluster.config.strategy)
            return asked.find(problem, self.bench.progress, by).plan

        fill = fill_s(cluster, is_pushed=cluster.config.has_source)
        try:
            _, self.choice = choose(cluster, in_batches, fill)
        except BadInputError:  # the measurements are kept, so that other bounds can be tried
            _, self.choice = choose(cluster.changed(max_latency=None), in_batches, fill)
        self.bench.progress.say(f"batches of {self.choice.batch}: {self.choice.reason}")
        self.planner = replace(self.planner, batch=self.choice.batch)

    def _has_watts(self, name: str) -> bool:
        """Whether the node's watts were measured, or it was found to compute too rarely."""
        return self._known[self._kind[name]].idle_w is not None

    def _measure_links(self) -> tuple[LinkProfile, ...]:
        nodes, who = self.planner.nodes, self._identity
        found = measure_machines(self.bench, nodes, who, self.cache, again=self.again)
        self.taken.links = len(found)
        return kept_links(who, self.cache)

    def _measure_saved(self, saved: SavedPlan, profile: Profile) -> Plan:
        """Measure the subnets of a saved plan."""
        plan = self.planner.saved(saved, self._batched(profile))
        self._measure_phases(plan, f"measuring {saved.path.name}")
        problem = self.planner.problem(measured=self._batched(self._profile(profile.links)))
        return self.planner.made_again(problem, plan)

    def _decide(self, links: tuple[LinkProfile, ...]) -> tuple[Plan, MeasuredPlans]:
        """Measure the subnets of the best plans, and choose among these by the measurements.

        The rounds start with the times of layers and whole copies only, so that a repetition finds
        the same plans.
        """
        everything = len(self._model.network.layers)
        batched = self._batched(self._profile())
        tried = Profile(
            {
                name: replace(
                    node, subnets=tuple(s for s in node.subnets if len(s.layers) == everything)
                )
                for name, node in batched.nodes.items()
            },
            links,
        )
        config = self.planner.cluster.config
        strategy = configured(config.ga, config.strategy)
        plans: dict[Shape, Plan] = {}
        before_s: dict[Shape, float] = {}
        began_s = time.monotonic()
        for most in ROUNDS:
            problem = self.planner.problem(measured=tried)
            shown = watched(problem, strategy, self.bench.progress)
            found = {
                shape(plan, self._kind): plan for plan in candidates(shown, strategy, self._kind)
            }
            own, *others = found.values()
            in_order = {shape(plan, self._kind): plan for plan in (own, *ranked(problem, others))}
            new = [each for each in in_order if each not in plans][:most]
            if not new:
                break
            for each in new:
                if plans and time.monotonic() > began_s + self.most_s:
                    break
                plans[each], before_s[each] = in_order[each], in_order[each].period_s
                stage = f"measuring plan {len(plans)} of at most {sum(ROUNDS)}"
                self._measure_phases(plans[each], stage)
                tried = _with_phases(tried, plans[each], self._batched(self._profile()))
        measured = self.planner.problem(measured=self._batched(self._profile(links)))
        made = [self.planner.made_again(measured, plan) for plan in plans.values()]
        final = ranked(measured, made)
        choice = MeasuredPlans(
            made_for=self.planner.question(measured, strategy.name),
            strategy=strategy.name,
            plans=tuple(measured_plan(plan, before_s[shape(plan, self._kind)]) for plan in final),
        )
        replace(self.planner, store=self.cache).keep(measured, final[0])
        return final[0], choice

    def _measure_phases(self, plan: Plan, stage: str) -> None:
        if len(fused_phases(plan, self._batched(self._profile()))) == len(plan.phases):
            return
        for device, times in self.bench.phases(self.planner.planned, plan, stage).items():
            kind = self._kind[device]
            self.taken.subnets += len(times)
            known = self._known[kind]
            if plan.batch == 1:
                self._keep(kind, known.with_subnets(times))
            else:
                self._keep(kind, known.with_batched(BatchTimes(plan.batch, {}, times)))

    def _energy(self) -> str:
        """Return a sentence that names the meter of each node whose watts were measured."""
        nodes = self._profile().nodes
        known = [name for name in nodes if nodes[name].busy_w is not None]
        if not known:
            return NOT_MEASURED
        meters = {self._kind[name]: meter for name, meter in self._meter.items()}
        return "; ".join(
            f"{name}: {meters.get(self._kind[name], 'measured earlier')}" for name in known
        )

    def _file(
        self, links: tuple[LinkProfile, ...], choice: MeasuredPlans | None = None
    ) -> ProfileFile:
        return ProfileFile(
            model=self._model.network.name,
            model_digest=self._model.digest,
            energy=self._energy(),
            nodes={
                name: NodeEntry(
                    identity=who,
                    measured=NodeTimes.of(self._known[self._kind[name]]),
                    engines=self.engines.get(name),
                )
                for name, who in self._identity.items()
            },
            links=tuple(
                LinkEntry(ends=link.ends, latency_s=link.latency_s, bytes_per_s=link.bytes_per_s)
                for link in links
            ),
            choice=choice,
        )


def _is_flat(node: NodeProfile) -> bool:
    """Whether the last firing took hardly less time per frame than the one before."""
    measured = [at for at in node.batched or () if at.layer_s]
    if len(measured) < FEWEST_RUNGS:
        return False
    before, last = (sum(at.layer_s.values()) / at.frames for at in measured[-2:])
    return last >= FLAT * before


def fits(model: Model, device: Device) -> bool:
    """Whether a device has room for each layer of the network by itself."""
    network = model.network
    room = None if device.memory_bytes is None else device.memory_bytes - START_UP_BYTES
    return room is None or all(
        network.weight_bytes((layer.name,)) + 2 * network.activation_bytes(layer.name) <= room
        for layer in network.layers
    )


def kinds(nodes: Mapping[str, NodeIdentity], alike: bool) -> dict[str, NodeIdentity]:
    """Return the kind of each node; nodes of one kind share their measurements.

    The kind is the node's identity; with `alike`, the identity without its host and agent.
    """
    if not alike:
        return dict(nodes)
    anywhere = {"host": ANY_HOST, "agent": ""}
    return {name: who.model_copy(update=anywhere) for name, who in nodes.items()}


def _with_phases(profile: Profile, plan: Plan, measured: Profile) -> Profile:
    """Return `profile` with the times in `measured` of the phases of `plan`."""
    seconds = fused_phases(plan, measured)
    nodes = dict(profile.nodes)
    for phase in plan.phases:
        time_of = subnet_time(plan, phase, seconds[phase.name])
        nodes[phase.device] = nodes[phase.device].with_subnets([time_of])
    return replace(profile, nodes=nodes)


def measure(
    cluster: Cluster,
    model: Model,
    saved: SavedPlan | None,
    progress: ProgressDisplay,
    cache: ProfileCache,
    *,
    again: bool = False,
    alike: bool = False,
    most_s: float = MOST_S,
    runtime: Runtime = real_runtime,
) -> tuple[ProfileFile, Plan, NewMeasurements]:
    """Measure `model` on the cluster's nodes.

    Returns the profile, a plan made with it, and the numbers of new measurements. With `alike`,
    nodes with the same processor, engine and threads share the measurements of one of them. Raises
    `LauncherError` if a node cannot be used or fails.
    """
    planner = Planner(cluster, model)
    starts = any(node.address is None for node in cluster.config.nodes)
    with ExitStack() as stack:
        folder = stack.enter_context(scratch_folder())
        agents = stack.enter_context(ExitStack())

        def start(planner: Planner) -> Bench:
            agents.close()
            nodes = nodes_of(cluster, planner.facts)
            runner = agents.enter_context(runtime(nodes))
            options = bench_options(cluster.config.run, START_S if starts else 0.0)
            return Bench(runner, nodes, folder, options, progress)

        wanted = figures_wanted(planner.nodes, {node.name for node in planner.nodes}, again=again)
        bench = start(planner)
        roll = bench.call_roll(wanted)
        planner = _knowing(planner, roll)
        engines = _compare_engines(
            planner, bench, roll, cache, again, alike, lambda: start(planner)
        )
        chosen = {name: each.chosen for name, each in engines.items()}
        planner = replace(planner, facts=Facts(engines=chosen, threads=planner.facts.threads))
        if engines:  # the agents may have been restarted, and compute with the chosen engines
            bench = start(planner)
            known = wanted.keys() - engines.keys()
            roll = bench.call_roll(figures_wanted(planner.nodes, known))
        planner = _knowing(planner, roll)
        profiling = Profiling(
            planner, bench, roll, cache, again, most_s, alike, engines, renew=lambda: start(planner)
        )
        found, plan = profiling.perform(saved)
    return found, plan, profiling.taken


def _knowing(planner: Planner, roll: Roll) -> Planner:
    """Return the planner with what boards report, as a launch with the profile will have it: that
    asks for no figures."""
    facts = with_boards(planner.facts, roll, planner.nodes)
    return replace(planner, facts=replace(facts, figures={}))


def _compare_engines(
    planner: Planner,
    bench: Bench,
    roll: Roll,
    cache: ProfileCache,
    again: bool,
    alike: bool,
    renew: Callable[[], Bench],
) -> dict[str, ComparedEngines]:
    """Compare the engines of each node that leaves its engine open, and say what is chosen."""
    open_ = [node for node in planner.nodes if node.engine == AUTO]
    welcomes = roll.of({node.name for node in open_}).welcomes
    comparison = EngineComparison(planner.model, bench, cache, again, renew)
    found = comparison.perform(
        devices_of(planner.cluster, welcomes.keys(), planner.facts),
        kinds(identities(open_, welcomes), alike),
        {name: each.engines for name, each in welcomes.items()},
    )
    for name, each in found.items():
        bench.progress.say(f"engine of node {name}: {each}")
    return found
