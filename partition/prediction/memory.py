"""Prediction of the memory that every device of a planned dataflow holds.

The prediction is the most that a device needs at once: memory that no file backs, weights, which
are pages of files but are read for every frame, and the code that runs. Agents measure the same
without code (`nodes.host.usage`). It is the sum of four upper bounds, so a device with less memory
may still suffice:

- **Weights** count once per device. Engines change their layout or pack them, but then they drop
  the original. A CPU has no arithmetic for half precision, so it holds such weights, and
  activations, as float32.
- **Activations** are the largest live set of any phase, because all phases of a device share the
  engine's arena and one phase runs at a time. Activation functions and sums write into the tensor
  that they read, if nothing else reads it. A phase's own inputs and outputs count here although
  their frames lie in channels, because engines copy them into their own layout.
- **Channels**: a frame is claimed before the firing that makes it and freed after the last firing
  that reads it. Meanwhile it is at the producer, at the consumer, or (while it is sent) at both.
  Either end holds at most its own places of long tensors (`csdf.conversion.skew.Pipeline`), and the
  capacity of others. The producer holds one copy for all devices that a tensor goes to. The state
  that a phase keeps is a channel of two frames. Encoded frames wait encoded (`partition.wire`), and
  one of each channel is decoded before the firing that reads it.
- **Engine**: the agent itself, a session per phase and a kernel per layer, which differ from engine
  to engine (`partition.devices.EngineOverhead`).

**Packing** happens before all that. While a phase is loaded, the engine packs the weights of its
matrices one after the other, and for a moment holds both the original and the copy, in addition to
the code that loading runs, but no other weights and no tensors. So packing counts only where one
matrix is larger than everything else together (34 of 54 MB in the last layer of a character
recogniser). Packed integer weights stay in memory, because they are not written into a file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from cnn.network import Layer, Network, Tensor
from csdf.conversion.from_network import Dataflow, Phase
from csdf.conversion.skew import Pipeline
from partition.devices import Device
from partition.plan import MemoryPrediction, Plan
from partition.pricing.compute_time import FUSED, FUSED_SUMS
from partition.pricing.memory_budget import engine_bytes, packing_bytes, quantised_bytes
from partition.pricing.paper_equations import device_beta_bytes

HALF = frozenset({"float16", "bfloat16"})


def predict_memory(
    dataflow: Dataflow,
    pipeline: Pipeline,
    devices: Sequence[Device],
    encoded_bytes: Mapping[str, int] = MappingProxyType({}),
) -> dict[str, MemoryPrediction]:
    """Return by device name the predicted memory, with the paper's Eq. 2 for comparison.

    `encoded_bytes` has the most bytes of a frame of each flow that is encoded.
    """
    names = [device.name for device in devices]
    network = dataflow.network
    widened = _widened(network)
    eq2 = device_beta_bytes(dataflow.network, dataflow.partition, names)
    channels = channel_bytes(dataflow, pipeline, names, encoded_bytes)
    decoded = _decoded_bytes(dataflow, encoded_bytes)
    predictions = {}
    for device in devices:
        phases = dataflow.devices.get(device.name, ())
        layers = {layer for phase in phases for layer in phase.layers}
        computed = network if device.wire_is_free else widened
        predictions[device.name] = MemoryPrediction(
            weights_bytes=computed.weight_bytes(layers),
            activations_bytes=max(
                (live_bytes(computed, phase) + decoded.get(phase.name, 0) for phase in phases),
                default=0,
            ),
            channels_bytes=channels[device.name],
            engine_bytes=engine_bytes(len(phases), len(layers), device.engine_overhead),
            eq2_bytes=eq2[device.name],
            packing_bytes=max((packing_bytes(network, p.layers) for p in phases), default=0)
            + quantised_bytes(network, layers),
        )
    return predictions


def live_bytes(network: Network, phase: Phase) -> int:
    """Return the largest sum of tensors alive at once while `phase` runs layer by layer, in bytes.

    A tensor lives from the layer that produces it (an input of the phase: from the first layer that
    reads it) to the last layer of the phase that reads it. An output of the phase lives to the end.
    """
    last_read: dict[str, int] = {}
    for step, name in enumerate(phase.layers):
        for tensor in network.layer[name].inputs:
            last_read[tensor] = step
    kept = set(phase.outputs)
    alive: set[str] = set()
    held = largest = 0
    for step, name in enumerate(phase.layers):
        layer = network.layer[name]
        for tensor in (*layer.inputs, *layer.outputs):
            if tensor not in alive:
                alive.add(tensor)
                held += network.tensors[tensor].bytes
        ending = [
            tensor
            for tensor in dict.fromkeys((*layer.inputs, *layer.outputs))
            if tensor not in kept and last_read.get(tensor, step) == step
        ]
        largest = max(largest, held - _written_over(network, layer, ending))
        for tensor in ending:
            alive.discard(tensor)
            held -= network.tensors[tensor].bytes
    return largest


def _written_over(network: Network, layer: Layer, ending: Sequence[str]) -> int:
    """Return the bytes of the result that `layer` writes into an input that is `ending`, or 0."""
    if layer.operator not in FUSED | FUSED_SUMS:
        return 0
    read = set(layer.inputs).intersection(ending)
    size = network.tensors[layer.outputs[0]].bytes
    return size if any(network.tensors[name].bytes == size for name in read) else 0


def _widened(network: Network) -> Network:
    """Return the network as a processor without half precision computes it."""
    if not any(tensor.dtype in HALF for tensor in network.weights.values()):
        return network
    tensors = {name: _wide(tensor) for name, tensor in network.tensors.items()}
    weights = {name: _wide(tensor) for name, tensor in network.weights.items()}
    return replace(network, tensors=tensors, weights=weights)


def _wide(tensor: Tensor) -> Tensor:
    return replace(tensor, dtype="float32") if tensor.dtype in HALF else tensor


def channel_bytes(
    dataflow: Dataflow,
    pipeline: Pipeline,
    devices: Sequence[str],
    encoded_bytes: Mapping[str, int] = MappingProxyType({}),
) -> dict[str, int]:
    """Return by device name the most bytes that its channels, in or out, can hold there.

    `encoded_bytes` is as in `predict_memory`.
    """
    held = dict.fromkeys(devices, 0)
    for phase in dataflow.phases:
        if phase.device in held:
            held[phase.device] += dataflow.state_bytes(phase)
    waiting: dict[tuple[str, str, int], int] = {}
    for flow in dataflow.flows:
        capacity = pipeline.capacity_frames[flow.name]
        unsent = pipeline.unsent_frames.get(flow.name, 0)
        size = encoded_bytes.get(flow.name, flow.tensor.bytes)
        if flow.target_device in held and not flow.is_local:
            held[flow.target_device] += (capacity - unsent) * size
        made = (flow.source_device, flow.tensor.name, size)
        waiting[made] = max(waiting.get(made, 0), unsent or capacity)
    for (device, _, size), frames in waiting.items():
        if device in held:
            held[device] += frames * size
    return held


def _decoded_bytes(dataflow: Dataflow, encoded_bytes: Mapping[str, int]) -> dict[str, int]:
    """Return by phase the bytes of the tensors that it decodes before it fires."""
    found: dict[str, int] = {}
    for flow in dataflow.flows:
        if flow.name in encoded_bytes:
            for target in flow.targets:
                found[target] = found.get(target, 0) + flow.tensor.bytes
    return found


def with_room(present: Plan, following: Plan) -> frozenset[str]:
    """Return the devices of `following` that can load their part while they run that of `present`.

    Devices without a limit can. Channels of the plan that is loaded hold nothing before it streams,
    and the engine itself exists once. Weights that both plans have on a device count twice,
    although the kernel may share their pages.
    """
    used = {phase.device for phase in following.phases}
    return frozenset(
        device.name
        for device in following.devices
        if device.name in used
        and (
            device.memory_bytes is None
            or _held_bytes(device, present) + _loaded_bytes(device, following.memory[device.name])
            <= device.memory_bytes
        )
    )


def _held_bytes(device: Device, plan: Plan) -> int:
    memory = plan.memory.get(device.name)
    return device.engine_overhead.idle_bytes if memory is None else memory.total_bytes


def _loaded_bytes(device: Device, memory: MemoryPrediction) -> int:
    engine = memory.engine_bytes - device.engine_overhead.idle_bytes
    tensors = memory.weights_bytes + memory.activations_bytes
    return max(engine + tensors, memory.packing_bytes)
