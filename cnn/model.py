"""Read a network from an ONNX file, rewrite it, and cut subnets out of it.

`read` is a sequence of steps, each in its own module: `source` finds and parses the file,
`interface` applies the outputs and constants that the user chose, `inputs` fixes the input shapes,
`fill` draws weights that the file leaves out, `simplify` folds constants and fuses operators,
`shapes` infers every tensor's shape and dtype, and `layers` groups operators into layers. The
result is a `Model`: a `Network` for everything that plans, and the ONNX nodes and weights that
`Model.cut` writes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import onnx
from onnx import helper

from cnn.errors import ModelError
from cnn.layers.grouping import Operators, layers_of, value_info
from cnn.layers.shapes import infer
from cnn.layers.state import StatePairs, check_names, merge_state_cycles
from cnn.network import Array, Layer, Network, read_by
from cnn.operators.bodies import every_node
from cnn.operators.supported import check_domains, check_known, opset
from cnn.reading.fill import fill
from cnn.reading.functions import inlined
from cnn.reading.half_precision import widen
from cnn.reading.inputs import InputShapes, keep_true_inputs, settle
from cnn.reading.interface import Constant, Interface
from cnn.reading.names import make_names_unique, short, shorten
from cnn.reading.narrow_integers import widen_integers
from cnn.reading.source import LocatedModel, locate
from cnn.rewrite.bands import FusedLayers, apply_bands, bandable
from cnn.rewrite.batches import put_in_batches
from cnn.rewrite.copies import apply_copies
from cnn.rewrite.draft import Draft
from cnn.rewrite.rewrites import Bands, Channels, Copies, Rewrite, Slices
from cnn.rewrite.slices import apply_slices, sliceable
from cnn.simplify import simplify
from cnn.subnet import Subnet, write


@dataclass(frozen=True)
class Model:
    """A network with the ONNX nodes and weights that its subnets are cut from.

    `digest` (SHA-256, hexadecimal) identifies the network: it changes with the file, its external
    data, the input shapes, the seed of drawn weights, the chosen outputs and constants, and the
    layers that simplification yields. `filled_seed` is the seed of drawn weights, or None if the
    file has its own weights. `parts` are the models that this one was merged from (`cnn.merge`); it
    is empty for a model that was read. `constant_outputs` are the outputs that depend on no input;
    the network does not contain them. `metadata` are the texts that the exporter put into the file,
    by key; a merged model has none.
    """

    network: Network
    digest: str
    filled_seed: int | None
    _operators: Operators = field(repr=False)
    _weights: Mapping[str, Array] = field(repr=False)
    _origin: _Origin | None = field(repr=False)
    parts: tuple[Model, ...] = field(default=(), repr=False)
    constant_outputs: Mapping[str, Array] = field(default_factory=dict, repr=False)
    metadata: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of a frame's outputs: those that the network computes, then `constant_outputs`."""
        return (*self.network.outputs, *self.constant_outputs)

    @property
    def operators(self) -> Operators:
        """The ONNX nodes of each layer."""
        return self._operators

    @property
    def weights(self) -> Mapping[str, Array]:
        """The values of the weights, by name."""
        return self._weights

    def with_name(self, name: str) -> Model:
        """Return the same model with another name for its network.

        >>> read("examples/digits/digits.onnx").with_name("left").network.name
        'left'
        """
        return replace(self, network=replace(self.network, name=name))

    def cut(
        self,
        phase_layers: Collection[str],
        inputs: Sequence[str],
        outputs: Sequence[str],
        directory: Path,
    ) -> Subnet:
        """Write the named layers as a separate ONNX model into `directory`.

        The model has `inputs`, followed by the state that the layers read, and `outputs`, in these
        orders. Files are named by their content (see `cnn.subnet`), so cutting the same layers
        again yields the same files. Raises `ModelError` if a layer is unknown, if it reads a tensor
        that is neither given nor produced inside, or if no layer produces an output.

        >>> import tempfile
        >>> model = read("examples/digits/digits.onnx")
        >>> with tempfile.TemporaryDirectory() as name:
        ...     folder = Path(name)
        ...     subnet = model.cut(["stem_conv", "stem_relu"], ["image"], ["stem_relu"], folder)
        ...     [node.op_type for node in onnx.load(subnet.graph).graph.node]
        ['Conv', 'Relu']
        """
        wanted = set(phase_layers)
        unknown = wanted - self.network.layer.keys()
        if unknown:
            raise ModelError(f"{self.network.name} has no layer {min(unknown)!r}")
        layers = [layer for layer in self.network.layers if layer.name in wanted]
        inputs = (*inputs, *(name for layer in layers for name, _ in layer.state))
        known = set(inputs)
        for layer in layers:
            for tensor in layer.inputs:
                if tensor not in known:
                    raise ModelError(
                        f"layer {layer.name!r} reads {tensor!r}, which is neither an input of the "
                        "subnet nor made inside it"
                    )
            known.update(layer.outputs)
        made = {tensor for layer in layers for tensor in layer.outputs}
        for tensor in outputs:
            if tensor not in made:
                raise ModelError(f"no layer of the subnet makes its output {tensor!r}")
        graph = helper.make_graph(
            self._operators.nodes([layer.name for layer in layers]),
            _subnet_name(layers),
            [value_info(self.network.tensors[name]) for name in inputs],
            [value_info(self.network.tensors[name]) for name in outputs],
            # Engines choose a kernel by a product's number of rows.
            value_info=[
                value_info(self.network.tensors[name])
                for layer in layers
                if layer.operator in ("Gemm", "MatMul")
                for name in layer.outputs
                if name not in outputs
            ],
        )
        constants = read_by(layers, self._weights).items()
        return write(self._operators.model(graph), constants, directory)

    def rewritten(self, rewrites: Sequence[Rewrite]) -> Model:
        """Return the model with `rewrites` applied in order; it computes the same outputs.

        `digest` stays that of the model as it was read. Raises `ModelError` if a rewrite names an
        unknown layer or cannot be applied.

        >>> model = read("examples/digits/digits.onnx")
        >>> sliced = model.rewritten([Slices("stem_conv", (12, 4))])
        >>> [layer.name for layer in sliced.network.layers[:2]]
        ['stem_conv[1/2]', 'stem_conv[2/2]']
        """
        draft = Draft(self.network, self._operators, self._weights)
        for rewrite in rewrites:
            match rewrite:
                case Slices():
                    apply_slices(draft, rewrite)
                case Bands():
                    apply_bands(draft, rewrite)
                case Copies():
                    apply_copies(draft, rewrite)
                case _:
                    raise ModelError(f"{rewrite!r} is not a rewrite")
        network, operators, weights = draft.finish()
        return replace(self, network=network, _operators=operators, _weights=weights)

    def in_batches(self, frames: int) -> Model:
        """Return the model for batches: a firing of a layer computes `frames` frames at once.

        Axis 0 of each tensor counts the frames. The `digest` changes with their number; `parts` and
        `write_original` stay those of one frame. Raises `ModelError`, which names the layer, if one
        cannot compute several frames at once.

        >>> read("examples/digits/digits.onnx").in_batches(8).network.tensors["logits"].shape
        (8, 10)
        """
        if frames == self.network.batch:
            return self
        if self.network.batch != 1:
            raise ModelError(f"{self.network.name} is in batches already")
        network, operators, weights = put_in_batches(
            self.network, self._operators, self._weights, frames
        )
        digest = hashlib.sha256(f"{self.digest}\nbatch {frames}".encode()).hexdigest()
        return replace(self, network=network, digest=digest, _operators=operators, _weights=weights)

    def slice_channels(self) -> Mapping[str, Channels]:
        """Return the output channels of each layer that can be computed in `Slices`.

        >>> read("examples/digits/digits.onnx").slice_channels()["logits"]
        Channels(count=10, group=1, is_channelwise=False)
        """
        return sliceable(Draft(self.network, self._operators, self._weights))

    def band_layers(self) -> tuple[str, ...]:
        """Return the layers that can be computed in `Bands` of rows, in topological order.

        >>> read("examples/digits/digits.onnx").band_layers()[:2]
        ('stem_conv', 'stem_relu')
        """
        return bandable(Draft(self.network, self._operators, self._weights))

    def fused(self, layers: Sequence[str]) -> FusedLayers:
        """Return what it would cost to compute these layers together in bands.

        Nothing is rewritten. The result has, for any bands, the rows that each layer computes, the
        rows that each band receives, and multiply-accumulates, the halo included. Raises
        `ModelError` if the layers cannot be computed in bands.

        >>> model = read("examples/digits/digits.onnx")
        >>> fused = model.fused(["same1_conv", "same1_relu", "same2_conv"])
        >>> fused.output, fused.height
        ('same2', 8)
        >>> fused.bands([4, 4]).halo_macs
        36864
        """
        return FusedLayers(Draft(self.network, self._operators, self._weights), layers)

    def write_original(self, directory: Path) -> Path:
        """Write the model as it was before simplification, as a reference; return its path.

        State is an input of it like any other. Input shapes are fixed and missing weights are
        filled in. Inputs of which only the shape matters, and which the simplified network
        therefore lacks, become zeros. The file is read again, which needs memory for its weights
        once more unless they lie in external files. Raises `ModelError` for a merged model; write
        the originals of its `parts` instead.

        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     original = read("examples/digits/digits.onnx").write_original(Path(folder))
        ...     len(onnx.load(original).graph.node)
        36
        """
        if self._origin is None:
            raise ModelError(
                f"{self.network.name} was merged from several models; write the original of each "
                "part"
            )
        original = self._origin.prepare()
        graph, zeros = original.proto.graph, {}
        read = {*self.network.inputs, *self.network.state}
        for value in graph.input:
            if value.name not in read:  # only its shape is read
                zeros[value.name] = _zeros(value)
        given = [value for value in graph.input if value.name in read]
        del graph.input[:]
        graph.input.extend(given)
        return write(original.proto, {**original.weights, **zeros}.items(), directory).graph


def _subnet_name(layers: Sequence[Layer]) -> str:
    """Return the name that engines use for the subnet in messages: its first and its last layer."""
    return "…".join(dict.fromkeys((layers[0].name, layers[-1].name))) if layers else "empty"


@dataclass(frozen=True, slots=True)
class _Original:
    """The model before simplification, with all shapes and weights, and a hash of its sources."""

    proto: onnx.ModelProto
    weights: dict[str, Array]
    is_filled: bool
    fingerprint: bytes


@dataclass(frozen=True, slots=True)
class _Origin:
    """The arguments of `read`, from which the model before simplification can be prepared again."""

    source: LocatedModel
    input_shapes: InputShapes
    seed: int
    interface: Interface

    def prepare(self) -> _Original:
        """Read the model, apply the chosen inputs and outputs, and fill in missing weights."""
        proto, weights, fingerprint = self.source.load()
        label = self.source.label
        opset(proto, label)
        proto = inlined(proto, label)
        version = opset(proto, label)
        widen(proto, label)
        widen_integers(proto, weights, label)
        make_names_unique(proto.graph.node)
        choice = self.interface.apply(proto, weights, label)
        nodes = tuple(every_node(proto.graph.node))
        activations = {name for node in proto.graph.node for name in node.output}
        check_domains(nodes, activations, label)
        check_known(nodes, version, activations, label)
        keep_true_inputs(proto, weights)
        shapes = settle(proto, weights, self.input_shapes, label)
        shorten(proto.graph, weights)
        filled = fill(proto, weights, self.seed)
        digest = hashlib.sha256(fingerprint + choice)
        digest.update(repr(sorted(shapes.items())).encode())
        if filled:
            digest.update(f"seed {self.seed}".encode())
        return _Original(proto, weights, filled, digest.digest())


def read(
    path: str | Path,
    *,
    input_shapes: InputShapes = None,
    seed: int = 0,
    outputs: Sequence[str] = (),
    inputs: Mapping[str, Constant] | None = None,
    state: StatePairs | None = None,
) -> Model:
    """Read a network from an ONNX model.

    `path` is a file, `onnx-wheel:NAME` or `builtin:NAME` (see `cnn.reading.source`). `input_shapes`
    fixes open axes: one shape for a model with one input, or a shape per input name. A first axis
    that stays open becomes 1. `seed` matters only for files without weights (see
    `cnn.reading.fill`). The network ends at the tensors `outputs`, which may be any that the file
    names; by default, at the file's outputs. `inputs` replaces inputs by constants. `state` maps an
    input to the output whose value it takes in the next frame (see `cnn.layers.state`).

    Raises `ModelError`: one sentence with the file, the layer or input, and what to do.

    >>> network = read("examples/digits/digits.onnx", outputs=["same_relu"]).network
    >>> network.tensors["same_relu"].shape
    (1, 16, 8, 8)
    >>> network.layer["stem_conv"].macs
    9216
    """
    source = locate(path)
    origin = _Origin(source, input_shapes, seed, Interface(tuple(outputs), dict(inputs or {})))
    original = origin.prepare()
    metadata = {entry.key: entry.value for entry in original.proto.metadata_props}
    state = {short(fed): short(made) for fed, made in (state or {}).items()}
    check_names(original.proto, state, source.label)
    simplified = simplify(original.proto, original.weights, source.label)
    tensors = infer(simplified, source.label)
    layers, operators = layers_of(simplified, tensors)
    made = tuple(value.name for value in simplified.outputs)
    layers, operators = merge_state_cycles(layers, operators, tensors, made, state, source.label)
    inside = {name for layer in layers for name in (*layer.inputs, *layer.outputs)}
    inside.update(state)
    constants = {name for layer in layers for name in layer.weights}
    try:
        network = Network(
            name=source.name,
            layers=layers,
            tensors={name: tensors[name] for name in tensors if name in inside},
            weights={name: tensors[name] for name in tensors if name in constants},
            inputs=tuple(value.name for value in simplified.inputs if value.name not in state),
            outputs=made,
        )
    except ValueError as error:  # such as a branch that reads an unknown tensor
        raise ModelError(f"{source.label}: the file is damaged, export it again: {error}") from None
    digest = hashlib.sha256(original.fingerprint)
    for line in _lines(network):
        digest.update(line.encode() + b"\n")
    return Model(
        network,
        digest.hexdigest(),
        seed if original.is_filled else None,
        operators,
        {name: simplified.weights[name] for name in network.weights},
        origin,
        constant_outputs=simplified.constant_outputs,
        metadata=metadata,
    )


def _lines(network: Network) -> Iterator[str]:
    yield repr((network.inputs, network.outputs))
    for layer in network.layers:
        yield repr(layer)


def _zeros(value: onnx.ValueInfoProto) -> Array:
    """Return zeros in the (static) shape and dtype of an input."""
    described = value.type.tensor_type
    shape = [dim.dim_value for dim in described.shape.dim]
    zeros: Array = np.zeros(shape, helper.tensor_dtype_to_np_dtype(described.elem_type))
    return zeros
