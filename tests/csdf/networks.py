"""Layer graphs to convert: the paper's example, chains, and any small network (hypothesis)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hypothesis import strategies as st

from cnn.network import Layer, Network, Tensor


def network(
    reads: Mapping[str, Sequence[str]],
    shapes: Mapping[str, tuple[int, ...]] | None = None,
    inputs: Sequence[str] = ("x",),
    outputs: Sequence[str] | None = None,
) -> Network:
    """A network whose layers each make one tensor of their own name.

    `reads` lists layers in topological order with the tensors that they read; tensors without a
    shape have four elements. Outputs are, unless given, the tensors that nobody reads.
    """
    names = [*inputs, *reads]
    read = {tensor for tensors in reads.values() for tensor in tensors}
    given = shapes or {}
    return Network(
        name="example",
        layers=tuple(
            Layer(name, "Op", tuple(dict.fromkeys(tensors)), (name,))
            for name, tensors in reads.items()
        ),
        tensors={name: Tensor(name, given.get(name, (1, 4)), "float32") for name in names},
        weights={},
        inputs=tuple(inputs),
        outputs=tuple(outputs)
        if outputs is not None
        else tuple(name for name in reads if name not in read),
    )


def paper_example() -> tuple[Network, dict[str, str]]:
    """Figure 2(a) and Table 2 of Tang & Stefanov (2021): 23 layers, 24 edges, 5 devices.

    The text gives all edges but one, which must lie inside one phase, or there would be an eighth
    channel: here l14 → l17, a skip inside device 4's first phase.
    """
    reads = {f"l{i}": [f"l{i - 1}"] for i in range(1, 24)}
    reads["l1"] = ["x"]
    reads["l11"] = ["l8"]
    reads["l13"] = ["l10", "l12"]
    reads["l17"] = ["l16", "l14"]
    shapes = {"l7": (1, 30, 30, 208), "l8": (1, 30, 30, 208)}
    shapes |= {f"l{i}": (1, 15, 15, 100) for i in range(9, 14)}
    devices = {
        1: range(1, 8),
        2: (8, 9, 10, 13),
        3: (11, 12),
        4: (*range(14, 19), 21, 22, 23),
        5: (19, 20),
    }
    partition = {f"l{i}": f"device{d}" for d, layers in devices.items() for i in layers}
    return network(reads, shapes), partition


@st.composite
def networks(draw: st.DrawFn, max_layers: int = 14) -> Network:
    """Any small acyclic layer graph: several inputs and outputs, tensors of any size, dead ends."""
    inputs = [f"x{i}" for i in range(draw(st.integers(1, 2)))]
    layers: list[Layer] = []
    made = list(inputs)
    for i in range(draw(st.integers(1, max_layers))):
        # Mostly recent tensors, so that there are chains as well as long skips.
        recent = st.sampled_from(made[-3:])
        read = draw(st.lists(st.one_of(recent, st.sampled_from(made)), min_size=1, max_size=3))
        out = tuple(f"t{i}.{j}" for j in range(draw(st.sampled_from((1, 1, 1, 2)))))
        layers.append(Layer(f"l{i}", "Op", tuple(dict.fromkeys(read)), out))
        made.extend(out)
    read_at_all = {tensor for layer in layers for tensor in layer.inputs}
    outputs = [name for name in made if name not in read_at_all and name not in inputs]
    outputs += draw(st.lists(st.sampled_from(made), max_size=2))
    sizes = {name: draw(st.sampled_from((1, 2, 3, 8, 100))) for name in made}
    return Network(
        name="random",
        layers=tuple(layers),
        tensors={name: Tensor(name, (1, sizes[name]), "float32") for name in made},
        weights={},
        inputs=tuple(inputs),
        outputs=tuple(dict.fromkeys(outputs)) or (made[-1],),
    )


@st.composite
def partitioned(draw: st.DrawFn, max_layers: int = 14) -> tuple[Network, dict[str, str]]:
    """Any small network and any assignment of its layers to at most four devices."""
    found = draw(networks(max_layers))
    names = [f"dev{i}" for i in range(draw(st.integers(1, 4)))]
    return found, {layer.name: draw(st.sampled_from(names)) for layer in found.layers}
