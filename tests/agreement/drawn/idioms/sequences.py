"""Idioms of transformers and recurrent layers, on tensors [batch, length, features]."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import numpy_helper

from tests.agreement.drawn.idioms.convolutions import activation, reduced
from tests.agreement.drawn.idioms.shaping import added, dropped
from tests.agreement.drawn.sketch import Sketch, UndrawableError


def tokens(s: Sketch) -> None:
    """An image as the sequence of its pixels."""
    source = s.any(4)
    n, c, h, w = s.shape(source)
    wanted = s.constant([n, c, -1])
    if s.opset >= 10 and s.dice.random() < 0.5:
        bounds = (s.constant([x]) for x in (0, 2, 0))
        wanted = s.one("Slice", s.one("Shape", source), *bounds, _shape=(2,))
        wanted = s.one("Concat", wanted, s.constant([-1]), axis=0)
    made = s.one("Reshape", source, wanted, _shape=(n, c, h * w))
    s.offer(s.one("Transpose", made, perm=[0, 2, 1]))


def class_token(s: Sketch) -> None:
    """A learnt token at the start, and learnt positions."""
    source = s.any(3)
    n, length, features = s.shape(source)
    if length > 40:
        raise UndrawableError("long")
    token = s.weight(1, 1, features)
    if s.opset >= 13:
        size = s.one("Gather", s.one("Shape", source), s.constant([0]), axis=0)
        wanted = s.one("Concat", size, s.constant([-1, -1]), axis=0)
        value = numpy_helper.from_array(np.ones(1, np.int64))
        ones = s.one("ConstantOfShape", s.constant([3]), value=value)
        wanted = s.one("Where", s.one("Equal", wanted, s.constant([-1] * 3)), ones, wanted)
        token = s.one("Expand", token, wanted, _shape=(n, 1, features))
    made = s.one("Concat", token, source, axis=1, _shape=(n, length + 1, features))
    s.offer(s.one("Add", made, s.weight(1, length + 1, features)))


def layer_norm(s: Sketch) -> None:
    """As an operator and decomposed; with or without scale and shift."""
    source = s.any(3)
    features = s.shape(source)[-1]
    kind = s.dice.choice(["operator", "apart", "apart", "rms"])
    if kind == "operator":
        parts = [s.weight(features, scale=0.1, shift=1.0)]
        parts += [s.weight(features)] if s.dice.random() < 0.7 else []
        axis = s.dice.choice([None, -1, 2])
        s.offer(s.one("LayerNormalization", source, *parts, axis=axis, epsilon=1e-3))
        return
    two = s.constant(2.0, s.dtype)
    centred = source
    if kind == "apart":
        centred = s.one("Sub", source, reduced(s, "ReduceMean", source, [2], 1))
    square = s.one("Pow", centred, two) if s.dice.random() < 0.7 else s.one("Mul", centred, centred)
    spread = s.one("Add", reduced(s, "ReduceMean", square, [2], 1), s.constant(1e-3, s.dtype))
    root = s.one("Sqrt", spread)
    if s.dice.random() < 0.7:
        made = s.one("Div", centred, root)
    else:
        made = s.one("Mul", centred, s.one("Reciprocal", root))
    made = s.one("Mul", made, s.weight(features, scale=0.1, shift=1.0))
    s.offer(s.one("Add", made, s.weight(features)) if s.dice.random() < 0.7 else made)


def linear(s: Sketch, source: str, features: int) -> str:
    """A product and perhaps a bias, in any order; or a `Gemm` of rows."""
    shape = s.shape(source)
    inner = shape[-1]
    weight = s.weight(inner, features, scale=inner**-0.5)
    if len(shape) == 2 and s.dice.random() < 0.6:
        flipped = s.dice.random() < 0.7
        if flipped:
            weight = s.weight(features, inner, scale=inner**-0.5)
        bias = [s.weight(*s.dice.choice([(features,), (1, features), (1,), ()]))]
        bias = bias if s.opset < 11 or s.dice.random() < 0.8 else []
        factors = s.dice.choice([{}, {}, {"alpha": 0.5, "beta": 2.0}])
        return s.one("Gemm", source, weight, *bias, transB=1 if flipped else None, **factors)
    made = s.one("MatMul", source, weight)
    if s.dice.random() < 0.7:
        made = s.one("Add", *s.dice.sample([made, s.weight(features)], 2))
    return made


def feed_forward(s: Sketch) -> None:
    source = s.any(2, 3)
    features = s.shape(source)[-1]
    made = activation(s, linear(s, source, s.dice.randint(1, 12)))
    made = linear(s, made, features)
    s.offer(s.one("Add", source, made) if s.dice.random() < 0.6 else made)


def attention(s: Sketch) -> None:
    """Heads, scores, a mask, softmax, values, decomposed as torch, timm and Keras do."""
    source = s.any(3)
    n, length, features = s.shape(source)
    heads = s.dice.choice([1, 2, 3])
    each = s.dice.randint(1, 4)
    inner = heads * each
    if length > 30:
        raise UndrawableError("long")
    if s.dice.random() < 0.4 and s.opset >= 13:
        queries, keys, values = _packed(s, source, heads, each)
    else:
        queries, keys, values = (_heads(s, linear(s, source, inner), heads, each) for _ in range(3))
    scale = s.constant(each**-0.5, s.dtype)
    if s.dice.random() < 0.3:
        queries = s.one("Mul", queries, scale)
        scale = ""
    if s.opset >= 12 and s.dice.random() < 0.3:
        scores = s.one("Einsum", queries, keys, equation="bhid,bhjd->bhij")
    else:
        scores = s.one("MatMul", queries, s.one("Transpose", keys, perm=[0, 1, 3, 2]))
    if scale:
        scores = (
            s.one("Mul", scores, scale)
            if s.dice.random() < 0.5
            else s.one("Div", scores, s.constant(each**0.5, s.dtype))
        )
    scores = _masked(s, scores, length)
    axis = s.dice.choice([3, -1])
    weights = s.one("Softmax", scores, axis=axis if s.opset >= 13 else 3)
    made = s.one("MatMul", weights, values)
    made = s.one("Transpose", made, perm=[0, 2, 1, 3])
    wanted = s.dice.choice([[n, length, inner], [0, 0, -1], [0, length, inner]])
    made = s.one("Reshape", made, s.constant(wanted), _shape=(n, length, inner))
    made = linear(s, made, features)
    s.offer(s.one("Add", source, made) if s.dice.random() < 0.7 else made)


def _heads(s: Sketch, source: str, heads: int, each: int) -> str:
    n, length, _ = s.shape(source)
    wanted = s.dice.choice([[n, length, heads, each], [0, 0, heads, each], [n, -1, heads, each]])
    made = s.one("Reshape", source, s.constant(wanted), _shape=(n, length, heads, each))
    return s.one("Transpose", made, perm=[0, 2, 1, 3])


def _packed(s: Sketch, source: str, heads: int, each: int) -> tuple[str, ...]:
    """Queries, keys and values by one product, split by `Gather` or `Split`."""
    n, length, _ = s.shape(source)
    made = linear(s, source, 3 * heads * each)
    if s.dice.random() < 0.5:
        shape = (n, length, 3, heads, each)
        made = s.one("Reshape", made, s.constant(list(shape)), _shape=shape)
        made = s.one("Transpose", made, perm=[2, 0, 3, 1, 4])
        return tuple(s.one("Gather", made, s.constant(i), axis=0) for i in range(3))
    sizes = s.constant([heads * each] * 3)
    return tuple(_heads(s, x, heads, each) for x in s.several("Split", [made, sizes], 3, axis=-1))


def _masked(s: Sketch, scores: str, length: int) -> str:
    kind = s.dice.choice(["none", "added", "causal", "where", "trilu"])
    if kind == "added":
        return s.one("Add", scores, s.weight(1, 1, length, length))
    low = s.constant(-1e4 if s.dtype == "float16" else -1e9, s.dtype)
    if kind == "causal":
        mask = np.triu(np.full((length, length), -1e4), 1)
        return s.one("Add", scores, s.constant(mask, s.dtype))
    if kind == "where" and s.opset >= 9:
        mask = np.tril(np.ones((length, length), bool))
        return s.one("Where", s.constant(mask, "bool"), scores, low)
    if kind == "trilu" and s.opset >= 14:
        ones = s.constant(np.ones((length, length)), s.dtype)
        mask = s.one("Cast", s.one("Trilu", ones, upper=0), to=9)
        return s.one("Where", mask, scores, low)
    return scores


def recurrent(s: Sketch) -> None:
    """LSTM, GRU or RNN in one or two directions; any outputs, with or without initial states."""
    source = s.any(3)
    n, length, features = s.shape(source)
    if length > 40:
        raise UndrawableError("long")
    operator = s.dice.choice(["LSTM", "LSTM", "GRU", "RNN"])
    gates = {"LSTM": 4, "GRU": 3, "RNN": 1}[operator]
    direction = s.dice.choice([None, "forward", "reverse", "bidirectional"])
    count, hidden = (2 if direction == "bidirectional" else 1), s.dice.randint(1, 5)
    made = s.one("Transpose", source, perm=[1, 0, 2])
    inputs = [
        made,
        s.weight(count, gates * hidden, features, scale=features**-0.5),
        s.weight(count, gates * hidden, hidden, scale=hidden**-0.5),
        s.weight(count, 2 * gates * hidden, scale=0.1) if s.dice.random() < 0.7 else "",
    ]
    if s.dice.random() < 0.5:
        inputs.append("")
        states = 2 if operator == "LSTM" else 1
        inputs += [_state(s, source, count, n, hidden) for _ in range(states)]
    attributes: dict[str, Any] = {"hidden_size": hidden, "direction": direction}
    if operator == "GRU":
        attributes["linear_before_reset"] = s.dice.choice([None, 0, 1])
    while inputs[-1] == "":
        inputs.pop()
    outputs = s.several(
        operator, inputs, s.dice.randint(1, 3 if operator == "LSTM" else 2), **attributes
    )
    kind = s.dice.choice(["all", "last", "states"])
    if kind == "states" and len(outputs) > 1:
        last = s.one("Transpose", outputs[1], perm=[1, 0, 2])
        s.offer(s.one("Reshape", last, s.constant([n, -1]), _shape=(n, count * hidden)))
        return
    if count == 1:
        made = dropped(s, outputs[0], 1)
    else:
        made = s.one("Transpose", outputs[0], perm=[0, 2, 1, 3])
        wanted = s.dice.choice([[0, 0, -1], [length, n, 2 * hidden]])
        made = s.one("Reshape", made, s.constant(wanted), _shape=(length, n, 2 * hidden))
    if kind == "last":
        s.offer(s.one("Gather", made, s.constant(s.dice.choice([-1, 0])), axis=0))
    else:
        s.offer(s.one("Transpose", made, perm=[1, 0, 2]))


def _state(s: Sketch, source: str, count: int, batch: int, hidden: int) -> str:
    """Zeros or a constant; or as torch writes it for an open batch axis."""
    if s.dice.random() < 0.5 or s.opset < 13:
        return s.weight(count, batch, hidden)
    size = s.one("Gather", s.one("Shape", source), s.constant(0), axis=0)
    parts = [s.constant([count]), added(s, size, 0), s.constant([hidden])]
    wanted = s.one("Concat", *parts, axis=0)
    if s.dice.random() < 0.5:
        return s.one("Expand", s.weight(1, 1, hidden), wanted, _shape=(count, batch, hidden))
    zero = numpy_helper.from_array(np.zeros(1, s.dtype))
    shape = (count, batch, hidden)
    return s.one("ConstantOfShape", wanted, _shape=shape, _dtype=s.dtype, value=zero)


def embedding(s: Sketch) -> None:
    """Rows of a table, selected by the largest of a tensor's features."""
    source = s.any(3)
    features = s.shape(source)[-1]
    chosen = s.one(
        "ArgMax", source, axis=s.dice.choice([-1, 2]) if s.opset >= 11 else 2, keepdims=0
    )
    s.offer(s.one("Gather", s.weight(features, s.dice.randint(1, 6)), chosen, axis=0))


def classifier(s: Sketch) -> None:
    """A head: the mean or the first of a sequence, a product, a softmax."""
    source = s.any(3)
    if s.dice.random() < 0.5:
        made = reduced(s, "ReduceMean", source, [1], 0)
    else:
        made = s.one("Gather", source, s.constant(0), axis=1)
    made = linear(s, made, s.dice.randint(2, 10))
    s.offer(s.one(s.dice.choice(["Softmax", "LogSoftmax", "Sigmoid"]), made))


IDIOMS = (
    *(tokens, tokens, tokens, class_token, layer_norm, layer_norm, feed_forward, feed_forward),
    *(attention, attention, attention, recurrent, recurrent, embedding, classifier),
)
