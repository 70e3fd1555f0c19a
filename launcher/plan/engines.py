"""Checks that the nodes' agents have the engines, devices and precisions that `cluster.yaml` names.

A run asks the agents before it plans, so that nothing is searched or deployed for nodes that lack
something. An agent that does not answer is left out; the run says what is wrong with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType

from launcher.config.load import Cluster
from launcher.config.node import NodeConfig
from launcher.errors import BadInputError
from launcher.plan.devices import NO_FACTS, Facts
from launcher.run.runtime import ANY_ENGINE
from nodes.core.engines import EngineLackingError, resolve
from nodes.protocol.messages import EngineChoice, Welcome

DEVIATION = {"fp16": 0.01, "int8": 0.1}
"""Tolerances to suggest for precisions that change results."""


def asks_for_engines(nodes: Iterable[NodeConfig]) -> bool:
    """Return whether any node has a key that its agent may be unable to satisfy."""
    return any(node.choice != ANY_ENGINE for node in nodes)


def check_precisions(cluster: Cluster) -> None:
    """Raise `BadInputError` if a precision changes results and no tolerance is given."""
    config = cluster.config
    if not config.verify or config.tolerance is not None:
        return
    for index, node in enumerate(config.nodes):
        if node.precision != "fp32":
            raise cluster.error(
                ("nodes", index, "precision"),
                f"{node.precision} changes results: give the largest relative difference that you "
                f"allow, such as `tolerance: {DEVIATION.get(node.precision, 0.01)}`",
            )


def engines_of(
    cluster: Cluster, welcomes: Mapping[str, Welcome], facts: Facts = NO_FACTS
) -> dict[str, EngineChoice]:
    """Return what each node that has answered computes with.

    Raises `BadInputError`, with file, line and key, for a node that lacks what is asked of it.
    """
    found, lacking = split_by_engine(cluster, welcomes, facts)
    for error in lacking.values():
        raise error
    return found


def split_by_engine(
    cluster: Cluster,
    welcomes: Mapping[str, Welcome],
    facts: Facts = NO_FACTS,
    reasons: Mapping[str, str] = MappingProxyType({}),
) -> tuple[dict[str, EngineChoice], dict[str, BadInputError]]:
    """Return what the nodes that have answered compute with, and the errors of those that cannot
    because an engine or a device is missing there.

    The measurements of a profile have chosen the engines of the nodes in `reasons`. Other errors
    are mistakes in the file, and are raised; see `engines_of`.
    """
    found, lacking = {}, {}
    for index, node in enumerate(facts.nodes(cluster)):
        if (welcome := welcomes.get(node.name)) is None:
            continue
        try:
            found[node.name] = resolve(node.choice, welcome.engines)
        except EngineLackingError as error:
            again = (
                "; the profile chose this engine, so measure again with csdf-edge partition profile"
                if node.name in reasons
                else ""
            )
            what = f"node {node.name!r} {error}{again}"
            lacking[node.name] = cluster.error(("nodes", index, error.key), what)
            if error.key not in ("engine", "device"):
                raise lacking[node.name] from error
    return found, lacking


def with_declared_memory(
    facts: Facts, choices: Mapping[str, EngineChoice], welcomes: Mapping[str, Welcome]
) -> Facts:
    """Return `facts` with the memory that these nodes' engines take, as their agents report."""
    declared = {
        name: offer.memory
        for name, choice in choices.items()
        for offer in welcomes[name].engines
        if offer.engine == choice.engine
    }
    return replace(facts, engine_memory={**facts.engine_memory, **declared})


def described(choices: Mapping[str, EngineChoice], reasons: Mapping[str, str]) -> str:
    """Return the choices in words, such as `a onnxruntime on cpu (fp32)`, and why they were made
    where `reasons` says so."""
    return ", ".join(
        f"{node} {choice.engine} on {choice.device} ({choice.precision})"
        + (f" ({reasons[node]})" if node in reasons else "")
        for node, choice in choices.items()
    )
