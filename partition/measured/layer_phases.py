"""Plans for a piece of a network on one device, to measure its layers one by one or as one phase.

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
"""The most layers of a piece. Each layer loads its own engine session, of a few MB."""


def useful_layers(network: Network) -> tuple[str, ...]:
    """Return the layers, in order, that have an output which is read; others make no phase."""
    return tuple(layer.name for layer in network.layers if _read_outputs(network, layer))


def pieces(
    network: Network,
    layers: Sequence[str],
    most_bytes: int | None = None,
    most_layers: int = MOST_LAYERS,
) -> Iterator[tuple[str, ...]]:
    """Yield `layers`, in the network's order, as runs that are measured together.

    A run has at most `most_layers` layers and at most `most_bytes` bytes of weights and tensors. A
    layer with more bytes than that is a separate run.
    """
    wanted = set(layers)
    piece: list[str] = []
    held = 0
    for layer in network.layers:
        if layer.name not in wanted:
            continue
        size = network.weight_bytes((layer.name,)) + network.activation_bytes(layer.name)
        full = most_bytes is not None and held + size > most_bytes
        if piece and (full or len(piece) == most_layers):
            yield tuple(piece)
            piece, held = [], 0
        piece.append(layer.name)
        held += size
    if piece:
        yield tuple(piece)


def one_by_one(network: Network, model_digest: str, device: Device, piece: Sequence[str]) -> Plan:
    """Return the plan that computes each layer of `piece` on `device` as a separate phase.

    `piece` lists some of `useful_layers` in the network's order, so the plan is live. The plan
    predicts nothing: its times and memory are 0.
    """
    return _plan(network, model_digest, device, [(name,) for name in piece])


def as_one(network: Network, model_digest: str, device: Device, piece: Sequence[str]) -> Plan:
    """Return the plan that computes `piece` on `device` as one phase; otherwise as `one_by_one`."""
    return _plan(network, model_digest, device, [tuple(piece)])


def _plan(
    network: Network, model_digest: str, device: Device, groups: Sequence[tuple[str, ...]]
) -> Plan:
    """Return the plan that computes each group of consecutive layers as a phase."""
    phases = tuple(_phase(network, device, index, names) for index, names in enumerate(groups))
    return Plan(
        network=network.name,
        model_digest=model_digest,
        strategy="piece by piece",
        explanation="a piece of the network, to be measured",
        devices=(device,),
        assignment={name: device.name for names in groups for name in names},
        phases=phases,
        channels=tuple(_channels(network, device.name, phases)),
        memory={device.name: MemoryPrediction(0, 0, 0, 0, 0)},
        period_s=0.0,
        latency_s=0.0,
        bytes_per_frame=0,
        proof="phases read only what earlier ones make",
    )


def _phase(network: Network, device: Device, index: int, names: Sequence[str]) -> PlannedPhase:
    layers = [network.layer[name] for name in names]
    made = {tensor for layer in layers for tensor in layer.outputs}
    inside = set(names)
    return PlannedPhase(
        name=f"{device.name}:{index}",
        device=device.name,
        index=index,
        layers=tuple(names),
        inputs=tuple(
            dict.fromkeys(
                tensor for layer in layers for tensor in layer.inputs if tensor not in made
            )
        ),
        outputs=tuple(
            tensor
            for layer in layers
            for tensor in _read_outputs(network, layer)
            if tensor in network.outputs or not inside.issuperset(network.consumers[tensor])
        ),
        skew=0,
        predicted_s=0.0,
        state=tuple((network.tensors[fed], made) for layer in layers for fed, made in layer.state),
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
