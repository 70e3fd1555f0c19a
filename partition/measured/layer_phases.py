"""Plans in which each layer is a phase of its own, to measure layers one by one.

A network is measured in pieces, runs of consecutive layers on one device, so that a device holds
the engines and weights of one piece at a time. A piece gets its inputs from the host and sends its
results to the host.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from cnn.network import Layer, Network
from csdf.conversion.from_network import HOST, SINK, SOURCE
from partition.devices import Device
from partition.plan import MemoryPrediction, Plan, PlannedChannel, PlannedPhase

MOST_LAYERS = 64
"""The most layers of a piece. Each layer loads an engine session of its own, of a few MB."""


def useful_layers(network: Network) -> tuple[str, ...]:
    """Return the layers, in order, that have an output which is read; others make no phase."""
    return tuple(layer.name for layer in network.layers if _read_outputs(network, layer))


def pieces(
    network: Network, layers: Sequence[str], most_bytes: int | None = None
) -> Iterator[tuple[str, ...]]:
    """Yield `layers`, in the network's order, as runs that are measured together.

    A run has at most `MOST_LAYERS` layers and at most `most_bytes` bytes of weights and tensors. A
    layer with more bytes than that is a run of its own.
    """
    wanted = set(layers)
    piece: list[str] = []
    held = 0
    for layer in network.layers:
        if layer.name not in wanted:
            continue
        size = network.weight_bytes((layer.name,)) + network.activation_bytes(layer.name)
        full = most_bytes is not None and held + size > most_bytes
        if piece and (full or len(piece) == MOST_LAYERS):
            yield tuple(piece)
            piece, held = [], 0
        piece.append(layer.name)
        held += size
    if piece:
        yield tuple(piece)


def one_by_one(network: Network, model_digest: str, device: Device, piece: Sequence[str]) -> Plan:
    """Return the plan that computes each layer of `piece` on `device` as a phase of its own.

    `piece` lists some of `useful_layers` in the network's order, so the plan is live. The plan
    predicts nothing: its times and memory are 0.
    """
    inside = set(piece)
    layers = [layer for layer in network.layers if layer.name in inside]
    name_of = {layer.name: f"{device.name}:{index}" for index, layer in enumerate(layers)}
    phases = tuple(
        PlannedPhase(
            name=name_of[layer.name],
            device=device.name,
            index=index,
            layers=(layer.name,),
            inputs=tuple(dict.fromkeys(layer.inputs)),
            outputs=_read_outputs(network, layer),
            skew=0,
            predicted_s=0.0,
            state=tuple((network.tensors[fed], made) for fed, made in layer.state),
        )
        for index, layer in enumerate(layers)
    )
    return Plan(
        network=network.name,
        model_digest=model_digest,
        strategy="layer by layer",
        explanation="every layer by itself, to be measured",
        devices=(device,),
        assignment={layer.name: device.name for layer in layers},
        phases=phases,
        channels=tuple(_channels(network, device.name, phases)),
        memory={device.name: MemoryPrediction(0, 0, 0, 0, 0)},
        period_s=0.0,
        latency_s=0.0,
        bytes_per_frame=0,
        proof="phases read only what earlier ones make",
    )


def _read_outputs(network: Network, layer: Layer) -> tuple[str, ...]:
    return tuple(
        name for name in layer.outputs if network.consumers[name] or name in network.outputs
    )


def _channels(
    network: Network, device: str, phases: Sequence[PlannedPhase]
) -> Iterator[PlannedChannel]:
    made = {name: phase.name for phase in phases for name in phase.outputs}
    inside = {layer for phase in phases for layer in phase.layers}
    readers: dict[str, list[str]] = {}
    for phase in phases:
        for name in phase.inputs:
            readers.setdefault(name, []).append(phase.name)
    for name, targets in readers.items():
        source = made.get(name, SOURCE)
        at = device if name in made else HOST
        yield PlannedChannel(network.tensors[name], source, at, device, tuple(targets), 1)
    for name, source in made.items():
        if name in network.outputs or not inside.issuperset(network.consumers[name]):
            yield PlannedChannel(network.tensors[name], source, device, HOST, (SINK,), 1)
