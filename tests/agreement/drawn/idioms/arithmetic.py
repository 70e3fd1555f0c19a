"""Idioms of arithmetic: elementwise operators, reductions, selections and counts."""

from __future__ import annotations

import numpy as np
from onnx import numpy_helper

from tests.agreement.drawn.idioms.convolutions import activation, reduced
from tests.agreement.drawn.idioms.shaping import added
from tests.agreement.drawn.sketch import Sketch, UndrawableError

_UNARY = ("Abs", "Neg", "Sin", "Cos", "Tanh", "Atan", "Erf", "Softsign", "Sigmoid", "Sinh", "Celu",
          "ThresholdedRelu", "Shrink", "Asinh")  # fmt: skip


def elementwise(s: Sketch) -> None:
    source = s.any(2, 3, 4)
    if s.dice.random() < 0.5:
        s.offer(activation(s, source))
        return
    operator = s.dice.choice(_UNARY)
    if operator == "Sinh":
        source = s.one("Tanh", source)
    s.offer(s.one(operator, source))


def positive_only(s: Sketch) -> None:
    """Roots, logarithms and powers of a tensor that was made positive."""
    source = s.any(2, 3, 4)
    made = s.one("Add", s.one("Abs", source), s.constant(0.1, s.dtype))
    operator = s.dice.choice(["Sqrt", "Log", "Reciprocal", "Pow"])
    if operator == "Pow":
        s.offer(s.one("Pow", made, s.constant(s.dice.choice([0.5, 1.5, -0.5]), s.dtype)))
    else:
        s.offer(s.one(operator, made))


def with_constant(s: Sketch) -> None:
    """A constant of any shape that broadcasts, on either side."""
    source = s.any(2, 3, 4)
    shape = [s.dice.choice([1, size]) for size in s.shape(source)]
    shape = shape[s.dice.randint(0, len(shape)) :]
    operator = s.dice.choice(["Add", "Mul", "Sub", "Max", "Min", "Sum", "Mean"])
    s.offer(s.one(operator, *s.dice.sample([source, s.weight(*shape)], 2)))


def divided(s: Sketch) -> None:
    source = s.any(2, 3, 4)
    if s.dice.random() < 0.5:
        s.offer(s.one("Div", source, s.positive(*s.shape(source)[1:])))
    else:
        below = s.one("Add", s.one("Abs", source), s.constant(1.0, s.dtype))
        s.offer(s.one("Div", source, below))


def broadcast(s: Sketch) -> None:
    """Two activations of shapes that broadcast: of images and rows, of rows and columns."""
    source = s.any(2, 3, 4)
    shape = s.shape(source)
    fitting = []
    for name, tensor in s.tensors.items():
        if tensor.dtype == s.dtype:
            pairs = zip(tensor.shape[::-1], shape[::-1], strict=False)
            if all(a == b or 1 in (a, b) for a, b in pairs):
                fitting.append(name)
    operator = s.dice.choice(["Add", "Mul", "Sub", "Max", "Min", "Sum", "Mean"])
    s.offer(s.one(operator, *s.dice.sample([source, s.dice.choice(fitting)], 2)))


def reduction(s: Sketch) -> None:
    """Every reduction over any axes, kept or dropped; over all axes also by giving none."""
    source = s.any(3, 4)
    rank = len(s.shape(source))
    operator = s.dice.choice(
        [
            *("ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin", "ReduceL1", "ReduceL2"),
            *("ReduceProd", "ReduceSumSquare", "ReduceLogSumExp", "ReduceMean"),
        ]
    )
    if operator == "ReduceProd":
        source = s.one("Tanh", source)
    if operator == "ReduceLogSumExp":
        source = s.one("Clip", source, min=-9.0, max=9.0) if s.opset < 11 else s.one("Tanh", source)
    axes = sorted(s.dice.sample(range(1, rank), s.dice.randint(1, rank - 2)))
    if s.dice.random() < 0.1:
        s.offer(s.one(operator, source, keepdims=1))
        return
    s.offer(reduced(s, operator, source, axes, s.dice.randint(0, 1)))


def spread_of(s: Sketch) -> None:
    """The standard deviation as torch exports it."""
    source = s.any(3, 4)
    centred = s.one("Sub", source, reduced(s, "ReduceMean", source, [1], 1))
    square = reduced(s, "ReduceSum", s.one("Mul", centred, centred), [1], 1)
    count = s.one("Gather", s.one("Shape", source), s.constant(1), axis=0)
    count = s.one("Cast", count, to={"float32": 1, "float16": 10}[s.dtype])
    made = s.one("Sqrt", s.one("Add", s.one("Div", square, count), s.constant(1e-2, s.dtype)))
    s.offer(s.one("Div", source, made))


def chosen(s: Sketch) -> None:
    """`Where` by a comparison, with constants or activations on its sides."""
    source = s.any(2, 3, 4)
    limit = s.constant(s.dice.choice([0.0, 0.3]), s.dtype)
    operator = s.dice.choice(["Greater", "Less", "GreaterOrEqual", "LessOrEqual"])
    truth = s.one(operator, source, limit)
    match s.dice.choice(["not", "and", "plain", "cast"]):
        case "not":
            truth = s.one("Not", truth)
        case "and":
            other = s.one("Less", source, s.constant(2.0, s.dtype))
            truth = s.one(s.dice.choice(["And", "Or", "Xor"]), truth, other)
        case "cast":
            kind = {"float32": 1, "float16": 10}[s.dtype]
            s.offer(s.one("Mul", source, s.one("Cast", truth, to=kind)))
            return
    sides = [source, s.dice.choice([s.constant(0.0, s.dtype), s.weight(s.shape(source)[-1])])]
    s.offer(s.one("Where", truth, *s.dice.sample(sides, 2)))


def ranked(s: Sketch) -> None:
    """`TopK` along any axis: its values, or its indices to gather by."""
    source = s.any(2, 3, 4)
    shape = s.shape(source)
    axis = s.dice.randrange(1, len(shape))
    count = s.dice.randint(1, shape[axis])
    if s.opset < 10:
        made = s.several("TopK", [source], 2, k=count, axis=axis)
    else:
        largest = s.dice.choice([None, 1, 0]) if s.opset >= 11 else None
        named = axis - len(shape) if s.opset >= 11 and s.dice.random() < 0.5 else axis
        made = s.several("TopK", [source, s.constant([count])], 2, axis=named, largest=largest)
    if s.dice.random() < 0.3 and s.opset >= 11:
        s.offer(s.one("GatherElements", source, made[1], axis=axis))
    else:
        s.offer(made[0])


def largest(s: Sketch) -> None:
    """The index of the largest element, as a number or one-hot."""
    source = s.any(2, 3, 4)
    shape = s.shape(source)
    axis = s.dice.randrange(1, len(shape))
    last = s.dice.choice([None, 0, 1]) if s.opset >= 12 else None
    operator = s.dice.choice(["ArgMax", "ArgMin"])
    kept = s.dice.randint(0, 1)
    made = s.one(operator, source, axis=axis, keepdims=kept, select_last_index=last)
    if s.dice.random() < 0.3:
        s.offer(made)
    elif s.dice.random() < 0.5 and not kept and len(shape) < 4:
        values = s.constant([0.0, 1.0], s.dtype)
        hot = (*shape[:axis], *shape[axis + 1 :], shape[axis])
        inputs = (made, s.constant(shape[axis]), values)
        s.offer(s.one("OneHot", *inputs, axis=-1, _shape=hot, _dtype=s.dtype))
    else:
        s.offer(s.one("Cast", made, to={"float32": 1, "float16": 10}[s.dtype]))


def summed_up(s: Sketch) -> None:
    """`CumSum`, forward and backward."""
    source = s.any(2, 3)
    axis = s.dice.choice([1, -1])
    flags = {name: s.dice.choice([None, 0, 1]) for name in ("exclusive", "reverse")}
    s.offer(s.one("CumSum", source, s.constant(axis), **flags))


def triangle(s: Sketch) -> None:
    source = s.any(3, 4)
    diagonal = [s.constant(s.dice.randint(-1, 2))] if s.dice.random() < 0.5 else []
    s.offer(s.one("Trilu", source, *diagonal, upper=s.dice.choice([None, 0, 1])))


def contracted(s: Sketch) -> None:
    """`Einsum` in the equations that exporters write."""
    source = s.any(3, 4)
    shape = s.shape(source)
    if len(shape) == 3:
        kind = s.dice.choice(["bld,dk->blk", "bld,bmd->blm", "bld->bdl", "bld->bl"])
    else:
        kind = s.dice.choice(["bchw,ck->bkhw", "nchw->nhwc", "bchw->bc"])
    other = {"bld,dk->blk": (shape[-1], 3), "bchw,ck->bkhw": (shape[1], 3)}.get(kind)
    inputs = [source]
    if other is not None:
        inputs.append(s.weight(*other, scale=other[0] ** -0.5))
    elif kind == "bld,bmd->blm":
        inputs.append(s.one("Sigmoid", source))
    s.offer(s.one("Einsum", *inputs, equation=kind))


def grid(s: Sketch) -> None:
    """Coordinates of a grid, computed from the image's size and added: a detector's anchors."""
    source = s.any(4)
    if s.opset < 13:
        raise UndrawableError("Unsqueeze names axes")
    n, c, h, w = s.shape(source)
    shape = s.one("Shape", source)
    ranges = []
    for axis, size in ((2, h), (3, w)):
        end = s.one("Gather", shape, s.constant(axis), axis=0)
        numbers = s.one("Range", s.constant(0), end, s.constant(1), _shape=(size,), _dtype="int64")
        ranges.append(s.one("Cast", numbers, to={"float32": 1, "float16": 10}[s.dtype]))
    rows = s.one("Mul", added(s, ranges[0], 1), s.constant(0.1, s.dtype))
    made = s.one("Add", rows, added(s, ranges[1], 0), _shape=(h, w))
    s.offer(s.one("Add", source, added(s, made, 0, 1), _shape=(n, c, h, w)))


def filled(s: Sketch) -> None:
    """Zeros in a tensor's own shape, added or concatenated."""
    source = s.any(2, 3, 4)
    value = numpy_helper.from_array(np.full(1, s.dice.choice([0, 1]), s.dtype))
    shape = s.shape(source)
    made = s.one(
        "ConstantOfShape", s.one("Shape", source), value=value, _shape=shape, _dtype=s.dtype
    )
    if s.dice.random() < 0.5:
        s.offer(s.one("Concat", source, made, axis=1))
    else:
        s.offer(s.one("Add", made, source))


def rounded(s: Sketch) -> None:
    source = s.any(2, 3, 4)
    made = s.one("Mul", source, s.constant(4.0, s.dtype))
    operator = s.dice.choice(["Floor", "Ceil", "Round", "Sign"])
    s.offer(s.one(operator, made))


def repeated_twice(s: Sketch) -> None:
    """The same computation twice, from separate constants."""
    source = s.any(2, 3, 4)
    made = [s.one("Mul", source, s.constant(0.5, s.dtype)) for _ in range(2)]
    s.offer(s.one("Add", *(s.one("Tanh", x) for x in made)))


IDIOMS = (
    *(elementwise, elementwise, positive_only, with_constant, with_constant, divided, broadcast),
    *(reduction, reduction, reduction, spread_of, chosen, ranked, largest, summed_up, triangle),
    *(contracted, grid, filled, rounded, repeated_twice),
)
