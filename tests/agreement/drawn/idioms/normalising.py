"""Idioms of softmaxes, and of norms over channels, groups and images, decomposed or not."""

from __future__ import annotations

from tests.agreement.drawn.idioms.convolutions import reduced
from tests.agreement.drawn.sketch import Sketch, UndrawableError


def batch_norm(s: Sketch) -> None:
    """Alone, sometimes before a convolution."""
    source = s.any(2, 3, 4)
    channels = s.shape(source)[1]
    parts = [s.weight(channels, scale=0.2, shift=shift) for shift in (1.0, 0.0, 0.0)]
    made = s.one("BatchNormalization", source, *parts, s.positive(channels), epsilon=1e-3)
    if len(s.shape(made)) == 4 and s.dice.random() < 0.5:
        made = s.one("Relu", made) if s.dice.random() < 0.5 else made
        made = s.one("Conv", made, s.weight(2, channels, 3, 3, scale=0.2), pads=[1] * 4)
    s.offer(made)


def group_norm(s: Sketch) -> None:
    """As torch decomposes it (an instance norm of groups), as ONNX's operator, and by means."""
    source = s.any(4)
    n, c, h, w = s.shape(source)
    group = s.dice.choice([g for g in (1, 2, 3, c) if c % g == 0])
    kind = s.dice.choice(["instance", "instance", "operator", "means"])
    if kind == "operator":
        if s.opset < 21:
            raise UndrawableError("no operator yet, or one that was withdrawn")
        parts = [s.weight(c, scale=0.1, shift=1.0), s.weight(c)]
        s.offer(s.one("GroupNormalization", source, *parts, num_groups=group, epsilon=1e-3,
                      _shape=(n, c, h, w)))  # fmt: skip
        return
    made = _grouped(s, source, group)
    if kind == "instance":
        ones, zeros = (s.constant([value] * group, s.dtype) for value in (1.0, 0.0))
        made = s.one("InstanceNormalization", made, ones, zeros, epsilon=1e-3)
    else:
        centred = s.one("Sub", made, reduced(s, "ReduceMean", made, [2], 1))
        spread = reduced(s, "ReduceMean", s.one("Mul", centred, centred), [2], 1)
        root = s.one("Sqrt", s.one("Add", spread, s.constant(1e-3, s.dtype)))
        made = s.one("Div", centred, root)
    computed = s.dice.random() < 0.5
    wanted = s.one("Shape", source) if computed else s.constant([n, c, h, w])
    made = s.one("Reshape", made, wanted, _shape=(n, c, h, w))
    shape = s.dice.choice([(c, 1, 1), (1, c, 1, 1)])
    made = s.one("Mul", made, s.weight(*shape, scale=0.1, shift=1.0))
    s.offer(s.one("Add", made, s.weight(*shape)))


def _grouped(s: Sketch, source: str, group: int) -> str:
    n, c, h, w = s.shape(source)
    wanted = s.constant(s.dice.choice([[0, group, -1], [n, group, -1]]))
    return s.one("Reshape", source, wanted, _shape=(n, group, c // group * h * w))


def instance_norm(s: Sketch) -> None:
    source = s.any(3, 4)
    channels = s.shape(source)[1]
    parts = [s.weight(channels, scale=0.1, shift=1.0), s.weight(channels)]
    s.offer(s.one("InstanceNormalization", source, *parts, epsilon=1e-3))


def channels_last_norm(s: Sketch) -> None:
    """ConvNeXt's: a layer norm of an image whose channels were moved last."""
    source = s.any(4)
    if s.opset < 17:
        raise UndrawableError("no operator yet")
    channels = s.shape(source)[1]
    made = s.one("Transpose", source, perm=[0, 2, 3, 1])
    parts = [s.weight(channels, scale=0.1, shift=1.0), s.weight(channels)]
    made = s.one("LayerNormalization", made, *parts, axis=-1, epsilon=1e-3)
    if s.dice.random() < 0.5:
        made = s.one("MatMul", made, s.weight(channels, channels, scale=channels**-0.5))
        made = s.one("Mul", made, s.weight(channels, scale=0.1, shift=1.0))
    s.offer(s.one("Transpose", made, perm=[0, 3, 1, 2]))


def layer_norm_of_images(s: Sketch) -> None:
    """Over all axes from any one on."""
    source = s.any(3, 4)
    if s.opset < 17:
        raise UndrawableError("no operator yet")
    shape = s.shape(source)
    axis = s.dice.randrange(1, len(shape))
    parts = [s.weight(*shape[axis:], scale=0.1, shift=1.0)]
    named = axis - len(shape) if s.dice.random() < 0.5 else axis
    s.offer(s.one("LayerNormalization", source, *parts, axis=named, epsilon=1e-3))


def local_response(s: Sketch) -> None:
    s.offer(s.one("LRN", s.any(4), size=s.dice.choice([1, 3, 5]), alpha=0.01))


def softmax(s: Sketch) -> None:
    """Along any axis; before operator set 13 over all axes from it on."""
    source = s.any(2, 3, 4)
    rank = len(s.shape(source))
    axis = s.dice.randrange(1, rank)
    axis = axis - rank if s.opset >= 11 and s.dice.random() < 0.5 else axis
    operator = s.dice.choice(["Softmax", "Softmax", "Softmax", "LogSoftmax"])
    s.offer(s.one(operator, source, axis=s.dice.choice([None, axis])))


def unit_length(s: Sketch) -> None:
    """Features divided by their length, which is bounded away from zero."""
    source = s.any(2, 3, 4)
    length = reduced(s, "ReduceL2", source, [1], 1)
    if s.dice.random() < 0.5 and s.opset >= 12:
        length = s.one("Clip", length, s.constant(1e-2, s.dtype))
    else:
        length = s.one("Add", length, s.constant(1e-2, s.dtype))
    length = s.one("Expand", length, s.one("Shape", source), _shape=s.shape(source))
    s.offer(s.one("Div", source, length))


IDIOMS = (
    *(batch_norm, group_norm, group_norm, group_norm, instance_norm, channels_last_norm),
    *(layer_norm_of_images, local_response, softmax, softmax, unit_length),
)
