"""Takes what boards have measured of themselves into account, where nothing better is known.

A board's figures are those of the engine that its agent chooses by itself. So they are not taken
for a node for which `cluster.yaml` names another engine, device or precision.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from launcher.config.cluster import NodeConfig
from launcher.core.roll import FiguresWanted, Roll
from launcher.plan.devices import Facts
from launcher.plan.machines import THIS_MACHINE, machine_of, sharing_machines
from launcher.run.runtime import ANY_ENGINE
from nodes.protocol.messages import Welcome

SPARE_CORES = 0.5
"""The part of a core that suffices to serve the network of a board while it computes."""


def figures_wanted(nodes: Iterable[NodeConfig], names: Collection[str]) -> dict[str, FiguresWanted]:
    """Return what to ask of the boards of those nodes called `names` for which that helps.

    If all agents are started on this machine, nobody is asked: they are equally fast, and a plan
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
    """Return `facts` with the figures that boards have told, and with the nodes whose network is
    served by other cores than those that compute."""
    figures = {**facts.figures, **roll.figures}
    return replace(facts, figures=figures, serving=facts.serving | _serving(nodes, roll.welcomes))


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
    """Yield a sentence for each board that has told figures, or why it has none."""
    for name, greeted in roll.greeted.items():
        if greeted.figures is not None:
            speed, threads = 1 / greeted.figures.dense_s_per_mac, greeted.figures.threads
            yield (
                f"node {name} computes {speed:.3g} multiply-accumulates per second with "
                f"{threads} thread{'s' * (threads > 1)}, as its board has measured"
            )
        elif greeted.no_figures:
            yield f"node {name} is planned by estimates: {greeted.no_figures}"
