"""Idioms of convolutions of all kinds, and of the blocks that consist of them."""

from __future__ import annotations

from typing import Any

from tests.agreement.drawn.sketch import Sketch, UndrawableError


def convolution(s: Sketch) -> None:
    """Any strides, dilations, groups and pads, and automatic ones; 1 or 2 axes."""
    source = s.any(3, 4)
    axes = len(s.shape(source)) - 2
    kernel = [s.dice.choice([1, 1, 2, 3, 3, 4, 5]) for _ in range(axes)]
    attributes: dict[str, Any] = {"strides": [s.dice.choice([1, 1, 2, 3]) for _ in kernel]}
    automatic = s.dice.choice(["", "", "", "", "SAME_UPPER", "SAME_LOWER", "VALID"])
    if automatic:
        attributes["auto_pad"] = automatic
        attributes["strides"] = [
            min(step, k) for step, k in zip(attributes["strides"], kernel, strict=True)
        ]
        if automatic.startswith("SAME") and any(
            k > n for k, n in zip(kernel, s.shape(source)[2:], strict=True)
        ):
            raise UndrawableError("engines compute negative pads here")
    else:
        attributes["dilations"] = [s.dice.choice([1, 1, 1, 2]) for _ in kernel]
        same = s.dice.random() < 0.5
        attributes["pads"] = (
            [k // 2 for k in kernel] * 2 if same else [s.dice.randint(0, 3) for _ in kernel * 2]
        )
    if s.dice.random() < 0.7:
        attributes["kernel_shape"] = kernel
    s.offer(_convolved(s, source, kernel, **attributes))


def _convolved(s: Sketch, source: str, kernel: list[int], **attributes: Any) -> str:
    channels = s.shape(source)[1]
    group = s.dice.choice([g for g in (1, 1, 2, channels) if channels % g == 0])
    filters = group * s.dice.randint(1, max(1, min(4, 12 // group)))
    each = channels // group
    fan_in = each
    for size in kernel:
        fan_in *= size
    weights = [s.weight(filters, each, *kernel, scale=fan_in**-0.5)]
    if s.dice.random() < 0.6:
        weights.append(s.weight(filters, scale=0.1))
    return s.one("Conv", source, *weights, group=group if group > 1 else None, **attributes)


def convolution_and_norm(s: Sketch) -> None:
    """A convolution before folding: with a batch norm, or a separate scale and shift, and an
    activation.
    """
    source = s.any(4)
    made = _convolved(s, source, [3, 3], pads=[1] * 4)
    channels = s.shape(made)[1]
    kind = s.dice.choice(["norm", "norm", "scale", "bias"])
    if kind == "norm":
        parts = [s.weight(channels, scale=0.2, shift=shift) for shift in (1.0, 0.0, 0.0)]
        made = s.one("BatchNormalization", made, *parts, s.positive(channels))
    elif kind == "scale":
        made = s.one("Mul", made, s.weight(1, channels, 1, 1))
        made = s.one("Add", s.weight(channels, 1, 1), made)
    else:
        shape = s.dice.choice([(channels, 1, 1), (1, channels, 1, 1), (1,), ()])
        made = s.one("Add", *s.dice.sample([made, s.weight(*shape)], 2))
    s.offer(activation(s, made))


def activation(s: Sketch, source: str) -> str:
    """Rectifiers as exporters write them: as operators, and composed of smaller ones."""
    kind = s.dice.choice(
        [
            *("Relu", "LeakyRelu", "Clip", "silu", "hard swish", "mish", "gelu", "tanh gelu"),
            *("Elu", "HardSwish", "Gelu", "Mish", "Selu", "Softplus", "PRelu", "Sigmoid"),
            "HardSigmoid",
        ]
    )
    if kind == "silu":
        return s.one("Mul", source, s.one("Sigmoid", source))
    if kind == "hard swish":
        return s.one("Mul", source, s.one("HardSigmoid", source, alpha=1 / 6, beta=0.5))
    if kind == "mish":
        return s.one("Mul", source, s.one("Tanh", s.one("Softplus", source)))
    if kind == "gelu":
        inner = s.one("Erf", s.one("Div", source, s.constant(2**0.5, s.dtype)))
        inner = s.one("Add", inner, s.constant(1.0, s.dtype))
        return s.one("Mul", s.one("Mul", source, inner), s.constant(0.5, s.dtype))
    if kind == "tanh gelu":
        cube = s.one(
            "Mul", s.one("Pow", source, s.constant(3.0, s.dtype)), s.constant(0.044, s.dtype)
        )
        inner = s.one("Mul", s.one("Add", source, cube), s.constant(0.8, s.dtype))
        inner = s.one("Add", s.one("Tanh", inner), s.constant(1.0, s.dtype))
        return s.one("Mul", s.one("Mul", source, s.constant(0.5, s.dtype)), inner)
    if kind == "Clip":
        if s.opset < 11:
            return s.one("Clip", source, min=0.0, max=6.0)
        bounds = [s.constant(0.0, s.dtype), s.constant(6.0, s.dtype)]
        given = s.dice.choice([bounds, bounds[:1], ["", bounds[1]]])
        return s.one("Clip", source, *given)
    if kind == "PRelu":
        shape = s.shape(source)
        slope = s.weight(*((shape[1],) + (1,) * (len(shape) - 2) if len(shape) > 1 else (1,)))
        return s.one("PRelu", source, slope)
    return s.one(kind, source)


def transposed(s: Sketch) -> None:
    """With strides, groups, dilations, cropped pads and output padding."""
    source = s.any(3, 4)
    shape = s.shape(source)
    axes, channels = len(shape) - 2, shape[1]
    group = s.dice.choice([g for g in (1, 1, 2, channels) if channels % g == 0])
    kernel = [s.dice.randint(1, 4) for _ in range(axes)]
    strides = [s.dice.randint(1, 3) for _ in kernel]
    dilations = [s.dice.choice([1, 1, 2]) for _ in kernel]
    weight = s.weight(channels, s.dice.randint(1, 3), *kernel, scale=channels**-0.5)
    weights = [weight, *([s.weight(s.shape(weight)[1] * group)] if s.dice.random() < 0.5 else [])]
    attributes: dict[str, Any] = {}
    match s.dice.choice(["pads", "pads", "pads", "same", "shape", "none"]):
        case "pads":
            attributes["pads"] = [s.dice.randint(0, min(2, k - 1)) for k in kernel * 2]
            attributes["output_padding"] = [s.dice.randint(0, x - 1) for x in strides]
        case "same":
            dilations = [1] * axes
            strides = [min(x, k) for x, k in zip(strides, kernel, strict=True)]
            attributes["auto_pad"] = s.dice.choice(["SAME_UPPER", "SAME_LOWER"])
        case "shape":
            dilations = [1] * axes
            strides = [min(x, k) for x, k in zip(strides, kernel, strict=True)]
            attributes["output_shape"] = [
                (n - 1) * x + k - s.dice.randint(0, k - 1)
                for n, x, k in zip(shape[2:], strides, kernel, strict=True)
            ]
    made = s.one(
        "ConvTranspose",
        source,
        *weights,
        strides=strides,
        dilations=dilations if max(dilations) > 1 else None,
        group=group if group > 1 else None,
        **attributes,
    )
    if s.dice.random() < 0.3:
        count = s.shape(made)[1]
        parts = [s.weight(count, scale=0.2, shift=shift) for shift in (1.0, 0.0, 0.0)]
        made = s.one("BatchNormalization", made, *parts, s.positive(count))
    s.offer(made)


def depthwise_separable(s: Sketch) -> None:
    """A depthwise convolution and one of 1 × 1, as in MobileNets."""
    source = s.any(4)
    channels = s.shape(source)[1]
    weight = s.weight(channels, 1, 3, 3, scale=1 / 3)
    stride = s.dice.choice([1, 2])
    pads = s.dice.choice([[1] * 4, [0, 0, 1, 1]])
    made = s.one("Conv", source, weight, group=channels, strides=[stride] * 2, pads=pads)
    made = activation(s, made)
    filters = s.dice.randint(1, 8)
    s.offer(s.one("Conv", made, s.weight(filters, channels, 1, 1, scale=channels**-0.5)))


def squeeze_and_excite(s: Sketch) -> None:
    """Channels weighted by a pooling over the whole image."""
    source = s.any(4)
    channels = s.shape(source)[1]
    if s.dice.random() < 0.5:
        pooled = s.one("GlobalAveragePool", source)
    else:
        pooled = reduced(s, "ReduceMean", source, [2, 3], keepdims=1)
    inner = max(1, channels // 2)
    made = s.one("Conv", pooled, s.weight(inner, channels, 1, 1), s.weight(inner))
    made = s.one("Conv", s.one("Relu", made), s.weight(channels, inner, 1, 1))
    s.offer(s.one("Mul", *s.dice.sample([source, s.one("Sigmoid", made)], 2)))


def reduced(s: Sketch, operator: str, source: str, axes: list[int] | None, keepdims: int) -> str:
    """A reduction with axes where the operator set has them: an attribute or an input."""
    since = 13 if operator == "ReduceSum" else 18
    if s.dice.random() < 0.5 and axes:
        rank = len(s.shape(source))
        axes = [axis - rank if s.opset >= 11 else axis for axis in axes]
    if axes is None or s.opset < since:
        return s.one(operator, source, axes=axes, keepdims=keepdims)
    return s.one(operator, source, s.constant(axes), keepdims=keepdims)


def residual(s: Sketch) -> None:
    """Two convolutions beside a shortcut."""
    source = s.any(4)
    channels = s.shape(source)[1]
    made = source
    for _ in range(2):
        weight = s.weight(channels, channels, 3, 3, scale=(9 * channels) ** -0.5)
        made = s.one("Conv", made, weight, pads=[1] * 4)
        made = s.one("Relu", made) if s.dice.random() < 0.5 else made
    s.offer(s.one("Add", *s.dice.sample([source, made], 2)))


def shared_weight(s: Sketch) -> None:
    """One kernel on two tensors, as detectors' heads have."""
    source = s.any(4)
    channels = s.shape(source)[1]
    others = [x for x, t in s.tensors.items() if t.rank == 4 and t.shape[1] == channels]
    weights = [s.weight(2, channels, 1, 1), s.weight(2)]
    made = [s.one("Conv", x, *weights) for x in (source, s.dice.choice(others))]
    if s.shape(made[0]) == s.shape(made[1]):
        made = [s.one("Concat", *made, axis=s.dice.choice([1, -3]))]
    s.offer(*made)


IDIOMS = (
    *(convolution, convolution, convolution, convolution_and_norm, convolution_and_norm),
    *(transposed, transposed, depthwise_separable, squeeze_and_excite, residual, shared_weight),
)
