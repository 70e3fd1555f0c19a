"""Joins a loaded subnet with the channels of its phase, and keeps its state from frame to frame."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from nodes.execution.encoding import decode
from nodes.execution.rehearsal import RehearsedPhase
from nodes.executors.base import BoundRun, LoadedSubnet, binder
from nodes.executors.synthetic_inputs import synthetic_inputs
from nodes.host.control_groups import room_bytes
from nodes.protocol.encodings import Encoding
from nodes.protocol.errors import NodeError
from nodes.protocol.messages import ChannelSpec, Deployment, PhaseSpec
from nodes.protocol.payload import Array, as_array, check_finite, is_finite


class LoadedPhase:
    """A loaded subnet with the channels that it reads and writes."""

    def __init__(
        self, spec: PhaseSpec, index: int, deployment: Deployment, subnet: LoadedSubnet
    ) -> None:
        """Connect `subnet` as the phase of this index in `deployment`.

        Raises NodeError if its inputs and outputs are not those of the plan.
        """
        node = self.node = deployment.node
        self.spec = spec
        self.subnet = subnet
        self.passed_s = 0.0
        """How long its last firing took."""
        self.inputs: dict[str, ChannelSpec] = {
            channel.tensor: channel
            for channel in deployment.channels
            if channel.target_node == node and index in channel.target_phases
        }
        outgoing = [
            channel
            for channel in deployment.channels
            if channel.source_node == node and channel.source_phase == index
        ]
        self.bind = binder(subnet)
        self.outputs = {channel.tensor: channel for channel in outgoing}
        self.dtypes = {
            channel.tensor: np.dtype(channel.dtype)
            for channel in (*self.inputs.values(), *outgoing)
        }
        """The dtypes of all inputs and outputs, by tensor."""
        self.static_outputs = [
            (channel.tensor, self.dtypes[channel.tensor], channel.shape)
            for channel in outgoing
            if not channel.varies
        ]
        """The dtype and the shape of each output that has the same shape in every frame."""
        remote = [channel for channel in outgoing if channel.target_node != node]
        self.sent = {channel.tensor for channel in remote}
        """Outputs that other nodes read."""
        self.sent_raw = {channel.tensor for channel in remote if channel.encoding == "raw"}
        """Outputs that another node reads unencoded."""
        self.encoded: dict[tuple[str, Encoding], list[int]] = {}
        """Outputs and the encodings in which nodes read them, with the numbers of the channels."""
        for channel in remote:
            if channel.encoding != "raw":
                key = channel.tensor, channel.encoding
                self.encoded.setdefault(key, []).append(channel.number)
        self.varying = {channel.tensor for channel in outgoing if channel.varies}
        """Outputs of varying shape."""
        self.kept = {
            channel.tensor: len(channel.target_phases)
            for channel in outgoing
            if channel.target_node == node
        }
        """Outputs that phases of this node read, with the number of these phases."""
        self.kept_from = {t: c.kept_from for t, c in self.inputs.items() if c.kept_from}
        """For each input that is state, the output of the previous frame that provides it."""
        self.encoded_inputs = tuple(
            tensor for tensor, channel in self.inputs.items() if channel.encoding != "raw"
        )
        """Inputs that are decoded before a firing."""
        self.stored = tuple(
            tensor
            for tensor, channel in self.inputs.items()
            if channel.source_node == node and not channel.kept_from
        )
        """Inputs that earlier phases of this node made for the same frame."""
        self.state: dict[str, Array] = {}
        """State for the next frame; empty before the first."""
        self.may_be_infinite: frozenset[str] | None = None
        """Outputs that may contain NaN or infinity; None if no output is checked."""
        self._check(subnet.inputs, self.inputs, "input")
        self._check(subnet.outputs, self.outputs, "output")
        made = {output: self.inputs[tensor] for tensor, output in self.kept_from.items()}
        self._check(subnet.outputs, made, "output")

    def _check(
        self, model: Mapping[str, Any], planned: Mapping[str, ChannelSpec], what: str
    ) -> None:
        for tensor, channel in planned.items():
            found = model.get(tensor)
            if found is None:
                raise NodeError(
                    f"the subnet of phase {self.spec.name!r} has no {what} {tensor!r}, which its "
                    "plan expects: make a new plan"
                )
            if channel.varies and found.dtype == channel.dtype:
                continue
            if (found.dtype, tuple(found.shape)) != (channel.dtype, channel.shape):
                raise NodeError(
                    f"phase {self.spec.name!r}: its subnet's {what} {tensor!r} is "
                    f"{found.dtype}{list(found.shape)}, but {channel.dtype}{list(channel.shape)} "
                    "in its plan: make a new plan"
                )
        if what == "input" and model.keys() != planned.keys():
            missing = sorted(model.keys() - planned.keys())
            raise NodeError(
                f"the subnet of phase {self.spec.name!r} has inputs that its plan does not "
                f"know: {', '.join(missing)}; make a new plan"
            )

    def check_room(self) -> None:
        """Raise `NodeError` if there is no room for one frame's inputs and outputs.

        Tensors inside the subnet do not count: only the engine can say what they take, as it runs.
        """
        specs = (*self.subnet.inputs.values(), *self.subnet.outputs.values())
        needed, room = sum(spec.size_bytes for spec in specs), room_bytes()
        if needed > room:
            raise NodeError(
                f"phase {self.spec.name!r}: the inputs and outputs of one frame take "
                f"{needed / 1e6:.1f} MB, and only {room / 1e6:.1f} MB are free: give this node "
                "less of the network"
            )

    def begin(self, payloads: Mapping[str, object]) -> BegunFiring:
        """Bind the unencoded tensors that arrived from other nodes, while other phases fire."""
        came = {
            tensor: as_array(payload, self.dtypes[tensor], self.inputs[tensor].shape)
            for tensor, payload in payloads.items()
            if tensor not in self.encoded_inputs
        }
        return BegunFiring(self, payloads, came, self.bind(came))

    def keep(self, outputs: Mapping[str, Array]) -> None:
        """Store those of a frame's outputs that are the next frame's state."""
        self.state = {tensor: outputs[output] for tensor, output in self.kept_from.items()}

    def rehearsed(self) -> RehearsedPhase:
        """Return what a rehearsal needs of this phase."""
        received = [
            name
            for name, spec in self.inputs.items()
            if spec.source_node != self.node and not spec.kept_from
        ]
        return RehearsedPhase(self.subnet, self._synthetic_inputs, received, tuple(self.sent))

    def watch_values(self) -> None:
        """Check outputs from now on, except those that are not finite for synthetic inputs.

        Runs the subnet once.
        """
        tried = self.subnet.run(self._synthetic_inputs())
        infinite = (name for name in self.outputs if not is_finite(tried[name]))
        self.may_be_infinite = frozenset(infinite)

    def check_values(self, inputs: Collection[Array], outputs: Mapping[str, Array]) -> None:
        """Raise `NodeError` for NaN or infinity that this phase introduced into the frame."""
        if self.may_be_infinite is not None:
            made = {name: outputs[name] for name in self.outputs}
            check_finite(inputs, made, self.may_be_infinite)

    def _synthetic_inputs(self) -> dict[str, Array]:
        return synthetic_inputs(self.inputs)


@dataclass(slots=True)
class BegunFiring:
    """A firing of a phase: the payloads that came from other nodes, and its bound run."""

    phase: LoadedPhase
    payloads: Mapping[str, object]
    came: Mapping[str, Array]
    """The tensors that arrived unencoded; they are bound."""
    bound: BoundRun

    def rest(self, stored: Mapping[str, Array]) -> dict[str, Array]:
        """Return the inputs that are not bound yet: those that earlier phases `stored`, state, and
        tensors that came encoded, which it decodes."""
        phase, rest = self.phase, dict(stored)
        for tensor in phase.kept_from:
            if tensor not in self.payloads:
                rest[tensor] = phase.state[tensor]
        for tensor in phase.encoded_inputs:
            if tensor in self.payloads:
                rest[tensor] = decode(self.payloads[tensor], phase.inputs[tensor])
        return rest
