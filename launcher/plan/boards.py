"""Decides which boards to ask for their figures, and adds what boards report to the facts.

A board's figures are those of the engine that its agent chooses. So they are not used for a node
for which `cluster.yaml` names another engine, device or precision.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from cnn.subnet import stated_opset
from launcher.config.cluster import NodeConfig
from launcher.core.roll import FiguresWanted, Roll
from launcher.errors import BadInputError
from launcher.plan.devices import Facts
from launcher.plan.machines import THIS_MACHINE, machine_of, sharing_machines
from launcher.quantities import operations
from launcher.run.runtime import ANY_ENGINE, SubnetFiles
from nodes.core.engines import AUTO
from nodes.protocol.messages import Welcome
from partition.plan import Plan

SPARE_CORES = 0.5
"""The part of a core that suffices to serve the network of a board while it computes."""


def figures_wanted(nodes: Iterable[NodeConfig], names: Collection[str]) -> dict[str, FiguresWanted]:
    """Return what to ask the boards of the nodes called `names`, without those whose figures would
    not be used.

    If all agents are started on this machine, none is asked: they are equally fast, and a plan
    would have to wait for their start.
    """
    nodes = tuple(nodes)
    if all(node.address is None for node in nodes):
        return {}
    sharing = sharing_machines(nodes)
    return {
        node.name: FiguresWanted(node.threads, sharing[node.name])
        for node in nodes
        if node.name in names and node.choice == ANY_ENGINE
    }


def with_boards(facts: Facts, roll: Roll, nodes: Iterable[NodeConfig]) -> Facts:
    """Return `facts` with the figures that boards have reported, the operator sets that their
    engines take, and the nodes on which other cores than those that compute serve the network."""
    nodes = tuple(nodes)
    return replace(
        facts,
        figures={**facts.figures, **roll.figures},
        opsets={**facts.opsets, **_opsets(nodes, roll.welcomes)},
        serving=facts.serving | _serving(nodes, roll.welcomes),
    )


def _opsets(nodes: Iterable[NodeConfig], welcomes: Mapping[str, Welcome]) -> dict[str, int]:
    """Return the newest operator set that each node's engine takes, where its agent says so."""
    found = {}
    for node in nodes:
        offers = () if node.name not in welcomes else welcomes[node.name].engines
        for offer in offers[:1] if node.engine == AUTO else offers:
            if offer.opset and node.engine in (AUTO, offer.engine):
                found[node.name] = offer.opset
    return found


def check_opsets(plan: Plan, subnets: Mapping[str, SubnetFiles], facts: Facts) -> None:
    """Raise `BadInputError` if a node's part of the network needs a newer operator set than its
    engine takes; nothing is sent then."""
    for phase in plan.phases:
        newest = facts.opsets.get(phase.device)
        if newest is None:
            continue
        needed = stated_opset(subnets[phase.name].graph)
        if needed > newest:
            raise BadInputError(
                f"node {phase.device!r} cannot compute its part of the network: that needs the "
                f"operator set {needed} of ONNX, and the newest that the engine there takes is "
                f"{newest}; install a newer engine there, pin its layers to another node, or "
                "export the network with an older operator set"
            )


def _serving(nodes: Iterable[NodeConfig], welcomes: Mapping[str, Welcome]) -> frozenset[str]:
    """Return the nodes that have a core to spare while their engine computes.

    Nodes that share a machine, with each other or with the launcher, may be busy at the same time.
    """
    nodes = tuple(nodes)
    sharing = sharing_machines(nodes)
    return frozenset(
        node.name
        for node in nodes
        if (welcome := welcomes.get(node.name)) is not None
        and sharing[node.name] == 1
        and machine_of(node) != THIS_MACHINE
        and welcome.spare_cores + max(0, welcome.threads - node.threads) >= SPARE_CORES
    )


def described(roll: Roll) -> Iterable[str]:
    """Yield a sentence for each board that was asked: its speed, or why it has no figures."""
    for name, greeted in roll.greeted.items():
        if greeted.figures is not None:
            speed, threads = 1 / greeted.figures.dense_s_per_mac, greeted.figures.threads
            yield (
                f"node {name} computes {operations(speed)} multiply-accumulates per second with "
                f"{threads} thread{'s' * (threads > 1)}, as its board has measured"
            )
        elif greeted.no_figures:
            yield f"node {name} is planned by estimates: {greeted.no_figures}"
