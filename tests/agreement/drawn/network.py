"""Draw one network from one seed: inputs, a walk of idioms, outputs, and the form of the file."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import helper, numpy_helper

from cnn.operators.bodies import every_node, reads
from tests.agreement.drawn.idioms import (
    arithmetic,
    bodies,
    convolutions,
    images,
    normalising,
    quantised,
    sequences,
    shaping,
)
from tests.agreement.drawn.sketch import HALF, Sketch, Tensor

OPSETS = (9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21)

_VISION = (
    *convolutions.IDIOMS * 2,
    *images.IDIOMS,
    *normalising.IDIOMS,
    *shaping.IDIOMS,
    *arithmetic.IDIOMS,
)
_SEQUENCES = (*sequences.IDIOMS * 3, *shaping.IDIOMS, *arithmetic.IDIOMS, *normalising.IDIOMS)
_EIGHT_BITS = (*quantised.IDIOMS * 4, *shaping.IDIOMS, *convolutions.IDIOMS)
_ANY = (*_VISION, *_SEQUENCES, *quantised.IDIOMS)
_BODIES = (*bodies.IDIOMS * 12, *bodies.CONSTANTS * 4, *_VISION)
_STYLES = ((_VISION, 4), (_SEQUENCES, 3), (_EIGHT_BITS, 1), (_ANY, 2))


@dataclass(frozen=True)
class Drawn:
    """A drawn model.

    It has the shapes of its inputs for reading it, whether it computes in half precision, the types
    of all its tensors, and the idioms that it consists of.
    """

    seed: int
    model: onnx.ModelProto
    inputs: dict[str, Tensor]
    half: bool
    types: Mapping[str, onnx.TypeProto]
    idioms: tuple[str, ...]


def draw(seed: int, *, with_bodies: bool = False) -> Drawn:
    """Draw the network of that seed: three to ten idioms.

    One `with_bodies` has control flow, sparse constants and integers of four bits among them, and
    perhaps functions and ONNX's domain spelt out.
    """
    dice = random.Random(seed)
    opset = dice.choice(OPSETS[2:] if with_bodies else OPSETS)
    sketch = Sketch(dice, opset, HALF if dice.random() < 0.12 else "float32")
    for _ in range(dice.choice([1, 1, 1, 2])):
        _input(sketch)
    styles, weights = zip(*_STYLES, strict=True)
    (idioms,) = dice.choices(styles, weights)
    if with_bodies:
        idioms = _BODIES
    used: list[str] = []
    wanted = dice.randint(3, 10)
    for _ in range(6 * wanted):
        idiom = dice.choice(idioms)
        if sketch.attempt(idiom):
            used.append(f"{idiom.__module__.rpartition('.')[2]}.{idiom.__name__}")
        if len(used) == wanted:
            break
    outputs = _outputs(sketch)
    model, half = _model(sketch, outputs), sketch.dtype == HALF
    if with_bodies:
        _write_otherwise(model, dice)
    return Drawn(seed, model, sketch.inputs, half, sketch.types, tuple(used))


_CALLED = frozenset({"Abs", "Add", "Mul", "Neg", "Relu", "Sigmoid", "Tanh"})


def _write_otherwise(model: onnx.ModelProto, dice: random.Random) -> None:
    """Perhaps make functions of some operators, and spell ONNX's domain out."""
    version = model.opset_import[0].version
    if dice.random() < 0.4:
        for node in model.graph.node:
            if node.op_type in _CALLED and not node.domain and dice.random() < 0.5:
                alike = [x for x in OPSETS if _since(node, x) == _since(node, version)]
                _call(model, node, dice.choice(alike))
    if dice.random() < 0.4:
        model.opset_import[0].domain = "ai.onnx"
        for node in model.graph.node:  # in bodies, ONNX Runtime does not know this spelling
            if not node.domain and dice.random() < 0.7:
                node.domain = "ai.onnx"


def _since(node: onnx.NodeProto, version: int) -> int:
    return int(onnx.defs.get_schema(node.op_type, version).since_version)


def _call(model: onnx.ModelProto, node: onnx.NodeProto, version: int) -> None:
    """Let a node call a function of the model that does the same, written for that version."""
    name = f"{node.op_type}_{version}"
    if all(function.name != name for function in model.functions):
        inputs = [f"i{number}" for number in range(len(node.input))]
        inner = helper.make_node(node.op_type, inputs, ["o"])
        imports = [helper.make_opsetid("", version)]
        model.functions.append(helper.make_function("lib", name, inputs, ["o"], [inner], imports))
    if all(entry.domain != "lib" for entry in model.opset_import):
        model.opset_import.append(helper.make_opsetid("lib", 1))
    node.domain, node.op_type = "lib", name


def _input(sketch: Sketch) -> None:
    """Mostly an image, now and then of a camera's bytes, or a sequence."""
    dice = sketch.dice
    if dice.random() < 0.2:
        sketch.offer(sketch.input((1, dice.randint(2, 9), dice.randint(2, 8))))
        return
    shape = (1, dice.choice([1, 2, 3, 3, 4, 6]), dice.randint(4, 12), dice.randint(4, 12))
    if dice.random() < 0.1:
        name = sketch.input(shape, "uint8")
        kind = {"float32": 1, HALF: 10}[sketch.dtype]
        scale = sketch.constant(1 / 255, sketch.dtype)
        name = sketch.one("Mul", sketch.one("Cast", name, to=kind), scale)
    else:
        name = sketch.input(shape)
    sketch.offer(name)


def _outputs(sketch: Sketch) -> list[str]:
    """Unread tensors, or some of them (the others are dead branches), and one inner tensor."""
    dice = sketch.dice
    read = {name for node in sketch.nodes for name in reads(node)}
    made = [name for name in sketch.tensors if name not in sketch.inputs]
    ends = [name for name in made if name not in read]
    if len(ends) > 1 and dice.random() < 0.4:
        ends = dice.sample(ends, dice.randint(1, len(ends)))
    inside = [name for name in made if name in read]
    if inside and dice.random() < 0.25:
        ends.append(dice.choice(inside))
    return ends or [_last(sketch)]


def _last(sketch: Sketch) -> str:
    """Finish a sketch in which no idiom fits."""
    made = sketch.one("Relu", next(iter(sketch.tensors)))
    sketch.offer(made)
    return made


def _model(sketch: Sketch, outputs: list[str]) -> onnx.ModelProto:
    """Now and then with an open first axis, weights listed as inputs, or types of inner tensors."""
    dice = sketch.dice
    as_nodes = {name for node in every_node(sketch.nodes) for name in node.output}
    weights = {name: x for name, x in sketch.weights.items() if name not in as_nodes}
    batch = dice.choice(["", "", "batch"])
    inputs = [_value(name, tensor, batch) for name, tensor in sketch.inputs.items()]
    read = {name for node in sketch.nodes for name in reads(node)}
    inputs = [x for x in inputs if x.name in read or dice.random() < 0.5] or inputs[:1]
    if dice.random() < 0.05:
        inputs += [
            _value(name, Tensor(array.shape, array.dtype.name), "")
            for name, array in weights.items()
        ]
    graph = helper.make_graph(
        sketch.nodes,
        "drawn",
        inputs,
        [_value(name, sketch.tensors[name], "open" if batch else "") for name in outputs],
        [numpy_helper.from_array(x, n) for n, x in weights.items()],
    )
    if not batch and dice.random() < 0.3:
        graph.value_info.extend(
            helper.make_value_info(name, sketch.types[name])
            for name in sketch.tensors
            if name not in sketch.inputs and name not in outputs
        )
    opset = helper.make_opsetid("", sketch.opset)
    return helper.make_model(graph, opset_imports=[opset], ir_version=dice.choice([8, 9, 10]))


def _value(name: str, tensor: Tensor, batch: str) -> onnx.ValueInfoProto:
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(tensor.dtype))
    shape: list[int | str | None] = list(tensor.shape)
    if batch == "open":
        shape = [f"{name} {axis}" for axis in range(tensor.rank)]
    elif batch and shape:
        shape[0] = batch
    return helper.make_tensor_value_info(name, kind, shape)
