"""Check a deployment before anything is loaded, and find the channels of each phase.

The launcher proves that the whole dataflow is consistent and live. An agent checks only what it
relies on: that the channels fit its own phases.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from nodes.protocol.encodings import is_length
from nodes.protocol.encodings import most_bytes as most_encoded_bytes
from nodes.protocol.errors import NodeError
from nodes.protocol.fields import DTYPE_BYTES
from nodes.protocol.messages import HOST, ChannelSpec, Deployment

Reader = tuple[ChannelSpec, int]
"""A channel, and the index of a phase among its readers."""

MAX_TENSOR_BYTES = 1 << 30
"""The longest tensor that an agent's data port takes."""

MAX_VARYING_BYTES = 64 << 20
"""The longest frame of a channel whose shape varies; results of detectors are far shorter."""


class DeploymentError(NodeError):
    """A deployment is inconsistent; the message names the channel or phase."""


def tensor_bytes(channel: ChannelSpec) -> int:
    """Return the bytes of one frame of a channel; if its shape varies, of the shape in its spec."""
    return bytes_of(channel, channel.shape)


def most_bytes(channel: ChannelSpec) -> int:
    """Return the most bytes that one frame of a channel may have."""
    return MAX_VARYING_BYTES if channel.varies else tensor_bytes(channel)


def bytes_of(channel: ChannelSpec, shape: tuple[int, ...]) -> int:
    """Return the bytes of a frame of this shape."""
    return math.prod(shape) * DTYPE_BYTES[channel.dtype]


def most_sent_bytes(channel: ChannelSpec) -> int:
    """Return the most bytes of a frame of a channel on its way; as `tensor_bytes` if it varies."""
    if channel.encoding == "raw":
        return tensor_bytes(channel)
    return most_encoded_bytes(channel.encoding, channel.shape)


def payload_bounds(channel: ChannelSpec) -> str:
    """Return how many bytes the frames of a channel have on their way, for error messages."""
    most = str(most_sent_bytes(channel))
    if channel.encoding == "raw":
        return most
    return f"{'at most ' * (channel.encoding == 'lossless')}{most} as {channel.encoding}"


def is_payload_length(channel: ChannelSpec, size_bytes: int) -> bool:
    """Return whether a frame of the channel, as it is encoded, may have `size_bytes` bytes."""
    if channel.encoding == "raw":
        return size_bytes == tensor_bytes(channel)
    return is_length(channel.encoding, channel.shape, size_bytes)


def fits(channel: ChannelSpec, dtype: str, shape: tuple[int, ...]) -> bool:
    """Return whether a tensor of this dtype and shape may be a frame of the channel."""
    if dtype != channel.dtype:
        return False
    if channel.varies:
        return bytes_of(channel, shape) <= MAX_VARYING_BYTES
    return shape == channel.shape


def described(channel: ChannelSpec) -> str:
    """Return how error messages name a channel."""
    return (
        f"channel {channel.number} ({channel.tensor!r}, "
        f"{channel.source_node} → {channel.target_node})"
    )


class Wiring:
    """The channels that each phase of a node reads and writes.

    `reads`, `writes` and `initial_reads` have one entry per phase, in the order of the channels.
    `initial_reads` are the channels that bring a phase its state before frame 0. The phases that
    the channels name must exist (`check`).

    One pass over the channels finds them all: a hostile launcher may name thousands of phases and
    channels in one message, and one pass per phase would keep the agent busy for minutes.
    """

    def __init__(self, deployment: Deployment) -> None:
        self.reads: list[list[Reader]] = [[] for _ in deployment.phases]
        self.initial_reads: list[list[Reader]] = [[] for _ in deployment.phases]
        self.writes: list[list[ChannelSpec]] = [[] for _ in deployment.phases]
        for channel in deployment.channels:
            if channel.target_node == deployment.node:
                for number, phase in enumerate(channel.target_phases):
                    found = self.initial_reads if channel.kept_from else self.reads
                    found[phase].append((channel, number))
            if channel.source_node == deployment.node and channel.source_phase is not None:
                self.writes[channel.source_phase].append(channel)


def borders_in_blocks(deployment: Deployment) -> tuple[int, tuple[tuple[str, ...], ...]]:
    """Return the channels of a block, and for each phase its inputs and outputs that are in blocks.

    The deployment must have passed `check`. Without such tensors the block is 1.
    """
    found: list[dict[str, None]] = [{} for _ in deployment.phases]
    block = 1
    for channel in deployment.channels:
        if channel.block == 1:
            continue
        block = channel.block
        if channel.source_node == deployment.node and channel.source_phase is not None:
            found[channel.source_phase][channel.tensor] = None
        if channel.target_node == deployment.node:
            for phase in channel.target_phases:
                found[phase][channel.tensor] = None
    return block, tuple(tuple(names) for names in found)


def check(deployment: Deployment) -> None:
    """Raise `DeploymentError` if the deployment's phases and channels do not fit together."""
    if not deployment.phases:
        raise DeploymentError(f"the deployment of node {deployment.node!r} has no phase")
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
            raise DeploymentError(f"{described(channel)}: the address of its target is missing")
    _check_phases(deployment)
    _check_blocks(deployment)


def _check_blocks(deployment: Deployment) -> None:
    """Check that all channels of a tensor have the same order of elements, and all blocks the same
    size."""
    made: dict[tuple[int | None, str], int] = {}
    kept = {channel.kept_from for channel in deployment.channels if channel.kept_from}
    sizes = {channel.block for channel in deployment.channels} - {1}
    if len(sizes) > 1:
        raise DeploymentError(f"tensors are in blocks of {min(sizes)} and of {max(sizes)} channels")
    for channel in deployment.channels:
        if channel.source_node != deployment.node:
            continue
        block = made.setdefault((channel.source_phase, channel.tensor), channel.block)
        if channel.block != block or (block > 1 and channel.tensor in kept):
            raise DeploymentError(
                f"{described(channel)} is in blocks of {channel.block} channels, and the same "
                "tensor is also needed in another order"
            )


def _check_channel(
    channel: ChannelSpec,
    deployment: Deployment,
    inputs: Sequence[frozenset[str]],
    outputs: Sequence[frozenset[str]],
) -> None:
    """Check one channel against the `inputs` and `outputs` of each phase."""

    def refuse(why: str) -> DeploymentError:
        return DeploymentError(f"{described(channel)} {why}")

    node = deployment.node
    if node not in (channel.source_node, channel.target_node):
        raise refuse(f"neither comes from nor leads to node {node!r}")
    if channel.varies and channel.target_node != HOST:
        raise refuse("has no static shape, and only the launcher can receive such a tensor")
    if why := _why_raw(channel) or _why_no_unsent(channel) or _why_no_blocks(channel):
        raise refuse(why)
    if tensor_bytes(channel) > MAX_TENSOR_BYTES:
        raise refuse(
            f"has frames of {tensor_bytes(channel)} bytes, at most {MAX_TENSOR_BYTES} are allowed"
        )
    if channel.source_node == node:
        source = channel.source_phase
        if source is None or source >= len(deployment.phases):
            raise refuse(f"comes from phase {source}; there are {len(deployment.phases)} phases")
        if channel.tensor not in outputs[source]:
            raise refuse(f"does not carry an output of phase {deployment.phases[source].name!r}")
    if channel.target_node == node:
        targets = channel.target_phases
        if not targets or len(set(targets)) != len(targets):
            raise refuse(
                f"leads to the phases {list(targets)}; it must name at least one phase, and none "
                "twice"
            )
        for target in targets:
            if target >= len(deployment.phases) or (
                channel.source_node == node and target == channel.source_phase
            ):
                raise refuse(f"leads to phase {target}, which does not exist or is its source")
            if channel.tensor not in inputs[target]:
                raise refuse(f"does not carry an input of phase {deployment.phases[target].name!r}")


def _why_no_unsent(channel: ChannelSpec) -> str:
    """Return why a channel cannot have as many `unsent_frames`; empty if it can."""
    if not channel.unsent_frames:
        return ""
    has = f"has {channel.unsent_frames} places for unsent frames"
    if channel.source_node in (HOST, channel.target_node):
        return f"{has}, and only a channel that leaves a node has any"
    if channel.unsent_frames >= channel.capacity_frames:
        return f"{has} of {channel.capacity_frames} in all, so none is left for its target"
    return ""


def _why_no_blocks(channel: ChannelSpec) -> str:
    """Return why a channel's frames cannot be in blocks of channels; empty if they can."""
    if channel.block == 1:
        return ""
    shape, why = channel.shape, ""
    if channel.dtype != "float32" or channel.varies or channel.encoding != "raw":
        why = "only float32 tensors of static shape and without encoding may be"
    elif len(shape) != 4 or shape[1] % channel.block:
        why = f"its shape {list(shape)} does not divide into blocks"
    elif HOST in (channel.source_node, channel.target_node):
        why = "the launcher exchanges tensors in their usual order"
    return why and f"is in blocks of {channel.block} channels, and {why}"


def _why_raw(channel: ChannelSpec) -> str:
    """Return why a channel cannot have its encoding; empty if it can."""
    if channel.encoding == "raw":
        return ""
    why = ""
    if channel.dtype != "float32" or channel.varies:
        why = "only float32 tensors of static shape may be"
    elif HOST in (channel.source_node, channel.target_node):
        why = "the launcher exchanges raw tensors"
    elif channel.source_node == channel.target_node:
        why = "it does not leave its node"
    return why and f"is encoded as {channel.encoding}, and {why}"


def _check_state(
    channel: ChannelSpec, deployment: Deployment, outputs: Sequence[frozenset[str]]
) -> None:
    """Check that a channel with `kept_from` brings state from the launcher to one phase."""
    targets = channel.target_phases
    if channel.source_node != HOST or len(targets) != 1:
        raise DeploymentError(
            f"{described(channel)} brings state from {channel.source_node} to {len(targets)} "
            "phases, not from the launcher to one"
        )
    if channel.kept_from not in outputs[targets[0]]:
        raise DeploymentError(
            f"{described(channel)} keeps {channel.kept_from!r}, which is not an output of phase "
            f"{deployment.phases[targets[0]].name!r}"
        )


def _check_phases(deployment: Deployment) -> None:
    wiring = Wiring(deployment)
    for phase, reads, initial in zip(
        deployment.phases, wiring.reads, wiring.initial_reads, strict=True
    ):
        arriving = Counter(channel.tensor for channel, _ in (*reads, *initial))
        for tensor in phase.inputs:
            if arriving[tensor] != 1:
                raise DeploymentError(
                    f"phase {phase.name!r} receives its input {tensor!r} from {arriving[tensor]} "
                    "channels, not from one"
                )
        if not phase.inputs and not phase.outputs:
            raise DeploymentError(f"phase {phase.name!r} has neither inputs nor outputs")
