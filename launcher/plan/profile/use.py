"""Reads the profile that a cluster names, checks that it is valid for it, and applies its times."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cnn.model import Model
from cnn.network import Network
from launcher.config.load import Cluster
from launcher.config.node import NodeConfig
from launcher.errors import BadInputError
from launcher.plan.devices import Facts
from launcher.plan.profile.file import NodeIdentity, ProfileFile, read_profile
from launcher.plan.profile.links import node_part
from partition.devices import Device
from partition.errors import PartitionError
from partition.measured.profiles import Profile, measured_costs, profiled_devices


def with_profile_option(cluster: Cluster, profile: Path | None) -> Cluster:
    """Return the cluster with the profile of a command-line option, if given, for its own."""
    return cluster if profile is None else cluster.changed(profile=str(profile.absolute()))


def profile_file(cluster: Cluster, model: Model) -> ProfileFile | None:
    """Read the profile that the cluster names; returns None if it names none.

    A command reads it once and passes it on, so that all its parts use the same one. Raises
    `BadInputError` if it is of another model or of other nodes by what `cluster.yaml` has of them;
    `check_agents` compares the rest. `model` is that of a single frame.
    """
    if cluster.config.profile is None:
        return None
    path = cluster.path(cluster.config.profile)
    found = read_profile(path)
    nodes = facts_of(found).nodes(cluster)
    known = {node.name: node_part(node) for node in nodes}
    found.check(str(path), model.network.name, model.digest, known)
    return found


def facts_of(file: ProfileFile | None) -> Facts:
    """Return the engines and threads that a profile was measured with, for nodes that leave theirs
    open."""
    if file is None:
        return Facts()
    threads = {name: entry.identity.threads for name, entry in file.nodes.items()}
    return Facts(engines=file.chosen_engines(), threads=threads)


def engine_reasons(nodes: Iterable[NodeConfig], file: ProfileFile) -> dict[str, str]:
    """Return why nodes compute with their engine, by node, where measurements chose it."""
    found = {}
    for node in nodes:
        entry = file.nodes.get(node.name)
        if entry is not None and entry.engines is not None and entry.engines.chosen == node.engine:
            found[node.name] = entry.engines.reason
    return found


def check_agents(
    cluster: Cluster, model: Model, file: ProfileFile, agents: Mapping[str, NodeIdentity]
) -> None:
    """Raise `BadInputError` if the profile is of other machines or engines than the agents'."""
    where = str(cluster.path(cluster.config.profile or ""))
    file.check(where, model.network.name, model.digest, agents)


def with_own_watts(cluster: Cluster) -> set[str]:
    """Return the nodes whose watts the user has given."""
    nodes = cluster.config.nodes
    return {node.name for node in nodes if {"busy_w", "idle_w"} & node.model_fields_set}


def profiled(
    cluster: Cluster, network: Network, devices: tuple[Device, ...], profile: Profile | None
) -> tuple[tuple[Device, ...], NDArray[np.float64] | None]:
    """Return devices with measured values, and the seconds of layers, of shape [layers, devices].

    Without a profile, the devices are unchanged and there are no seconds (None). A link or watts
    in `cluster.yaml` take precedence. Raises `BadInputError` if the profile lacks a layer.
    """
    if profile is None:
        return devices, None
    nodes = cluster.config.nodes
    try:
        measured = profiled_devices(
            devices,
            profile,
            own_link={node.name for node in nodes if node.link is not None},
            own_watts=with_own_watts(cluster),
        )
        return measured_costs(network, measured, profile)
    except PartitionError as error:
        raise BadInputError(f"{cluster.source.name}: {error}") from error
