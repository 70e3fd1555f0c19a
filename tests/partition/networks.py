"""Layer graphs with weights to divide: chains, a residual network, and any small one (hypothesis).

Sizes are powers of two and sums of a few of them, so that sums in floating point are exact.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from hypothesis import strategies as st

from cnn.network import Layer, Network, Tensor
from partition.devices import ONNX_RUNTIME, Device, EngineOverhead


def chain(*macs: int, elements: int = 8, weights: Sequence[int] = ()) -> Network:
    """l0 → l1 → …: one layer per entry of `macs`; every tensor has `elements` floats.

    `weights[i]` is the number of floats that layer i holds (none by default).
    """
    given = weights or [0] * len(macs)
    layers = tuple(
        Layer(f"l{i}", "Conv", (f"t{i}",), (f"t{i + 1}",), (f"w{i}",) if given[i] else (), macs[i])
        for i in range(len(macs))
    )
    tensors = [Tensor(f"t{i}", (1, elements), "float32") for i in range(len(macs) + 1)]
    held = [Tensor(f"w{i}", (count,), "float32") for i, count in enumerate(given) if count]
    return _network(layers, tensors, held, ("t0",), (f"t{len(macs)}",))


def residual(blocks: int = 16, seed: int = 0) -> Network:
    """A residual network in miniature: per block two convolutions, each with a rectifier, and a
    sum; channels double and maps shrink every quarter, so work is even and weights are at the end.
    """
    rng = np.random.default_rng(seed)
    layers: list[Layer] = []
    tensors = {"x": Tensor("x", (1, 4096), "float32")}
    weights: dict[str, Tensor] = {}

    def add(
        operator: str, reads: Sequence[str], elements: int, held: int = 0, macs: int = 0
    ) -> str:
        name = f"l{len(layers)}"
        made = f"t{len(layers)}"
        tensors[made] = Tensor(made, (1, elements), "float32")
        if held:
            weights[f"w{len(layers)}"] = Tensor(f"w{len(layers)}", (held,), "float32")
        own = (f"w{len(layers)}",) if held else ()
        layers.append(Layer(name, operator, tuple(dict.fromkeys(reads)), (made,), own, macs))
        return made

    source = "x"
    for block in range(blocks):
        stage = 4 * block // blocks
        elements, held = 65536 >> stage, 16384 << (2 * stage)
        macs = [int(4e7 * rng.uniform(0.5, 1.5)) for _ in range(2)]
        first = add("Relu", [add("Conv", [source], elements, held, macs[0])], elements)
        second = add("Conv", [first], elements, held, macs[1])
        same = tensors[source].elements == elements
        summed = add("Add", [second, source] if same else [second], elements)
        source = add("Relu", [summed], elements)
    add("Gemm", [source], 1000, 65536, 65536)
    return _network(tuple(layers), list(tensors.values()), list(weights.values()), ("x",), None)


@st.composite
def networks(draw: st.DrawFn, max_layers: int = 10) -> Network:
    """Any small acyclic layer graph with weights, some of them shared, and some layers heavy."""
    made = [f"x{i}" for i in range(draw(st.integers(1, 2)))]
    inputs = tuple(made)
    sizes = st.sampled_from((1, 2, 4, 16, 256, 4096))
    layers: list[Layer] = []
    weights: list[str] = []
    for i in range(draw(st.integers(1, max_layers))):
        recent = st.sampled_from(made[-3:])
        read = draw(st.lists(st.one_of(recent, st.sampled_from(made)), min_size=1, max_size=3))
        out = tuple(f"t{i}.{j}" for j in range(draw(st.sampled_from((1, 1, 1, 2)))))
        if draw(st.booleans()):
            weights.append(f"w{i}")
        held = draw(st.lists(st.sampled_from(weights), max_size=2)) if weights else []
        macs = draw(st.sampled_from((0, 0, 1024, 65536, 1 << 20)))
        operator = draw(st.sampled_from(("Conv", "Relu", "Reshape")))
        layers.append(
            Layer(
                f"l{i}", operator, tuple(dict.fromkeys(read)), out, tuple(dict.fromkeys(held)), macs
            )
        )
        made.extend(out)
    outputs = draw(st.lists(st.sampled_from(made), min_size=1, max_size=2, unique=True))
    return _network(
        tuple(layers),
        [Tensor(name, (1, draw(sizes)), "float32") for name in made],
        [Tensor(name, (draw(sizes),), "float32") for name in weights],
        inputs,
        tuple(outputs),
    )


@st.composite
def device_sets(draw: st.DrawFn, max_devices: int = 4) -> tuple[Device, ...]:
    """One to four devices of any speeds, some of them on one machine."""
    return tuple(
        Device(
            f"d{i}",
            macs_per_s=draw(st.sampled_from((2.0**24, 2.0**26, 2.0**30))),
            memory_bytes_per_s=draw(st.sampled_from((2.0**22, 2.0**30))),
            cut_s_per_byte=draw(st.sampled_from((2.0**-22, 2.0**-30))),
            link_bytes_per_s=draw(st.sampled_from((2.0**12, 2.0**20, 2.0**30))),
            host=draw(st.sampled_from((None, None, "box"))),
            host_cores=draw(st.integers(1, 2)),
            run_s=draw(st.sampled_from((0.0, 2.0**-12))),
            firing_s=2.0**-13,
            wire_s_per_message=2.0**-14,
            wire_s_per_byte=2.0**-31,
            wire_is_free=draw(st.booleans()),
            cache_bytes=draw(st.sampled_from((None, None, 0, 1024))),
            cache_s_per_byte=2.0**-20,
            idle_w=draw(st.sampled_from((0.0, 2.5))),
            sent_j_per_byte=2.0**-20,
            engine_overhead=draw(
                st.sampled_from((ONNX_RUNTIME, EngineOverhead(2**26, 2**20, 2**16)))
            ),
        )
        for i in range(draw(st.integers(1, max_devices)))
    )


@st.composite
def partitioned(draw: st.DrawFn) -> tuple[Network, tuple[Device, ...], Mapping[str, str]]:
    """Any small network, any devices and any assignment."""
    network, devices = draw(networks()), draw(device_sets())
    names = st.sampled_from([device.name for device in devices])
    return network, devices, {layer.name: draw(names) for layer in network.layers}


def _network(
    layers: tuple[Layer, ...],
    tensors: Sequence[Tensor],
    weights: Sequence[Tensor],
    inputs: tuple[str, ...],
    outputs: tuple[str, ...] | None,
) -> Network:
    return Network(
        "example",
        layers,
        {tensor.name: tensor for tensor in tensors},
        {weight.name: weight for weight in weights},
        inputs,
        (layers[-1].outputs[0],) if outputs is None else outputs,
    )
