"""Describes the nodes of a cluster to the cost model and to the runtime.

`cluster.yaml` says what the user wants of the nodes. Where it leaves something open, `Facts` has
what was measured or what agents reported.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from statistics import median

from launcher.config.access import exposed, opened
from launcher.config.load import Cluster
from launcher.config.node import NodeConfig
from launcher.plan.machines import THIS_MACHINE, machine_of, shared_machines
from launcher.run.runtime import Node
from nodes.core.engines import AUTO, BUILT_IN_MEMORY
from nodes.protocol.messages import BoardFigures, EngineMemory
from partition.devices import Device, EngineOverhead, slower
from partition.measured.board import MeasuredFigures, with_figures

USUAL_LINK_BYTES_PER_S = 125e6
"""The rate of a network interface if none is given: Gigabit Ethernet."""

GOODPUT = 0.94
"""The fraction of an interface's rate that carries tensors; headers of TCP and Ethernet take the
rest."""

_CPUS = Path("/sys/devices/system/cpu")

GPU_THREADS = 16
"""The number of CPU threads as which a GPU is estimated to compute until it is measured. An H200
computed ResNet50 in the time of 25 to 30 (decision 064); small boards have smaller GPUs."""


ALIKE = 1.15
"""Boards of one kind whose measured speeds differ by at most this factor are planned as equal: two
measurements of one board differ as much."""


@dataclass(frozen=True)
class Facts:
    """Facts that were measured on a cluster's nodes or reported by their agents, by node.

    - `engines`: the engines that measurements have chosen, for nodes that leave theirs open.
    - `threads`: the threads of nodes that leave theirs open, as measured or as agents report.
    - `devices`: what nodes compute on, such as "gpu", by the engines that agents offer.
    - `engine_memory`: what engines take, as agents report.
    - `memory`: how many bytes nodes without `memory` may hold, as agents report.
    - `figures`: the boards' own measurements.
    - `opsets`: the newest operator set of ONNX that an engine takes, as agents report.
    - `serving`: nodes on which other cores than those that compute serve the network.
    - `kinds`: all that makes boards as fast as each other if nothing disturbs them: processor,
      engine, threads. Nodes whose speed the user states have no kind.
    """

    engines: Mapping[str, str] = field(default_factory=dict)
    threads: Mapping[str, int] = field(default_factory=dict)
    devices: Mapping[str, str] = field(default_factory=dict)
    engine_memory: Mapping[str, EngineMemory] = field(default_factory=dict)
    memory: Mapping[str, int] = field(default_factory=dict)
    figures: Mapping[str, BoardFigures] = field(default_factory=dict)
    opsets: Mapping[str, int] = field(default_factory=dict)
    serving: frozenset[str] = frozenset()
    kinds: Mapping[str, tuple[object, ...]] = field(default_factory=dict)

    @property
    def alike(self) -> tuple[tuple[str, ...], ...]:
        """Groups of several nodes whose boards are of one kind and, by their figures, equally fast.

        A node without figures belongs to the group of its kind if there is only one.
        """
        found: list[tuple[str, ...]] = []
        for kind in dict.fromkeys(self.kinds.values()):
            members = [name for name, own in self.kinds.items() if own == kind]
            unknown = [name for name in members if name not in self.figures]
            known = [name for name in members if name in self.figures]
            known.sort(key=self._s_per_mac)
            groups: list[list[str]] = []
            for name in known:
                if groups and self._s_per_mac(name) <= ALIKE * self._s_per_mac(groups[-1][0]):
                    groups[-1].append(name)
                else:
                    groups.append([name])
            if len(groups) <= 1:
                groups = [known + unknown]
            found += [tuple(group) for group in groups if len(group) > 1]
        return tuple(found)

    def _s_per_mac(self, name: str) -> float:
        return self.figures[name].dense_s_per_mac

    def shared_figures(self) -> dict[str, BoardFigures]:
        """Return the figures to plan with: boards that are alike have the medians of theirs."""
        found = dict(self.figures)
        for group in self.alike:
            measured = [asdict(self.figures[name]) for name in group if name in self.figures]
            if measured:
                middle = {key: median(each[key] for each in measured) for key in measured[0]}
                middle["threads"] = measured[0]["threads"]
                found |= dict.fromkeys(group, BoardFigures(**middle))
        return found

    def nodes(self, cluster: Cluster) -> tuple[NodeConfig, ...]:
        """Return the nodes of `cluster.yaml`, with facts for what it leaves open."""
        return tuple(map(self._node, cluster.config.nodes))

    def _node(self, node: NodeConfig) -> NodeConfig:
        found: dict[str, object] = {}
        if node.engine == AUTO and self.engines.get(node.name):
            found["engine"] = self.engines[node.name]
        if node.threads is None and node.name in self.threads:
            found["threads"] = self.threads[node.name]
        if node.memory is None and node.name in self.memory:
            found["memory"] = self.memory[node.name]
        return node.model_copy(update=found) if found else node


NO_FACTS = Facts()


def nodes_of(cluster: Cluster, facts: Facts = NO_FACTS) -> tuple[Node, ...]:
    """Return the nodes for the runtime, with the launching machine's keys if a node needs them.

    Raises `BadInputError` if keys are missing or cannot be used.
    """
    nodes = facts.nodes(cluster)
    access = opened(
        cluster.access,
        {
            node.name: exposed(cluster.access, node.address, node.data_address)
            for node in nodes
            if node.address is not None
        },
    )
    return tuple(
        Node(
            node.name,
            node.address,
            node.cpus,
            access,
            node.choice,
            node.meter,
            node.slots,
            node.data_address,
        )
        for node in nodes
    )


def devices_of(
    cluster: Cluster, nodes: Collection[str] | None = None, facts: Facts = NO_FACTS
) -> tuple[Device, ...]:
    """Return the nodes called `nodes`, or all that do not stand by, for the cost model.

    Nodes on this machine share its cores, and nodes on another machine share its link.
    """
    wanted = [
        node
        for node in facts.nodes(cluster)
        if (not node.standby if nodes is None else node.name in nodes)
    ]
    return _devices(wanted, cluster.config.launcher_link, facts)


def _devices(
    nodes: list[NodeConfig], launcher_link: float | None, facts: Facts
) -> tuple[Device, ...]:
    here = [node for node in nodes if machine_of(node) == THIS_MACHINE]
    cores = _shared_cores(here) if here else 1
    shared = shared_machines(nodes)
    known = facts.shared_figures()
    devices = []
    for node in nodes:
        declared = facts.engine_memory.get(node.name) or BUILT_IN_MEMORY.get(
            node.engine, EngineMemory()
        )
        computes_on = facts.devices.get(node.name, node.device)
        is_free = not is_cpu(computes_on) or node.name in facts.serving
        if node.accelerator is not None:
            is_free = node.accelerator
        usual = Device(node.name, wire_is_free=is_free)
        local, machine = node in here, machine_of(node)
        factor = max(1.0, usual.macs_per_s / (node.macs_per_s or usual.macs_per_s))
        device = replace(
            slower(usual, factor),
            memory_bytes=node.memory,
            macs_per_s=node.macs_per_s or usual.macs_per_s * _speed(node, computes_on),
            link_bytes_per_s=(node.link or USUAL_LINK_BYTES_PER_S) * GOODPUT,
            launcher_bytes_per_s=(
                None if local or launcher_link is None else launcher_link * GOODPUT
            ),
            host=THIS_MACHINE if local else machine if machine in shared else None,
            host_cores=cores if local else shared.get(machine, 1),
            cache_bytes=node.cache,
            cache_spill=node.cache_spill,
            busy_w=node.busy_w,
            idle_w=node.idle_w,
            engine_overhead=EngineOverhead(**asdict(declared)),
            threads=threads_of(node),
        )
        if (figures := known.get(node.name)) is not None:
            measured = MeasuredFigures(**asdict(figures))
            device = with_figures(device, measured, own_speed=node.macs_per_s is not None)
        devices.append(device)
    return tuple(devices)


def threads_of(node: NodeConfig) -> int:
    """Return the number of threads that a node computes with: 1 until it is known."""
    return node.threads or 1


def is_cpu(device: str) -> bool:
    """Return whether a node that computes on `device` does so on the CPU, as far as is known."""
    return device in (AUTO, "cpu")


def _speed(node: NodeConfig, computes_on: str) -> int:
    """Return the number of CPU threads as which a node without a speed is estimated to compute."""
    is_gpu = computes_on.partition(":")[0] == "gpu"
    return max(threads_of(node), GPU_THREADS) if is_gpu else threads_of(node)


def _shared_cores(nodes: list[NodeConfig]) -> int:
    """Return how many of these devices can compute at once on this machine's physical cores."""
    allowed = os.sched_getaffinity(0)
    bound: set[int] = set()
    for node in nodes:
        bound |= set(node.cpus) or allowed
    cores = {_core(cpu) for cpu in bound & allowed or allowed}
    return max(1, len(cores) // max(map(threads_of, nodes)))


def _core(cpu: int) -> object:
    """Return what identifies a CPU's physical core; the CPU itself where that is unknown."""
    topology = _CPUS / f"cpu{cpu}" / "topology" / "thread_siblings_list"
    try:
        return topology.read_text("ascii").strip()
    except OSError:
        return cpu
