"""Reading a network, and cutting subnets out of it.

`read` takes an ONNX file through a fixed row of steps, each a module of its own: `source` finds and
parses it, `inputs` settles its input shapes, `fill` makes up weights that were left out, `simplify`
folds and fuses, `shapes` describes every tensor, `macs` counts. What remains is a `Network` for
everything that decides, and the operators and weights that `Model.cut` writes out.
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
from cnn.network import Layer, Network
from cnn.operators.supported import check_domains, check_known, opset
from cnn.reading.bodies import every_node
from cnn.reading.fill import fill
from cnn.reading.functions import inlined
from cnn.reading.half_precision import widen
from cnn.reading.inputs import InputShapes, keep_true_inputs, settle
from cnn.reading.interface import Constant, Interface
from cnn.reading.layers import Operators, layers_of, value_info
from cnn.reading.names import make_names_unique, short, shorten
from cnn.reading.shapes import infer
from cnn.reading.source import Source, locate
from cnn.reading.state import StatePairs, check_names, merge_state_cycles
from cnn.reading.weights import Array
from cnn.rewrite.bands import FusedLayers, apply_bands, bandable
from cnn.rewrite.copies import apply_copies
from cnn.rewrite.draft import Draft
from cnn.rewrite.rewrites import Bands, Channels, Copies, Rewrite, Slices
from cnn.rewrite.slices import apply_slices, sliceable
from cnn.simplify import simplify
from cnn.subnet import Subnet, write


@dataclass(frozen=True)
class Model:
    """A network that has been read: its layer graph and all that is needed to cut it.

    `digest` (SHA-256, hexadecimal) changes with the file, its external data, the input shapes, the
    seed if weights were filled in, the outputs and constants that were asked for, and the layers
    that simplification yields. `filled_seed` is that seed, None for a model with weights of its
    own. `parts` are the models that it was merged from (`cnn.merge`), none if it was read.
    `constant_outputs` are outputs that no input reaches; the network does not have them.
    """

    network: Network
    digest: str
    filled_seed: int | None
    _operators: Operators = field(repr=False)
    _weights: Mapping[str, Array] = field(repr=False)
    _origin: _Origin | None = field(repr=False)
    parts: tuple[Model, ...] = field(default=(), repr=False)
    constant_outputs: Mapping[str, Array] = field(default_factory=dict, repr=False)

    @property
    def outputs(self) -> tuple[str, ...]:
        """All that a frame gives: what the network makes, and then `constant_outputs`."""
        return (*self.network.outputs, *self.constant_outputs)

    @property
    def operators(self) -> Operators:
        """The ONNX nodes of its layers."""
        return self._operators

    @property
    def weights(self) -> Mapping[str, Array]:
        """The values of its weights, by name."""
        return self._weights

    def with_name(self, name: str) -> Model:
        """The same model under another name of its network."""
        return replace(self, network=replace(self.network, name=name))

    def cut(
        self,
        phase_layers: Collection[str],
        inputs: Sequence[str],
        outputs: Sequence[str],
        directory: Path,
    ) -> Subnet:
        """Write the named layers as an ONNX model of their own into `directory`.

        `inputs` and `outputs` become the model's, in that order, and behind those inputs the state
        that the layers read. Files are named by their content (see `cnn.subnet`), so the same cut
        is the same file. Raises `ModelError` if a layer is
        unknown, reads a tensor that is neither given nor made inside, or an output is not made.
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
            # Engines choose by how many rows a product has.
            value_info=[
                value_info(self.network.tensors[name])
                for layer in layers
                if layer.operator in ("Gemm", "MatMul")
                for name in layer.outputs
                if name not in outputs
            ],
        )
        names = dict.fromkeys(name for layer in layers for name in layer.weights)
        constants = ((name, self._weights[name]) for name in names)
        return write(self._operators.model(graph), constants, directory)

    def rewritten(self, rewrites: Sequence[Rewrite]) -> Model:
        """The model with `rewrites` carried out in order; it computes the same.

        `digest` stays that of the model as it was read. Raises `ModelError` if a rewrite names an
        unknown layer or cannot be done.
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
                    raise ModelError(f"{rewrite!r} cannot be carried out")
        network, operators, weights = draft.finish()
        return replace(self, network=network, _operators=operators, _weights=weights)

    def slice_channels(self) -> Mapping[str, Channels]:
        """Layer → its output channels, of all layers that can be computed in `Slices`."""
        return sliceable(Draft(self.network, self._operators, self._weights))

    def band_layers(self) -> tuple[str, ...]:
        """The layers that can be computed in `Bands` of rows, in topological order."""
        return bandable(Draft(self.network, self._operators, self._weights))

    def fused(self, layers: Sequence[str]) -> FusedLayers:
        """What bands of these layers would take: the rows that each layer makes, those that come
        from outside, multiply-accumulates, halo included. Nothing is rewritten.

        Raises `ModelError` if the layers cannot be computed in bands.
        """
        return FusedLayers(Draft(self.network, self._operators, self._weights), layers)

    def write_original(self, directory: Path) -> Path:
        """Write the model as it was before simplification, for an independent reference run.

        State is an input of it like any other. Input shapes are those that were settled on, and
        missing weights are filled in; inputs that the simplified network does not have, as only
        their shapes matter, are zeros. The file is read anew, which takes the memory of its weights
        once more meanwhile unless they lie in external files. A merged model has no original of its
        own, but its `parts` have: raises `ModelError`.
        """
        if self._origin is None:
            raise ModelError(f"{self.network.name} was merged; write the originals of its parts")
        original = self._origin.prepare()
        graph, zeros = original.proto.graph, {}
        read = {*self.network.inputs, *self.network.state}
        for value in graph.input:
            if value.name not in read:  # nothing but its shape is read
                zeros[value.name] = _zeros(value)
        given = [value for value in graph.input if value.name in read]
        del graph.input[:]
        graph.input.extend(given)
        return write(original.proto, {**original.weights, **zeros}.items(), directory).graph


def _subnet_name(layers: Sequence[Layer]) -> str:
    """What the engine's messages call the subnet: its first and its last layer."""
    return "…".join(dict.fromkeys((layers[0].name, layers[-1].name))) if layers else "empty"


@dataclass(frozen=True, slots=True)
class _Original:
    """The model as it was, but with static inputs and all weights; a hash of what it came from."""

    proto: onnx.ModelProto
    weights: dict[str, Array]
    is_filled: bool
    fingerprint: bytes


@dataclass(frozen=True, slots=True)
class _Origin:
    """How to come by the unsimplified model, again if need be."""

    source: Source
    input_shapes: InputShapes
    seed: int
    interface: Interface

    def prepare(self) -> _Original:
        """Read the model, settle its inputs and outputs, and fill in what is missing."""
        proto, weights, fingerprint = self.source.load()
        label = self.source.label
        version = opset(proto, label)
        proto = inlined(proto, label)
        widen(proto, label)
        make_names_unique(proto.graph.node)
        asked = self.interface.apply(proto, weights, label)
        nodes = tuple(every_node(proto.graph.node))
        activations = {name for node in proto.graph.node for name in node.output}
        activations.update(value.name for value in proto.graph.input)
        activations.difference_update(weights)
        check_domains(nodes, activations, label)
        check_known(nodes, version, activations, label)
        keep_true_inputs(proto, weights)
        shapes = settle(proto, self.input_shapes, label)
        shorten(proto.graph, weights)
        filled = fill(proto, weights, self.seed)
        digest = hashlib.sha256(fingerprint + asked)
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
    """Read an ONNX model.

    `path` is a file, `onnx-wheel:NAME` or `builtin:NAME` (see `cnn.reading.source`). `input_shapes`
    settles open axes: one shape for a model with one input, or one per input name; an open first
    axis that is not given becomes 1. `seed` matters if the file holds no weights (see
    `cnn.reading.fill`). The network stops at the tensors `outputs`, which may be any that the file
    names; without them, at the file's own. `inputs` binds inputs to constants, which are no inputs
    any more. `state` maps inputs to the outputs that take their place in the next frame (see
    `cnn.reading.state`).

    Raises `ModelError`: one sentence with the file, the layer or input, and what to do.
    """
    source = locate(path)
    origin = _Origin(source, input_shapes, seed, Interface(tuple(outputs), dict(inputs or {})))
    original = origin.prepare()
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
    except ValueError as error:  # a branch that reads what nothing makes, say
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
    )


def _lines(network: Network) -> Iterator[str]:
    yield repr((network.inputs, network.outputs))
    for layer in network.layers:
        yield repr(layer)


def _zeros(value: onnx.ValueInfoProto) -> Array:
    """Of an input whose shape is settled."""
    described = value.type.tensor_type
    shape = [dim.dim_value for dim in described.shape.dim]
    zeros: Array = np.zeros(shape, helper.tensor_dtype_to_np_dtype(described.elem_type))
    return zeros
