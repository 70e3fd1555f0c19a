"""Turns a plan into a blueprint: each agent's phases, blobs and numbered channels.

A channel's number is its index in the plan, so both of its ends agree on it. The launcher itself is
one end of the channels from and to the host. The initial state of a phase comes from the host, once
per epoch, over a separate channel; these channels are numbered after the plan's.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from cnn.rewrite.rewrites import original_name
from csdf.conversion.from_network import SOURCE
from launcher.core.blueprint import Blueprint, Dealing
from launcher.errors import BadInputError
from launcher.run.runtime import ANY_ENGINE, Node
from nodes.protocol.messages import (
    HOST,
    BlobInfo,
    ChannelSpec,
    Deployment,
    Order,
    PhaseSpec,
)
from partition.devices import Device
from partition.devices import machines as machines_of
from partition.plan import Plan, PlannedChannel, PlannedPhase


@dataclass(frozen=True, slots=True)
class SubnetBlobs:
    """The blobs of a phase's subnet: its ONNX graph, and its weights if it has any.

    `in_blocks` are those of its inputs and outputs that may be in blocks of channels
    (`cnn.blocked_layout`).
    """

    graph: BlobInfo
    weights: BlobInfo | None
    in_blocks: frozenset[str] = frozenset()


def blueprint(
    plan: Plan,
    subnets: Mapping[str, SubnetBlobs],
    nodes: Mapping[str, Node],
    epoch: int,
    order: Order,
    check_finite: bool = False,
    networks: Sequence[Collection[str]] = (),
    run: str = "",
) -> Blueprint:
    """Divide a plan by node.

    `subnets` maps the names of phases, `nodes` the names of nodes (one that is missing has the
    usual engine). With `check_finite`, agents check the outputs of phases for NaN and infinity.
    Nodes without a phase have no deployment. `networks` has the inputs of each network that streams
    its own frames; without it, a frame is one input for each of them. `run` names the run in the
    logs of agents. Raises `BadInputError` for a phase without a subnet, or with layers of two
    networks that stream their own frames.
    """
    used = dict.fromkeys(phase.device for phase in plan.phases)
    threads = {device.name: device.threads for device in plan.devices}
    phases = {
        node: sorted((p for p in plan.phases if p.device == node), key=lambda p: p.index)
        for node in used
    }
    missing = [phase.name for phase in plan.phases if phase.name not in subnets]
    if missing:
        raise BadInputError(f"the plan has no subnet for phase {missing[0]!r}: make the plan again")
    index = {phase.name: i for own in phases.values() for i, phase in enumerate(own)}
    channels = [_specify(number, channel, index) for number, channel in enumerate(plan.channels)]
    channels += _states(plan.phases, index, len(channels))
    dealing = _dealing(plan)
    network = _networks(plan, dealing, networks) if len(networks) > 1 else {}
    return Blueprint(
        epoch=epoch,
        deployments={
            node: Deployment(
                epoch=epoch,
                node=node,
                order=order,
                phases=tuple(
                    PhaseSpec(
                        phase.name,
                        subnets[phase.name].graph,
                        subnets[phase.name].weights,
                        (*phase.inputs, *(tensor.name for tensor, _ in phase.state)),
                        phase.outputs,
                        network.get(phase.name, 0),
                    )
                    for phase in phases[node]
                ),
                channels=tuple(c for c in channels if node in (c.source_node, c.target_node)),
                dial=(),
                threads=threads[node],
                engine=nodes[node].engine if node in nodes else ANY_ENGINE,
                check_finite=check_finite,
                run=run,
            )
            for node in used
        },
        from_host=tuple(c for c in channels if c.source_node == HOST != c.target_node),
        to_host=tuple(c for c in channels if c.target_node == HOST != c.source_node),
        passed_through=tuple(
            dict.fromkeys(
                dealing.name(c.tensor) for c in channels if c.source_node == HOST == c.target_node
            )
        ),
        dealing=dealing,
        blockable=frozenset(
            number
            for number, channel in enumerate(plan.channels)
            if HOST not in (channel.source_device, channel.target_device)
            and all(
                channel.tensor.name in subnets[phase].in_blocks
                for phase in (channel.source, *channel.targets)
            )
        ),
        phase_s={node: tuple(p.predicted_s for p in own) for node, own in phases.items()},
        sharing=_sharing(plan.devices),
    )


def _sharing(devices: Sequence[Device]) -> tuple[tuple[frozenset[str], int], ...]:
    """The devices of each machine that has fewer cores than devices, and its cores."""
    machines = [[devices[number] for number in own] for own in machines_of(devices)]
    return tuple(
        (frozenset(device.name for device in own), own[0].host_cores)
        for own in machines
        if own[0].host_cores < len(own)
    )


def _networks(plan: Plan, dealing: Dealing, networks: Sequence[Collection[str]]) -> dict[str, int]:
    """The number of the network of each phase: that of the inputs that reach it."""
    reads: dict[str, list[PlannedChannel]] = {}
    for channel in plan.channels:
        if channel.target_device != HOST:
            reads.setdefault(channel.source, []).append(channel)
    fed = {name: number for number, inputs in enumerate(networks) for name in inputs}
    found: dict[str, int] = {}
    reached = [
        (fed[dealing.name(channel.tensor.name)], channel) for channel in reads.get(SOURCE, ())
    ]
    while reached:
        number, channel = reached.pop()
        for target in channel.targets:
            if target not in found:
                found[target] = number
                reached += ((number, following) for following in reads.get(target, ()))
            elif found[target] != number:
                raise BadInputError(
                    f"phase {target!r} computes layers of two networks together, as plans of "
                    "earlier versions do: make the plan again"
                )
    return found


def _dealing(plan: Plan) -> Dealing:
    if len(set(plan.dealing)) == 1:
        return Dealing(plan.dealing)
    ends = [c.tensor.name for c in plan.channels if HOST in (c.source_device, c.target_device)]
    return Dealing(
        plan.dealing,
        {number: channel.copy for number, channel in enumerate(plan.channels)},
        {tensor: original_name(tensor) for tensor in ends},
    )


def _states(
    phases: Sequence[PlannedPhase], index: Mapping[str, int], first_number: int
) -> Iterator[ChannelSpec]:
    kept = ((phase, tensor, made) for phase in phases for tensor, made in phase.state)
    for number, (phase, tensor, made) in enumerate(kept, start=first_number):
        yield ChannelSpec(
            number=number,
            tensor=tensor.name,
            dtype=tensor.dtype,
            shape=tensor.shape,
            source_node=HOST,
            source_phase=None,
            target_node=phase.device,
            target_phases=(index[phase.name],),
            capacity_frames=1,
            kept_from=made,
        )


def _specify(number: int, channel: PlannedChannel, index: Mapping[str, int]) -> ChannelSpec:
    return ChannelSpec(
        number=number,
        tensor=channel.tensor.name,
        dtype=channel.tensor.dtype,
        shape=channel.tensor.shape,
        source_node=channel.source_device,
        source_phase=None if channel.source_device == HOST else index[channel.source],
        target_node=channel.target_device,
        target_phases=(
            ()
            if channel.target_device == HOST
            else tuple(index[target] for target in channel.targets)
        ),
        capacity_frames=channel.capacity_frames,
        unsent_frames=channel.unsent_frames,
        varies=channel.tensor.varies,
        encoding=channel.encoding,
    )
