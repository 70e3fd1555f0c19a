"""Control flow: steps of other idioms, and of these, in branches and in bodies of loops.

The steps are drawn as usual and then moved into a body. They go on reading tensors and weights of
the graph around them by name; some weights become the body's own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from cnn.operators.bodies import every_node, renamed
from tests.agreement.drawn.idioms import arithmetic, convolutions, images, normalising, shaping
from tests.agreement.drawn.sketch import HALF, Sketch, Tensor, UndrawableError

_INSIDE = (
    *convolutions.IDIOMS * 2,
    *images.IDIOMS,
    *normalising.IDIOMS,
    *shaping.IDIOMS,
    *arithmetic.IDIOMS,
)
_DEEPEST = 2
_ANYTHING = (2, 3, 4)


def _moved(
    sketch: Sketch, source: str, finish: Callable[[Sketch, str], list[str]]
) -> tuple[list[onnx.NodeProto], list[str], list[onnx.TensorProto]]:
    """Draw steps that read `source` and perhaps another tensor, and take them out of the graph.

    `finish` makes the results of the body from the steps' last tensor.
    """
    dice = sketch.dice
    nodes, weights, outer = len(sketch.nodes), set(sketch.weights), dict(sketch.tensors)
    kept = {source: sketch.described(source)}
    if dice.random() < 0.5:
        other = dice.choice(list(outer))
        kept[other] = outer[other]
    sketch.tensors = kept
    idioms = (*_INSIDE, *IDIOMS) if sketch.depth < _DEEPEST else _INSIDE
    sketch.depth += 1
    try:
        for _ in range(dice.randint(1, 6)):
            sketch.attempt(dice.choice(idioms))
        made = [name for name in sketch.tensors if name not in kept]
        results = finish(sketch, made[-1] if made else source)
    finally:
        sketch.depth -= 1
        sketch.tensors = outer
    found = sketch.nodes[nodes:]
    del sketch.nodes[nodes:]
    as_nodes = {name for node in every_node(found) for name in node.output}
    free = [name for name in sketch.weights if name not in weights and name not in as_nodes]
    own = [name for name in free if dice.random() < 0.5]
    return found, results, [numpy_helper.from_array(sketch.weights.pop(x), x) for x in own]


def _value(sketch: Sketch, name: str, *, ranked: bool = True) -> onnx.ValueInfoProto:
    tensor = sketch.described(name)
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(tensor.dtype))
    return helper.make_tensor_value_info(name, kind, tensor.shape if ranked else None)


def _condition(sketch: Sketch) -> str:
    """A condition that depends on the data, or now and then not."""
    if sketch.dice.random() < 0.15:
        return sketch.constant(sketch.dice.random() < 0.5, "bool")
    mean = sketch.one("ReduceMean", sketch.any(*_ANYTHING), keepdims=0)
    return sketch.one("Greater", mean, sketch.constant(0.0, sketch.dtype))


def _as_float(sketch: Sketch, name: str) -> str:
    if sketch.described(name).dtype == sketch.dtype:
        return name
    return sketch.one("Cast", name, to={"float32": 1, HALF: 10}[sketch.dtype])


def branches(sketch: Sketch) -> None:
    """An `If` whose branches compute alike, one of them with the sign turned."""
    _check(sketch)
    source, condition = sketch.any(*_ANYTHING), _condition(sketch)
    nodes, (made,), own = _moved(
        sketch, source, lambda inner, last: [inner.one("Neg", _as_float(inner, last))]
    )
    tensor = sketch.described(made)
    ranked = sketch.dice.random() < 0.7
    names = {name: f"{name}_else" for node in nodes for name in node.output if name}
    names |= {x.name: f"{x.name}_else" for x in own}
    other = [renamed(node, names) for node in nodes]
    for node in other:
        node.name = node.name and f"{node.name}_else"
    other[-1].op_type = "Abs"
    graphs = []
    for label, steps, name in (("then", nodes, made), ("else", other, names[made])):
        sketch.types[name] = sketch.types[made]
        weights = [_called(x, names[x.name]) if label == "else" else x for x in own]
        graphs.append(
            helper.make_graph(steps, label, [], [_value(sketch, name, ranked=ranked)], weights)
        )
    (result,) = _add(
        sketch, "If", [condition], [tensor], then_branch=graphs[0], else_branch=graphs[1]
    )
    _offer(sketch, result, ranked=ranked)


def _called(tensor: onnx.TensorProto, name: str) -> onnx.TensorProto:
    copy = onnx.TensorProto()
    copy.CopyFrom(tensor)
    copy.name = name
    return copy


def _step(sketch: Sketch, source: str) -> Callable[[Sketch, str], list[str]]:
    """Make the next value of `source`, of the same type, from the steps' last tensor."""

    def finish(inner: Sketch, last: str) -> list[str]:
        mean = inner.one("ReduceMean", _as_float(inner, last), keepdims=0)
        bounded = inner.one("Tanh", mean)
        return [inner.one("Add", source, bounded), bounded]

    return finish


def loop(sketch: Sketch) -> None:
    """A `Loop` of a constant number of iterations, or of one that depends on the data."""
    _check(sketch)
    dice = sketch.dice
    source = sketch.any(*_ANYTHING)
    tensor, ranked = sketch.described(source), dice.random() < 0.6
    count = sketch.constant(dice.randint(1, 3), "int64")
    varies = dice.random() < 0.7
    if varies:
        some = sketch.one("Cast", _condition(sketch), to=TensorProto.INT64)
        count = sketch.one("Add", count, some)
    value, going = sketch.fresh(tensor), sketch.fresh(Tensor((), "bool"))
    number = sketch.fresh(Tensor((), "int64"))
    nodes, (following, scanned), own = _moved(sketch, value, _step(sketch, value))
    goes = sketch.fresh(Tensor((), "bool"))
    nodes.append(helper.make_node("Identity", [going], [goes]))
    scans = [] if varies or dice.random() < 0.5 else [scanned]
    body = helper.make_graph(
        nodes, "body",
        [_value(sketch, number), _value(sketch, going), _value(sketch, value, ranked=ranked)],
        [_value(sketch, goes), _value(sketch, following, ranked=ranked),
         *(_value(sketch, name) for name in scans)],
        own,
    )  # fmt: skip
    started = sketch.constant(True, "bool")
    rows = [Tensor((int(sketch.weights[count]),), tensor.dtype)] if scans else []
    result, *more = _add(sketch, "Loop", [count, started, source], [tensor, *rows], body=body)
    _offer(sketch, result, ranked=ranked)
    sketch.offer(*more)


def scan(sketch: Sketch) -> None:
    """A `Scan` over the rows of a tensor, or of a weight, with a state."""
    _check(sketch)
    dice = sketch.dice
    source = sketch.any(*_ANYTHING)
    tensor = sketch.described(source)
    rows, axis = sketch.weight(dice.randint(1, 4), dice.randint(1, 4)), 0
    if dice.random() < 0.5:
        rows = sketch.any(2, 3)
        axis = dice.randrange(sketch.described(rows).rank)
    shape = list(sketch.shape(rows))
    length = shape.pop(axis)
    value, row = sketch.fresh(tensor), sketch.fresh(Tensor(tuple(shape), tensor.dtype))
    step = _step(sketch, value)

    def finish(inner: Sketch, last: str) -> list[str]:
        following, bounded = step(inner, last)
        return [following, inner.one("Mul", row, bounded)]

    nodes, (following, made), own = _moved(sketch, value, finish)
    body = helper.make_graph(
        nodes, "body", [_value(sketch, value), _value(sketch, row)],
        [_value(sketch, following), _value(sketch, made)], own,
    )  # fmt: skip
    found = _add(
        sketch, "Scan", [source, rows],
        [tensor, Tensor((length, *shape), tensor.dtype)],
        body=body, num_scan_inputs=1, scan_input_axes=[axis],
    )  # fmt: skip
    sketch.offer(*found)


def sparse(sketch: Sketch) -> None:
    """A sum with a constant that is written sparsely."""
    source = sketch.any(*_ANYTHING)
    if sketch.opset < 11 or sketch.dtype == HALF:
        raise UndrawableError("no sparse constants")
    shape = sketch.shape(source)[1:]
    size = int(np.prod(shape))
    places = sorted(sketch.dice.sample(range(size), min(size, 3)))
    values = sketch.numbers.standard_normal(len(places)).astype(np.float32)
    (name,) = _add(
        sketch, "Constant", [], [Tensor(shape, "float32")],
        sparse_value=helper.make_sparse_tensor(
            numpy_helper.from_array(values), numpy_helper.from_array(np.array(places)), shape
        ),
    )  # fmt: skip
    sketch.offer(sketch.one("Add", source, name))


def few_bits(sketch: Sketch) -> None:
    """A product with a matrix of four bits."""
    source = sketch.any(2, 3)
    if sketch.opset < 21 or sketch.dtype == HALF:
        raise UndrawableError("no integers of four bits")
    rows, columns = sketch.shape(source)[-1], sketch.dice.randint(1, 6)
    kind, least, most = sketch.dice.choice([(TensorProto.INT4, -8, 7), (TensorProto.UINT4, 0, 15)])
    values = sketch.numbers.integers(least, most + 1, (rows, columns))
    tensor = helper.make_tensor("q", kind, values.shape, values.reshape(-1))
    quantised = sketch.fresh(Tensor(values.shape, "int8"))
    sketch.nodes.append(helper.make_node("Constant", [], [quantised], value=tensor))
    scale = sketch.constant(sketch.numbers.random(columns) / 8 + 0.01, "float32", as_node=False)
    (weight,) = _add(
        sketch, "DequantizeLinear", [quantised, scale], [Tensor(values.shape, "float32")], axis=1
    )
    sketch.offer(sketch.one("MatMul", source, weight))


def _add(
    sketch: Sketch,
    operator: str,
    inputs: Sequence[str],
    made: Sequence[Tensor],
    **attributes: object,
) -> list[str]:
    """Add a node whose outputs have these types."""
    names = [sketch.fresh(tensor) for tensor in made]
    name = f"{operator}_{names[0]}" if sketch.named else ""
    sketch.nodes.append(helper.make_node(operator, inputs, names, name, **attributes))
    return names


def _offer(sketch: Sketch, name: str, *, ranked: bool) -> None:
    """Offer a result; behind one of unknown rank there is always an operator."""
    sketch.offer(name if ranked else sketch.one("Relu", name))


def _check(sketch: Sketch) -> None:
    if sketch.opset < 11:  # bodies may not have their own initialisers, and `Scan` had batches
        raise UndrawableError("no bodies")


IDIOMS = (branches, loop, scan)
CONSTANTS = (sparse, few_bits)
