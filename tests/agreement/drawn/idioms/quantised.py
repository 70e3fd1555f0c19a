"""Idioms of 8-bit networks as quantisers write them: pairs, integer operators, dynamic ranges."""

from __future__ import annotations

import numpy as np

from tests.agreement.drawn.sketch import Sketch, UndrawableError


def _scale(s: Sketch, value: float | None = None) -> str:
    return s.constant(value or s.dice.choice([0.02, 0.03, 0.05]), s.dtype, as_node=False)


def pair(s: Sketch, source: str, dtype: str = "uint8") -> str:
    """An activation, quantised and dequantised."""
    scale = _scale(s)
    zero = s.constant(128 if dtype == "uint8" else 0, dtype, as_node=False)
    made = s.one("QuantizeLinear", source, scale, zero)
    return s.one("DequantizeLinear", made, scale, zero)


def _kernel(s: Sketch, *shape: int, fan_in: int, axis: int = 0) -> str:
    """An 8-bit weight with one scale or one per filter, and its dequantisation."""
    values = s.numbers.integers(-127, 128, shape)
    weight = s.constant(values, "int8", as_node=False)
    if s.opset >= 13 and s.dice.random() < 0.6:
        scale = s.constant(
            (s.numbers.random(shape[axis]) + 0.5) / 70 / fan_in**0.5, s.dtype, as_node=False
        )
        zero = s.constant(np.zeros(shape[axis]), "int8", as_node=False)
        return s.one("DequantizeLinear", weight, scale, zero, axis=axis)
    zero = [s.constant(0, "int8", as_node=False)] if s.dice.random() < 0.8 else []
    return s.one("DequantizeLinear", weight, _scale(s, 1 / 70 / fan_in**0.5), *zero)


def _bias(s: Sketch, count: int) -> str:
    values = s.constant(s.numbers.integers(-99, 99, count), "int32", as_node=False)
    return s.one("DequantizeLinear", values, _scale(s, 1e-3))


def _check(s: Sketch) -> None:
    if s.opset < 10 or s.dtype != "float32":
        raise UndrawableError("no eight bits here")


def convolution(s: Sketch) -> None:
    """Pairs around a convolution, sometimes grouped, and a rectifier."""
    _check(s)
    source = s.any(4)
    channels = s.shape(source)[1]
    dtype = s.dice.choice(["uint8", "uint8", "int8"])
    group = s.dice.choice([1, 1, channels])
    filters = group * s.dice.randint(1, 3)
    each = channels // group
    weights = [_kernel(s, filters, each, 3, 3, fan_in=9 * each)]
    weights += [_bias(s, filters)] if s.dice.random() < 0.5 else []
    stride = s.dice.randint(1, 2)
    made = s.one(
        "Conv", pair(s, source, dtype), *weights, group=group, pads=[1] * 4, strides=[stride] * 2
    )
    made = s.one("Relu", made) if s.dice.random() < 0.5 else made
    s.offer(pair(s, made, dtype))


def residual(s: Sketch) -> None:
    """Pairs around an addition, a concatenation, a pooling, a rectifier, a view."""
    _check(s)
    source = s.any(4)
    made = pair(s, source)
    match s.dice.choice(["Add", "Concat", "MaxPool", "AveragePool", "Sigmoid", "Resize", "Mul"]):
        case "Concat":
            made = s.one("Concat", made, pair(s, source), axis=1)
        case "MaxPool" | "AveragePool" as operator:
            made = s.one(operator, made, kernel_shape=[2, 2], strides=[2, 2])
        case "Sigmoid":
            made = s.one("Mul", made, pair(s, s.one("Sigmoid", made)))
        case "Resize":
            if s.opset < 13:
                raise UndrawableError("Resize wants a region")
            made = s.one("Resize", made, "", s.constant([1.0, 1, 2, 2], "float32"), mode="nearest")
        case operator:
            made = s.one(operator, made, pair(s, s.one("Tanh", source)))
    s.offer(pair(s, made))


def product(s: Sketch) -> None:
    """Pairs around a product of matrices."""
    _check(s)
    source = s.any(2, 3)
    inner = s.shape(source)[-1]
    made = s.one(
        "MatMul", pair(s, source), _kernel(s, inner, s.dice.randint(1, 8), fan_in=inner, axis=1)
    )
    s.offer(pair(s, made))


def linear_convolution(s: Sketch) -> None:
    """`QLinearConv` between `QuantizeLinear` and `DequantizeLinear`."""
    _check(s)
    source = s.any(4)
    channels = s.shape(source)[1]
    filters = s.dice.randint(1, 6)
    scale, zero = _scale(s), s.constant(128, "uint8", as_node=False)
    quantised = s.one("QuantizeLinear", source, scale, zero)
    weight = s.constant(
        s.numbers.integers(-127, 128, (filters, channels, 3, 3)), "int8", as_node=False
    )
    per_filter = s.dice.random() < 0.5
    factor = 1 / 70 / (9 * channels) ** 0.5
    w_scale = s.constant([factor] * filters if per_filter else factor, "float32", as_node=False)
    w_zero = s.constant([0] * filters if per_filter else 0, "int8", as_node=False)
    inputs = [quantised, scale, zero, weight, w_scale, w_zero, _scale(s, 0.05), zero]
    if s.dice.random() < 0.5:
        inputs.append(s.constant(s.numbers.integers(-99, 99, filters), "int32", as_node=False))
    made = s.one("QLinearConv", *inputs, pads=[1] * 4)
    s.offer(s.one("DequantizeLinear", made, inputs[6], zero))


def dynamic(s: Sketch) -> None:
    """Ranges computed at run time: `DynamicQuantizeLinear`, `MatMulInteger` or `ConvInteger`."""
    _check(s)
    if s.opset < 11:
        raise UndrawableError("no ranges found while running")
    source = s.any(2, 3, 4)
    shape = s.shape(source)
    quantised, scale, zero = s.several("DynamicQuantizeLinear", [source], 3)
    w_zero = s.constant(128, "uint8", as_node=False)
    if len(shape) == 4:
        values = s.numbers.integers(0, 256, (s.dice.randint(1, 4), shape[1], 3, 3))
        weight = s.constant(values, "uint8", as_node=False)
        made = s.one("ConvInteger", quantised, weight, zero, w_zero, pads=[1] * 4)
    else:
        values = s.numbers.integers(0, 256, (shape[-1], s.dice.randint(1, 6)))
        weight = s.constant(values, "uint8", as_node=False)
        made = s.one("MatMulInteger", quantised, weight, zero, w_zero)
    made = s.one("Cast", made, to=1)
    factor = s.one("Mul", scale, _scale(s, 0.003))
    s.offer(s.one("Mul", made, factor, _shape=s.shape(made)))


IDIOMS = (convolution, convolution, residual, residual, product, linear_convolution, dynamic)
