"""Decides which boards to ask for their figures, and adds their reports to the facts.

A node whose `threads` the user leaves open has its share of those that its board computes with
best. Figures are asked for as many.

A board's figures are those of the engine that its agent chooses. So they are not used for a node
for which `cluster.yaml` names another engine, device or precision.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

from cnn.subnet import stated_opset
from launcher.config.node import NodeConfig
from launcher.core.roll import Question, Roll
from launcher.errors import BadInputError
from launcher.plan.devices import Facts, is_cpu
from launcher.plan.machines import THIS_MACHINE, machine_of, sharing_machines
from launcher.quantities import counted, operations
from launcher.run.runtime import ANY_ENGINE, SubnetFiles
from nodes.core.engines import AUTO, EngineLackingError, resolve
from nodes.protocol.messages import BoardFigures, GetFigures, Welcome
from partition.plan import Plan

SPARE_CORES = 0.5
"""The part of a core that suffices to serve the network of a board while it computes."""

DOUBTFUL = 2.0
"""A stated speed that is this many times the measured one, or its inverse, is reported."""


@dataclass(frozen=True, slots=True)
class ThreadShare:
    """A node's share of its board's threads.

    It is the node's own number of `threads`, or with 0 an even share of what the board computes
    with: the nodes of its machine that have their own number take `taken`, and the others, which
    are `sharing`, the rest.
    """

    threads: int = 0
    sharing: int = 1
    taken: int = 0

    def threads_on(self, welcome: Welcome) -> int:
        """Return the number of threads of a node whose agent has answered, at least 1."""
        return self.threads or max(1, (welcome.threads - self.taken) // self.sharing)

    def question(self, welcome: Welcome, *, again: bool = False) -> GetFigures:
        """Ask a node's board for its figures; `again` if it is to measure itself in any case."""
        return GetFigures(self.threads_on(welcome), again)


def figures_wanted(
    nodes: Iterable[NodeConfig], names: Collection[str], *, again: bool = False
) -> dict[str, Question]:
    """Return what to ask the boards of the nodes called `names`, without those whose figures would
    not be used. With `again`, they are measured even if they are known.

    If all agents are started on this machine, none is asked: they are equally fast, and a plan
    would have to wait for their start.
    """
    nodes = tuple(nodes)
    if all(node.address is None for node in nodes):
        return {}
    shares = thread_shares(nodes)
    return {
        node.name: partial(shares[node.name].question, again=again)
        for node in nodes
        if node.name in names and node.choice == ANY_ENGINE
    }


def thread_shares(nodes: Iterable[NodeConfig]) -> dict[str, ThreadShare]:
    """Return the share of each node in the threads of its machine.

    Nodes on different `cpus` do not share, and a node for a GPU or NPU takes no threads from
    others.
    """
    placed = [(node, machine_of(node)) for node in nodes]
    shares = {}
    for node, machine in placed:
        others = [
            other
            for other, its_machine in placed
            if other.name != node.name
            and its_machine == machine
            and is_cpu(other.device)
            and (not node.cpus or not other.cpus or not set(node.cpus).isdisjoint(other.cpus))
        ]
        shares[node.name] = ThreadShare(
            node.threads or 0,
            sharing=1 + sum(other.threads is None for other in others),
            taken=sum(other.threads or 0 for other in others),
        )
    return shares


def with_boards(facts: Facts, roll: Roll, nodes: Iterable[NodeConfig]) -> Facts:
    """Return `facts` with the reports of the boards of `nodes`."""
    nodes, welcomes = tuple(nodes), roll.welcomes
    shares = thread_shares(nodes)
    threads = {name: shares[name].threads_on(welcome) for name, welcome in welcomes.items()}
    devices = _devices(nodes, welcomes)
    kinds = {
        node.name: (
            welcome.machine,
            welcome.cores,
            welcome.engine,
            node.choice,
            devices.get(node.name),
            threads[node.name],
        )
        for node in nodes
        if node.macs_per_s is None and (welcome := welcomes.get(node.name)) is not None
    }
    return replace(
        facts,
        threads={**facts.threads, **threads},
        devices={**facts.devices, **devices},
        figures={**facts.figures, **roll.figures},
        kinds={**facts.kinds, **kinds},
        opsets={**facts.opsets, **_opsets(nodes, welcomes)},
        serving=facts.serving | _serving(nodes, welcomes, threads),
    )


def _devices(nodes: Iterable[NodeConfig], welcomes: Mapping[str, Welcome]) -> dict[str, str]:
    """Return what nodes compute on, as far as their agents offer what is asked of them."""
    found = {}
    for node in nodes:
        with suppress(EngineLackingError, KeyError):
            found[node.name] = resolve(node.choice, welcomes[node.name].engines).device
    return found


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


def _serving(
    nodes: Iterable[NodeConfig], welcomes: Mapping[str, Welcome], threads: Mapping[str, int]
) -> frozenset[str]:
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
        and welcome.spare_cores + max(0, welcome.threads - threads[node.name]) >= SPARE_CORES
    )


def described(roll: Roll, threads: Mapping[str, int], stated: Mapping[str, float]) -> Iterable[str]:
    """Yield a sentence for each board that was asked: its speed, or why it has no figures.

    If a node without figures computes with several `threads`, or a node with more than its board
    has cores, another sentence says so. `stated` has the speeds in cluster.yaml, which are used
    instead of measured ones.
    """
    for name, greeted in roll.greeted.items():
        if greeted.welcome is not None and threads.get(name, 1) > greeted.welcome.cores:
            yield (
                f"node {name} has threads: {threads[name]} in cluster.yaml, and its board has "
                f"{counted(greeted.welcome.cores, 'core')}; more threads than cores are slower"
            )
        if greeted.figures is not None:
            speed, count = 1 / greeted.figures.dense_s_per_mac, greeted.figures.threads
            yield (
                f"node {name} computes {operations(speed)} multiply-accumulates per second with "
                f"{count} thread{'s' * (count > 1)}, as its board has measured"
                + _instead(name, stated)
            )
            continue
        if greeted.no_figures:
            yield f"node {name} is planned by estimates: {greeted.no_figures}"
        if threads.get(name, 1) > 1:
            yield f"node {name} computes with {threads[name]} threads"


def doubtful(
    stated: Mapping[str, float], figures: Mapping[str, BoardFigures], used: Collection[str]
) -> list[str]:
    """Return a sentence for each speed in cluster.yaml that is far from what the board measured.

    `stated` has the speeds in multiply-accumulates per second, and `used` the nodes with a phase.
    """
    lines = []
    for name, speed in stated.items():
        measured = 1 / figures[name].dense_s_per_mac if name in figures else speed
        if not measured / DOUBTFUL <= speed <= measured * DOUBTFUL:
            what = "" if name in used else f"node {name} is not used: "
            lines.append(
                f"{what}cluster.yaml says macs_per_s: {operations(speed)} of {name}, and its board "
                f"has measured {operations(measured)}; without macs_per_s the plan follows that"
            )
    return lines


def _instead(name: str, stated: Mapping[str, float]) -> str:
    if name not in stated:
        return ""
    return f"; cluster.yaml says macs_per_s: {operations(stated[name])}, which is used instead"
