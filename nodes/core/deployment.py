"""Whether a deployment makes sense for one agent: checked before anything is loaded.

The launcher proves that the whole dataflow is consistent and live; here an agent makes sure of
what it relies on itself: that the channels fit its own phases.

Which channels each phase of a node reads and writes, found in one pass over the channels.

One pass, because a launcher may name thousands of phases and of channels in a single message:
looking through all channels for each phase would keep an agent busy for minutes.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from nodes.protocol.errors import NodeError
from nodes.protocol.fields import DTYPE_BYTES
from nodes.protocol.messages import HOST, ChannelSpec, Deployment

Reader = tuple[ChannelSpec, int]
"""A channel and the number of a phase among its readers."""


class Wiring:
    """`reads` and `writes` have one entry per phase, each in the order of the channels; so has
    `begins`: the channels that bring a phase its state before its first frame.

    The phases that channels name must be there (`nodes.core.deployment.check`).
    """

    def __init__(self, deployment: Deployment) -> None:
        self.reads: list[list[Reader]] = [[] for _ in deployment.phases]
        self.begins: list[list[Reader]] = [[] for _ in deployment.phases]
        self.writes: list[list[ChannelSpec]] = [[] for _ in deployment.phases]
        for channel in deployment.channels:
            if channel.target_node == deployment.node:
                for number, phase in enumerate(channel.target_phases):
                    found = self.begins if channel.kept_from else self.reads
                    found[phase].append((channel, number))
            if channel.source_node == deployment.node and channel.source_phase is not None:
                self.writes[channel.source_phase].append(channel)


MAX_TENSOR_BYTES = 1 << 30
"""Longest tensor that an agent's data port takes."""

MAX_VARYING_BYTES = 64 << 20
"""Longest frame of a channel whose shape varies: what a detector finds is far below."""


class DeploymentError(NodeError):
    """A deployment that contradicts itself; the message names the channel or phase."""


def tensor_bytes(channel: ChannelSpec) -> int:
    """Bytes of one frame of a channel; where its shape varies, of the one reckoned with."""
    return bytes_of(channel, channel.shape)


def most_bytes(channel: ChannelSpec) -> int:
    """The most that one frame of a channel may have."""
    return MAX_VARYING_BYTES if channel.varies else tensor_bytes(channel)


def bytes_of(channel: ChannelSpec, shape: tuple[int, ...]) -> int:
    """Bytes of a frame of this shape."""
    return math.prod(shape) * DTYPE_BYTES[channel.dtype]


def fits(channel: ChannelSpec, dtype: str, shape: tuple[int, ...]) -> bool:
    """Whether a tensor may be a frame of the channel."""
    if dtype != channel.dtype:
        return False
    if channel.varies:
        return bytes_of(channel, shape) <= MAX_VARYING_BYTES
    return shape == channel.shape


def described(channel: ChannelSpec) -> str:
    """A channel as sentences call it."""
    return (
        f"channel {channel.number} ({channel.tensor!r}, "
        f"{channel.source_node} → {channel.target_node})"
    )


def check(deployment: Deployment) -> None:
    """Raise `DeploymentError` if the deployment's phases and channels do not fit together."""
    if not deployment.phases:
        raise DeploymentError(f"node {deployment.node!r} is given no phase")
    twice = [n for n, times in Counter(c.number for c in deployment.channels).items() if times > 1]
    if twice:
        raise DeploymentError(f"two channels have the number {twice[0]}")
    dialled = {peer.name for peer in deployment.dial}
    inputs = [frozenset(phase.inputs) for phase in deployment.phases]
    outputs = [frozenset(phase.outputs) for phase in deployment.phases]
    for channel in deployment.channels:
        _check_channel(channel, deployment, inputs, outputs)
        if channel.kept_from:
            _check_state(channel, deployment, outputs)
        remote = channel.target_node not in (deployment.node, HOST)
        if remote and channel.target_node not in dialled:
            raise DeploymentError(f"{described(channel)}: no address to dial its target at")
    _check_phases(deployment)


def _check_channel(
    channel: ChannelSpec,
    deployment: Deployment,
    inputs: Sequence[frozenset[str]],
    outputs: Sequence[frozenset[str]],
) -> None:
    """`inputs` and `outputs` of each phase, as sets: there may be thousands of everything."""

    def refuse(why: str) -> DeploymentError:
        return DeploymentError(f"{described(channel)} {why}")

    node = deployment.node
    if node not in (channel.source_node, channel.target_node):
        raise refuse(f"does not touch node {node!r}")
    if channel.varies and channel.target_node != HOST:
        raise refuse("has no static shape, and such a tensor goes to the launcher only")
    if tensor_bytes(channel) > MAX_TENSOR_BYTES:
        raise refuse(f"has frames of {tensor_bytes(channel)} bytes, at most {MAX_TENSOR_BYTES} go")
    if channel.source_node == node:
        source = channel.source_phase
        if source is None or source >= len(deployment.phases):
            raise refuse(f"comes from phase {source} of {len(deployment.phases)}")
        if channel.tensor not in outputs[source]:
            raise refuse(f"carries no output of phase {deployment.phases[source].name!r}")
    if channel.target_node == node:
        targets = channel.target_phases
        if not targets or len(set(targets)) != len(targets):
            raise refuse(f"goes to the phases {list(targets)}")
        for target in targets:
            if target >= len(deployment.phases) or (
                channel.source_node == node and target == channel.source_phase
            ):
                raise refuse(f"goes to phase {target}")
            if channel.tensor not in inputs[target]:
                raise refuse(f"carries no input of phase {deployment.phases[target].name!r}")


def _check_state(
    channel: ChannelSpec, deployment: Deployment, outputs: Sequence[frozenset[str]]
) -> None:
    """Of a channel that brings a phase its state, which is sound as a channel."""
    targets = channel.target_phases
    if channel.source_node != HOST or len(targets) != 1:
        raise DeploymentError(
            f"{described(channel)} brings state from {channel.source_node} to {len(targets)} "
            "phases, not from the launcher to one"
        )
    if channel.kept_from not in outputs[targets[0]]:
        raise DeploymentError(
            f"{described(channel)} keeps {channel.kept_from!r}, which is no output of phase "
            f"{deployment.phases[targets[0]].name!r}"
        )


def _check_phases(deployment: Deployment) -> None:
    wiring = Wiring(deployment)
    for phase, reads, begins in zip(deployment.phases, wiring.reads, wiring.begins, strict=True):
        arriving = Counter(channel.tensor for channel, _ in (*reads, *begins))
        for tensor in phase.inputs:
            if arriving[tensor] != 1:
                raise DeploymentError(
                    f"phase {phase.name!r} gets its input {tensor!r} from {arriving[tensor]} "
                    "channels, not from one"
                )
        if not phase.inputs and not phase.outputs:
            raise DeploymentError(f"phase {phase.name!r} has neither inputs nor outputs")
