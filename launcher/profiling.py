"""`partition profile`: measures a model on the nodes of a cluster, what is not known already.

Layers one by one, node after node, so that nodes of one machine do not disturb each other. Then
links, two nodes at a time. Then subnets as the engine fuses them: those of the plan that was given,
or those of the plan that the cluster's strategy finds with what was measured so far, and again as
long as that changes the plan, because fused subnets are what the last choice is to go by.
"""

from __future__ import annotations

import itertools
import socket
import tempfile
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

from cnn.model import Model
from launcher.config_load import Cluster
from launcher.job import Runtime, real_runtime
from launcher.plan_files import SavedPlan
from launcher.planning import devices_of, nodes_of, saved_plan, search_plan
from launcher.profiling_bench import Bench, bench_options, measured_with_power
from launcher.profiling_cache import LinkTimes, ProfileCache
from launcher.profiling_energy import NO_SENSOR
from launcher.profiling_file import Identity, Link, NodeEntry, NodeTimes, ProfileFile
from launcher.profiling_links import identities, measure_link
from launcher.progress import Progress
from partition.plan import Plan
from partition.profiles import (
    LinkProfile,
    NodeProfile,
    Profile,
    fused_phases,
    subnet_time,
    with_profile,
)

ROUNDS = 3
"""How often a plan is searched whose subnets are then measured."""


@dataclass
class Taken:
    """What was measured now, not found in the cache."""

    layers: int = 0
    copies: int = 0
    links: int = 0
    subnets: int = 0


@dataclass
class Profiling:
    """One profiling: the cache is asked for what is not to be measured `again`.

    Nodes that are alike, on one machine, share what is known.
    """

    cluster: Cluster
    model: Model
    bench: Bench
    cache: ProfileCache
    again: bool
    taken: Taken = field(default_factory=Taken)
    _identity: dict[str, Identity] = field(default_factory=dict)
    _known: dict[Identity, NodeProfile] = field(default_factory=dict)

    def perform(self, saved: SavedPlan | None) -> tuple[ProfileFile, Plan]:
        """Measure; the profile, and the plan that was made with it."""
        self._identity = identities(self.bench, self.cluster.config.nodes)
        self._measure_layers()
        self._measure_copies()
        links = self._measure_links()
        plan = self._measure_subnets(saved, links)
        return self._file(links), with_profile(plan, self._profile(links))

    def _profile(self, links: tuple[LinkProfile, ...] = ()) -> Profile:
        return Profile({name: self._known[who] for name, who in self._identity.items()}, links)

    def _keep(self, identity: Identity, found: NodeProfile) -> None:
        self._known[identity] = found
        self.cache.keep_node(self.model.digest, identity, NodeTimes.of(found))

    def _measure_layers(self) -> None:
        if not self.again:
            self._known = {
                identity: times.profile()
                for identity in self._identity.values()
                if (times := self.cache.node(self.model.digest, identity)) is not None
            }
        idle_w: float | None = None
        asked = False
        on_machine = Counter(identity.host for identity in self._identity.values())
        for device in devices_of(self.cluster):
            identity = self._identity[device.name]
            if identity in self._known:
                continue
            here = identity.host == socket.gethostname()
            if here and not asked:
                idle_w, asked = self.bench.idle_w(), True
            watts = idle_w if here else None
            sharing = on_machine[identity.host]
            found = measured_with_power(self.bench, self.model, device, watts, sharing)
            self.taken.layers += len(found.layer_s)
            self._keep(identity, found)

    def _measure_copies(self) -> None:
        for device in devices_of(self.cluster):
            identity = self._identity[device.name]
            known = self._known[identity]
            if known.batches:
                continue
            layers_s = sum(known.layer_s.values())
            batches, whole = self.bench.copy(self.model, device, layers_s)
            if batches:
                self.taken.copies += 1
                self._keep(identity, replace(known, batches=batches).with_subnets(whole))

    def _measure_links(self) -> tuple[LinkProfile, ...]:
        measured: dict[tuple[Identity, Identity], LinkTimes | None] = {}
        links = []
        everyone = list(itertools.combinations(self._identity, 2))
        for done, (one, other) in enumerate(everyone):
            ends = (self._identity[one], self._identity[other])
            if ends not in measured:
                measured[ends] = None if self.again else self.cache.link(*ends)
            times = measured[ends]
            if times is None:
                note = f"{one} - {other}"
                self.bench.progress.update("measuring links", done, len(everyone), note)
                times = measured[ends] = measure_link(self.bench, one, other)
                self.taken.links += 1
                self.cache.keep_link(*ends, times)
            links.append(LinkProfile((one, other), times.latency_s, times.bytes_per_s))
        return tuple(links)

    def _measure_subnets(self, saved: SavedPlan | None, links: tuple[LinkProfile, ...]) -> Plan:
        """The rounds start from layers alone: the same times lead to the same plans again."""
        tried = Profile(
            {name: replace(node, subnets=()) for name, node in self._profile().nodes.items()}, links
        )
        for _ in range(ROUNDS):
            if saved is None:
                plan = search_plan(self.cluster, self.model, self.bench.progress, tried)
            else:
                plan = saved_plan(self.cluster, self.model, saved, tried)
            if len(fused_phases(plan, tried)) == len(plan.phases):
                break
            if len(fused_phases(plan, self._profile())) < len(plan.phases):
                self._measure_phases(plan)
            seconds = fused_phases(plan, self._profile())
            for phase in plan.phases:
                time = subnet_time(plan, phase, seconds[phase.name])
                node = tried.nodes[phase.device].with_subnets([time])
                tried = replace(tried, nodes={**tried.nodes, phase.device: node})
        return plan

    def _measure_phases(self, plan: Plan) -> None:
        for device, times in self.bench.phases(self.model, plan).items():
            identity = self._identity[device]
            self.taken.subnets += len(times)
            self._keep(identity, self._known[identity].with_subnets(times))

    def _file(self, links: tuple[LinkProfile, ...]) -> ProfileFile:
        sensor = self.bench.meter.name
        watts = [name for name, node in self._profile().nodes.items() if node.busy_w is not None]
        return ProfileFile(
            model=self.model.network.name,
            model_digest=self.model.digest,
            energy=f"{sensor}, of {', '.join(watts)}" if sensor and watts else NO_SENSOR,
            nodes={
                name: NodeEntry(identity=who, measured=NodeTimes.of(self._known[who]))
                for name, who in self._identity.items()
            },
            links=tuple(
                Link(ends=link.ends, latency_s=link.latency_s, bytes_per_s=link.bytes_per_s)
                for link in links
            ),
        )


def measure(
    cluster: Cluster,
    model: Model,
    saved: SavedPlan | None,
    progress: Progress,
    cache: ProfileCache,
    *,
    again: bool = False,
    runtime: Runtime = real_runtime,
) -> tuple[ProfileFile, Plan, Taken]:
    """Measure `model` on the cluster's nodes: the profile, a plan by it, and what was measured now.

    Raises `LauncherError` if a node cannot be used or fails.
    """
    nodes = nodes_of(cluster)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="csdf-edge-")))
        runner = stack.enter_context(runtime(nodes))
        bench = Bench(runner, nodes, folder, bench_options(cluster), progress)
        profiling = Profiling(cluster, model, bench, cache, again)
        found, plan = profiling.perform(saved)
    return found, plan, profiling.taken
