"""Idioms of pooling, padding and changes of resolution."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import numpy_helper

from tests.agreement.drawn.sketch import Sketch, UndrawableError


def pool(s: Sketch) -> None:
    """With rounding up, dilations, and uneven pads that count or do not."""
    source = s.any(3, 4)
    operator = s.dice.choice(["MaxPool", "MaxPool", "AveragePool", "AveragePool", "LpPool"])
    sizes = s.shape(source)[2:]
    kernel = [s.dice.randint(1, 4) for _ in sizes]
    strides = [s.dice.randint(1, 3) for _ in sizes]
    attributes: dict[str, Any] = {"kernel_shape": kernel, "strides": strides}
    if s.dice.random() < 0.2 and all(k <= n for k, n in zip(kernel, sizes, strict=True)):
        attributes["auto_pad"] = s.dice.choice(["SAME_UPPER", "SAME_LOWER", "VALID"])
        attributes["strides"] = [min(x, k) for x, k in zip(strides, kernel, strict=True)]
    else:
        pads = attributes["pads"] = [s.dice.randint(0, k - 1) for k in kernel * 2]
        ceil_since = {"MaxPool": 10, "AveragePool": 10, "LpPool": 18}[operator]
        if s.opset >= ceil_since and s.dice.random() < 0.5:
            if not _last_starts_inside(sizes, kernel, strides, pads):
                raise UndrawableError("ONNX and engines differ here")
            attributes["ceil_mode"] = 1
        since = {"MaxPool": 10, "AveragePool": 19, "LpPool": 18}[operator]
        if s.opset >= since and s.dice.random() < 0.2 and not any(pads):
            attributes["dilations"] = [s.dice.choice([1, 2]) for _ in sizes]
    if operator == "AveragePool":
        attributes["count_include_pad"] = s.dice.choice([None, 0, 1])
    if operator == "LpPool":
        attributes["p"] = s.dice.choice([1, 2, 3])
    if s.dice.random() < 0.5:
        source = s.one("Add", source, s.constant(-3.0, s.dtype))
    s.offer(s.one(operator, source, **attributes))


def _last_starts_inside(
    sizes: tuple[int, ...], kernel: list[int], strides: list[int], pads: list[int]
) -> bool:
    """Whether rounding up adds no window that lies in the padding."""
    axes = zip(sizes, kernel, strides, pads, pads[len(sizes) :], strict=False)
    return all(
        -(-(size + before + after - extent) // stride) * stride < size + before
        for size, extent, stride, before, after in axes
    )


def padded_pool(s: Sketch) -> None:
    """An average over zeros that a separate operator pads, as PyTorch 1 wrote it."""
    source = s.any(4)
    made = pad_with(s, source, [0, 0, 1, 1, 0, 0, 1, 1], "constant", 0.0)
    operator = s.dice.choice(["AveragePool", "MaxPool"])
    s.offer(s.one(operator, made, kernel_shape=[3, 3], strides=[s.dice.randint(1, 2)] * 2))


def global_pool(s: Sketch) -> None:
    source = s.any(3, 4)
    operator = s.dice.choice(["GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool"])
    s.offer(s.one(operator, source))


def pad_with(s: Sketch, source: str, pads: list[int], mode: str, value: float | None) -> str:
    """A `Pad` of constants in the form of the operator set."""
    if s.opset < 11:
        return s.one("Pad", source, pads=pads, mode=mode, value=value)
    inputs = [source, s.constant(pads)]
    if mode == "constant" and value is not None:
        inputs.append(s.constant(value, s.described(source).dtype))
    elif mode == "constant" and s.dice.random() < 0.3:
        inputs.append("")
    return s.one("Pad", *inputs, mode=mode)


def pad(s: Sketch) -> None:
    """All modes, some or all axes, negative pads too."""
    source = s.any(3, 4)
    rank = len(s.shape(source))
    mode = s.dice.choice(["constant", "constant", "reflect", "edge", "wrap"])
    if mode == "wrap" and s.opset < 19:
        mode = "edge"
    least = -1 if s.dice.random() < 0.15 and mode == "constant" else 0
    sizes = [s.dice.randint(least, 2) for _ in range(2 * (rank - 2))]
    half = len(sizes) // 2
    value = s.dice.choice([None, 0.0, 0.5]) if mode == "constant" else None
    if s.opset >= 18 and s.dice.random() < 0.5:
        axes = list(range(2, rank))
        order = s.dice.sample(range(half), half)
        named = [axes[n] - (rank if s.dice.random() < 0.5 else 0) for n in order]
        pads = [sizes[n] for n in order] + [sizes[half + n] for n in order]
        filler = "" if value is None else s.constant(value, s.described(source).dtype)
        inputs = [source, s.constant(pads), filler, s.constant(named)]
        s.offer(s.one("Pad", *inputs, mode=mode))
        return
    front = [s.dice.choice([0, 0, 0, 1]) if mode == "constant" else 0 for _ in range(2)]
    pads = [0, front[0], *sizes[:half], 0, front[1], *sizes[half:]]
    s.offer(pad_with(s, source, pads, mode, value))


def computed_pad(s: Sketch) -> None:
    """Pads as torch writes them for a list of sizes: extended, reversed, flattened."""
    if s.opset < 11:
        raise UndrawableError("pads are an attribute")
    source = s.any(4)
    given = [s.dice.randint(0, 2) for _ in range(4)]
    start = s.constant(given)
    square = s.one("Reshape", _filled(s, start, 4), s.constant([-1, 2]), _shape=(4, 2))
    turned = _turned(s, square)
    turned = s.one("Transpose", turned, perm=[1, 0], _shape=(2, 4))
    flat = s.one("Reshape", turned, s.constant([-1]), _shape=(8,))
    flat = s.one("Cast", flat, to=7, _shape=(8,), _dtype="int64")
    n, c, h, w = s.shape(source)
    shape = (n, c, h + given[2] + given[3], w + given[0] + given[1])
    mode = s.dice.choice(["constant", "reflect", "edge"])
    if mode == "reflect" and max(given) >= min(h, w):
        mode = "edge"
    inputs = [source, flat, *([s.constant(0.0, s.dtype)] if mode == "constant" else [])]
    s.offer(s.one("Pad", *inputs, mode=mode, _shape=shape))


def _filled(s: Sketch, start: str, missing: int) -> str:
    count = s.one("Sub", s.constant([missing * 2]), s.constant([missing]), _shape=(1,))
    zeros = s.one(
        "ConstantOfShape",
        count,
        _shape=(missing,),
        _dtype="int64",
        value=numpy_helper.from_array(np.zeros(1, np.int64)),
    )
    return s.one("Concat", start, zeros, axis=0, _shape=(2 * missing,))


def _turned(s: Sketch, square: str) -> str:
    ends = s.constant([-9223372036854775807])
    inputs = [square, s.constant([-1]), ends, s.constant([0]), s.constant([-1])]
    return s.one("Slice", *inputs, _shape=(4, 2))


def same_pad(s: Sketch) -> None:
    """ "Same" padding as timm and Keras's converters write it: computed from the size."""
    if s.opset < 13:
        raise UndrawableError("pads are an attribute, or Unsqueeze names axes")
    source = s.any(4)
    n, c, *sizes = s.shape(source)
    kernel, stride = s.dice.randint(2, 5), s.dice.randint(1, 3)
    shape = s.one("Shape", source, _shape=(4,), _dtype="int64")
    parts: list[str] = []
    numbers = []
    for axis, size in zip((2, 3), sizes, strict=True):
        length = s.one("Gather", shape, s.constant(axis), axis=0)
        total = _same_total(s, length, kernel, stride)
        before = s.one("Div", total, s.constant(2))
        after = s.one("Sub", total, before)
        parts += [s.one("Unsqueeze", x, s.constant([0])) for x in (before, after)]
        number = max((-(-size // stride) - 1) * stride + kernel - size, 0)
        numbers.append((number // 2, number - number // 2))
    zero = s.constant([0])
    order = [zero, zero, parts[0], parts[2], zero, zero, parts[1], parts[3]]
    pads = s.one("Concat", *order, axis=0)
    made = (n, c, *(size + sum(own) for size, own in zip(sizes, numbers, strict=True)))
    source = s.one("Pad", source, pads, _shape=made)
    filters = s.dice.randint(1, 4)
    weight = s.weight(filters, c, kernel, kernel, scale=1 / kernel)
    s.offer(s.one("Conv", source, weight, strides=[stride] * 2))


def _same_total(s: Sketch, length: str, kernel: int, stride: int) -> str:
    """max((⌈length / stride⌉ − 1) · stride + kernel − length, 0), sometimes through floats."""
    if s.dice.random() < 0.5:
        ratio = s.one("Div", s.one("Cast", length, to=1), s.constant(float(stride), "float32"))
        steps = s.one("Cast", s.one("Ceil", ratio), to=7)
    else:
        up = s.one("Sub", s.one("Add", length, s.constant(stride)), s.constant(1))
        steps = s.one("Div", up, s.constant(stride))
    total = s.one("Mul", s.one("Sub", steps, s.constant(1)), s.constant(stride))
    total = s.one("Sub", s.one("Add", total, s.constant(kernel)), length)
    return s.one("Max", total, s.constant(0))


def resize(s: Sketch) -> None:
    """Every mode with every coordinate transformation, by scales or sizes."""
    source = s.any(4)
    shape = s.shape(source)
    if s.opset < 11:
        scales = s.constant([1.0, 1.0, s.dice.choice([1, 2, 3]), 2.0], "float32")
        operator = "Upsample" if s.opset < 10 else "Resize"
        s.offer(s.one(operator, source, scales, mode=s.dice.choice(["nearest", "linear"])))
        return
    mode = s.dice.choice(["nearest", "nearest", "linear", "linear", "cubic"])
    places = ["half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric"]
    places += ["half_pixel_symmetric"] if s.opset >= 19 else []
    attributes: dict[str, Any] = {
        "mode": mode,
        "coordinate_transformation_mode": s.dice.choice([None, *places]),
    }
    if mode == "nearest":
        rounding = ["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"]
        attributes["nearest_mode"] = s.dice.choice([None, *rounding])
    if mode == "cubic":
        attributes["cubic_coeff_a"] = s.dice.choice([None, -0.5, -0.75])
        attributes["exclude_outside"] = s.dice.choice([None, 0, 1])
    if mode != "nearest" and s.opset >= 18 and s.dice.random() < 0.3:
        attributes["antialias"] = 1
    empty = "" if s.opset >= 13 else s.constant([], "float32")
    if s.dice.random() < 0.5:
        rows, columns = (s.dice.choice([0.5, 1.0, 1.5, 2.0, 3.0, 2.3]) for _ in range(2))
        given = [source, empty, s.constant([1.0, 1.0, rows, columns], "float32")]
    else:
        sizes = [s.dice.randint(max(1, n // 2), 2 * n + 1) for n in shape[2:]]
        if s.dice.random() < 0.5:  # as torch takes them from the tensor that it is added to
            front = _front_of_shape(s, source)
            wanted = s.one("Concat", front, s.constant(sizes), axis=0, _shape=(4,))
            s.offer(s.one("Resize", source, empty, "" if s.opset >= 13 else empty, wanted,
                          _shape=(*shape[:2], *sizes), **attributes))  # fmt: skip
            return
        given = [source, empty, "" if s.opset >= 13 else empty, s.constant([*shape[:2], *sizes])]
    if s.opset >= 18 and s.dice.random() < 0.3:
        attributes["axes"] = [2, 3]
        values = s.weights[given[-1]]
        given[-1] = s.constant(values[2:], values.dtype.name)
        if len(given) == 4 and s.dice.random() < 0.3:
            attributes["keep_aspect_ratio_policy"] = s.dice.choice(["not_larger", "not_smaller"])
    s.offer(s.one("Resize", *given, **attributes))


def _front_of_shape(s: Sketch, source: str) -> str:
    shape = s.one("Shape", source, _shape=(4,), _dtype="int64")
    ends = [s.constant([0]), s.constant([2]), s.constant([0])]
    return s.one("Slice", shape, *ends, _shape=(2,))


def resize_like(s: Sketch) -> None:
    """To another tensor's size, and concatenated with it: a feature pyramid."""
    if s.opset < 13:
        raise UndrawableError("roi would have to be given")
    source, other = s.any(4), s.any(4)
    (n, c, *_), (_, _, *sizes) = s.shape(source), s.shape(other)
    tail = [s.constant([2]), s.constant([4]), s.constant([0])]
    size = s.one("Slice", s.one("Shape", other, _shape=(4,), _dtype="int64"), *tail, _shape=(2,))
    wanted = s.one("Concat", _front_of_shape(s, source), size, axis=0, _shape=(4,))
    attributes = {"mode": s.dice.choice(["nearest", "linear"])}
    if attributes["mode"] == "nearest":
        attributes |= {"nearest_mode": "floor", "coordinate_transformation_mode": "asymmetric"}
    made = s.one("Resize", source, "", "", wanted, _shape=(n, c, *sizes), **attributes)
    s.offer(s.one("Concat", made, other, axis=1))


def pixel_shuffle(s: Sketch) -> None:
    """As an operator, and as torch's pixel (un)shuffle in six axes."""
    source = s.any(4)
    n, c, h, w = s.shape(source)
    match s.dice.choice(["to depth", "from depth", "shuffle", "unshuffle"]):
        case "to depth":
            if h % 2 or w % 2:
                raise UndrawableError("odd sizes")
            s.offer(s.one("SpaceToDepth", source, blocksize=2))
        case "from depth":
            if c % 4:
                raise UndrawableError("no blocks")
            mode = s.dice.choice([None, "DCR", "CRD"]) if s.opset >= 11 else None
            s.offer(s.one("DepthToSpace", source, blocksize=2, mode=mode))
        case "shuffle":
            if c % 4:
                raise UndrawableError("no blocks")
            made = s.one("Reshape", source, s.constant([n, c // 4, 2, 2, h, w]))
            made = s.one("Transpose", made, perm=[0, 1, 4, 2, 5, 3])
            s.offer(s.one("Reshape", made, s.constant([n, c // 4, 2 * h, 2 * w])))
        case _:
            if h % 2 or w % 2:
                raise UndrawableError("odd sizes")
            made = s.one("Reshape", source, s.constant([-1, c, h // 2, 2, w // 2, 2]))
            made = s.one("Transpose", made, perm=[0, 1, 3, 5, 2, 4])
            s.offer(s.one("Reshape", made, s.constant([n, 4 * c, h // 2, w // 2])))


def focus(s: Sketch) -> None:
    """Every second pixel, four times: YOLOv5's stem."""
    source = s.any(4)
    parts = []
    for row, column in ((0, 0), (1, 0), (0, 1), (1, 1)):
        parts.append(strided(s, strided(s, source, 2, row), 3, column))
    s.offer(s.one("Concat", *parts, axis=1))


def strided(s: Sketch, source: str, axis: int, start: int) -> str:
    """Every second element along an axis, up to a very large end."""
    if s.opset < 10 or s.shape(source)[axis] % 2:
        raise UndrawableError("no steps, or parts of unlike size")
    end = s.dice.choice([s.shape(source)[axis], 2**63 - 1, 2**31 - 1])
    given = [s.constant([x]) for x in (start, end, axis, 2)]
    return s.one("Slice", source, *given)


def grid_sample(s: Sketch) -> None:
    """Sampled at fixed places."""
    source = s.any(4)
    if s.opset < 16:
        raise UndrawableError("no GridSample yet")
    mode = s.dice.choice(
        ["nearest", "linear", "cubic"] if s.opset >= 20 else ["bilinear", "nearest"]
    )
    grid = s.weight(s.shape(source)[0], 3, 4, 2, scale=0.5)
    padding = s.dice.choice(["zeros", "border", "reflection"])
    corners = s.dice.randint(0, 1)
    s.offer(
        s.one("GridSample", source, grid, mode=mode, padding_mode=padding, align_corners=corners)
    )


IDIOMS = (
    *(pool, pool, pool, padded_pool, global_pool, pad, pad, computed_pad, same_pad, same_pad),
    *(
        resize,
        resize,
        resize,
        resize,
        resize_like,
        pixel_shuffle,
        pixel_shuffle,
        focus,
        grid_sample,
    ),
)
