"""Idioms that move, cut, concatenate and repeat elements, with shapes computed in the graph."""

from __future__ import annotations

import numpy as np

from tests.agreement.drawn.sketch import Sketch, UndrawableError


def dropped(s: Sketch, source: str, *axes: int) -> str:
    """`Squeeze`, in the form of the operator set."""
    if s.opset < 13:
        return s.one("Squeeze", source, axes=list(axes))
    return s.one("Squeeze", source, s.constant(list(axes)))


def added(s: Sketch, source: str, *axes: int) -> str:
    """`Unsqueeze`, in the form of the operator set."""
    if s.opset < 13:
        return s.one("Unsqueeze", source, axes=list(axes))
    return s.one("Unsqueeze", source, s.constant(list(axes)))


def cut(s: Sketch, source: str, bounds: dict[int, tuple[int, int, int]]) -> str:
    """`Slice`, in the form of the operator set: axis → (start, end, step)."""
    starts, ends, steps = (list(x) for x in zip(*bounds.values(), strict=True))
    axes = list(bounds)
    if s.opset < 10:
        if set(steps) != {1}:
            raise UndrawableError("no steps yet")
        return s.one("Slice", source, starts=starts, ends=ends, axes=axes)
    given = [starts, ends, axes, *([steps] if set(steps) != {1} or s.dice.random() < 0.5 else [])]
    return s.one("Slice", source, *map(s.constant, given))


def flatten(s: Sketch) -> None:
    """To rows, in every way that exporters use."""
    source = s.any(3, 4)
    n, *rest = s.shape(source)
    count = int(np.prod(rest))
    if count > 600:
        raise UndrawableError("a large product follows")
    match s.dice.choice(["flatten", "-1", "0", "computed"]):
        case "flatten":
            made = s.one("Flatten", source, axis=s.dice.choice([None, 1]))
        case "-1":
            wanted = s.dice.choice([[n, -1], [-1, count]])
            made = s.one("Reshape", source, s.constant(wanted), _shape=(n, count))
        case "0":
            made = s.one("Reshape", source, s.constant([0, -1]), _shape=(n, count))
        case _:
            size = s.one("Gather", s.one("Shape", source), s.constant(0), axis=0)
            wanted = s.one("Concat", added(s, size, 0), s.constant([-1]), axis=0)
            made = s.one("Reshape", source, wanted, _shape=(n, count))
    s.offer(made)


def rows(s: Sketch) -> None:
    """From a pooled image or a sequence to a row, by removing axes of one element."""
    source = s.any(4)
    shape = s.shape(source)
    axes = [axis for axis in (2, 3) if shape[axis] == 1]
    if not axes:
        raise UndrawableError("no axis of one element")
    named = [axis - 4 for axis in axes] if s.opset >= 11 else axes
    s.offer(dropped(s, source, *named))


def image(s: Sketch) -> None:
    """Back from a sequence or a row to an image."""
    source = s.any(2, 3)
    shape = s.shape(source)
    if len(shape) == 2:
        made = s.dice.choice([(2, 3), (-2, -1)]) if s.opset >= 11 else (2, 3)
        s.offer(added(s, source, *made))
        return
    n, length, features = shape
    height = next(h for h in (4, 3, 2, 1) if length % h == 0)
    made = s.one("Transpose", source, perm=[0, 2, 1])
    wanted = (n, features, height, length // height)
    s.offer(s.one("Reshape", made, s.constant(list(wanted)), _shape=wanted))


def view(s: Sketch) -> None:
    """A view whose shape is computed from the tensor's: `x.view(n, c // 2, h * 2, w)`."""
    source = s.any(4)
    n, c, h, w = s.shape(source)
    if c % 2:
        raise UndrawableError("odd channels")
    shape = s.one("Shape", source)
    sizes = [s.one("Gather", shape, s.constant(axis), axis=0) for axis in range(4)]
    half = s.one("Div", sizes[1], s.constant(2))
    if s.dice.random() < 0.5:  # as torch writes `//`
        half = s.one("Cast", s.one("Cast", half, to=7), to=7)
    double = s.one("Mul", sizes[2], s.constant(2))
    parts = [added(s, x, 0) for x in (sizes[0], half, double, sizes[3])]
    wanted = s.one("Concat", *parts, axis=0)
    s.offer(s.one("Reshape", source, wanted, _shape=(n, c // 2, 2 * h, w)))


def channel_shuffle(s: Sketch) -> None:
    source = s.any(4)
    n, c, h, w = s.shape(source)
    group = s.dice.choice([2, 3])
    if c % group:
        raise UndrawableError("no groups")
    made = s.one("Reshape", source, s.constant([n, group, c // group, h, w]))
    made = s.one("Transpose", made, perm=[0, 2, 1, 3, 4])
    s.offer(s.one("Reshape", made, s.constant(s.dice.choice([[n, c, h, w], [0, -1, h, w]])),
                  _shape=(n, c, h, w)))  # fmt: skip


def windows(s: Sketch) -> None:
    """Swin's windows: partitioned, and put together again."""
    source = s.any(4)
    n, c, h, w = s.shape(source)
    if h % 2 or w % 2:
        raise UndrawableError("odd sizes")
    made = s.one("Transpose", source, perm=[0, 2, 3, 1])
    if s.dice.random() < 0.5 and h > 2:  # rolled by one, as torch.roll is exported
        made = s.one(
            "Concat", cut(s, made, {1: (1, 2**63 - 1, 1)}), cut(s, made, {1: (0, 1, 1)}), axis=1
        )
    made = s.one("Reshape", made, s.constant([n, h // 2, 2, w // 2, 2, c]))
    made = s.one("Transpose", made, perm=[0, 1, 3, 2, 4, 5])
    made = s.one("Reshape", made, s.constant([-1, 4, c]), _shape=(n * h * w // 4, 4, c))
    made = s.one("MatMul", made, s.weight(c, c, scale=c**-0.5))
    made = s.one("Reshape", made, s.constant([n, h // 2, w // 2, 2, 2, c]))
    made = s.one("Transpose", made, perm=[0, 1, 3, 2, 4, 5])
    made = s.one("Reshape", made, s.constant([n, h, w, c]))
    s.offer(s.one("Transpose", made, perm=[0, 3, 1, 2]))


def transpose(s: Sketch) -> None:
    """One transposition or two in a row, the default order among them."""
    made = s.any(2, 3, 4)
    rank = len(s.shape(made))
    for _ in range(s.dice.randint(1, 2)):
        order = s.dice.sample(range(1, rank), rank - 1)
        made = s.one("Transpose", made, perm=[0, *order])
    s.offer(made)


def split(s: Sketch) -> None:
    """Into equal and unequal parts along any axis, some of them unread."""
    source = s.any(2, 3, 4)
    shape = s.shape(source)
    axis = s.dice.randrange(1, len(shape))
    size = shape[axis]
    count = s.dice.randint(1, min(3, size))
    edges = sorted(s.dice.sample(range(1, size), count - 1))
    sizes = [b - a for a, b in zip([0, *edges], [*edges, size], strict=True)]
    named = axis - len(shape) if s.opset >= 11 and s.dice.random() < 0.5 else axis
    if s.dice.random() < 0.4:
        if size % count and s.opset < 18:
            raise UndrawableError("no equal parts")
        many = count if s.opset >= 18 else None
        made = s.several("Split", [source], count, axis=named, num_outputs=many)
    elif s.opset < 13:
        made = s.several("Split", [source], count, axis=named, split=sizes)
    else:
        made = s.several("Split", [source, s.constant(sizes)], count, axis=named)
    s.offer(*s.dice.sample(made, s.dice.randint(1, count)))


def join(s: Sketch) -> None:
    """Concatenate two or three tensors that fit, along any axis."""
    source = s.any(2, 3, 4)
    shape = s.shape(source)
    axis = s.dice.randrange(1, len(shape))
    fitting = [
        name
        for name, tensor in s.tensors.items()
        if tensor.dtype == s.dtype
        and tensor.rank == len(shape)
        and all(
            n == axis or a == b for n, (a, b) in enumerate(zip(tensor.shape, shape, strict=True))
        )
    ]
    others = [s.dice.choice(fitting) for _ in range(s.dice.randint(0, 2))]
    if s.dice.random() < 0.2:
        others.append(s.weight(*shape))
    named = axis - len(shape) if s.opset >= 11 and s.dice.random() < 0.5 else axis
    s.offer(s.one("Concat", source, *others, axis=named))


def slice_(s: Sketch) -> None:
    """Any bounds, negative ones too, steps, backwards."""
    source = s.any(2, 3, 4)
    shape = s.shape(source)
    bounds = {}
    for axis in s.dice.sample(range(1, len(shape)), s.dice.randint(1, min(2, len(shape) - 1))):
        size = shape[axis]
        start = s.dice.randrange(size)
        end = s.dice.randint(start + 1, size)
        step = s.dice.choice([1, 1, 1, 2, 3, -1])
        if step < 0:
            given = (end - 1, start - 1 if start else -(2**31), -1)
        else:
            end = s.dice.choice([end, end if end < size else 2**31 - 1])
            given = (start - size if s.dice.random() < 0.3 else start, end, step)
        bounds[axis - len(shape) if s.dice.random() < 0.3 and s.opset >= 10 else axis] = given
    s.offer(cut(s, source, bounds))


def gather(s: Sketch) -> None:
    """By constants: one, several, along any axis; by elements; by lists of indices."""
    source = s.any(2, 3, 4)
    shape = s.shape(source)
    axis = s.dice.randrange(1, len(shape))
    size = shape[axis]
    least = -size if s.opset >= 11 else 0
    kind = s.dice.choice(["several", "one", "elements", "nd"])
    if kind == "several":
        places = [s.dice.randrange(least, size) for _ in range(s.dice.randint(1, 4))]
        s.offer(
            s.one(
                "Gather", source, s.constant(places, s.dice.choice(["int64", "int32"])), axis=axis
            )
        )
    elif kind == "one":
        if len(shape) < 3:
            raise UndrawableError("one axis would be left")
        s.offer(s.one("Gather", source, s.constant(s.dice.randrange(least, size)), axis=axis))
    elif kind == "elements":
        places = s.numbers.integers(least, size, shape)
        s.offer(s.one("GatherElements", source, s.constant(places), axis=axis))
    else:
        places = s.numbers.integers(0, shape[1], (shape[0], 3, 1))
        if s.opset < 12:
            raise UndrawableError("no batch axes")
        s.offer(s.one("GatherND", source, s.constant(places), batch_dims=1))


def repeat(s: Sketch) -> None:
    """`Tile`, `Expand` and shapes that are broadcast, by constants and computed."""
    source = s.any(3, 4)
    shape = s.shape(source)
    rank = len(shape)
    if s.dice.random() < 0.5:
        counts = [1, *(s.dice.choice([1, 1, 2]) for _ in shape[1:])]
        s.offer(s.one("Tile", source, s.constant(counts)))
        return
    column = cut(s, source, {rank - 1: (0, 1, 1)})
    wanted = s.dice.choice([[1, *shape[1:]], [*shape], [1] * (rank - 1) + [shape[-1]]])
    if s.dice.random() < 0.5:
        s.offer(s.one("Expand", column, s.constant(wanted)))
    else:
        s.offer(s.one("Expand", column, s.one("Shape", source), _shape=shape))


def scatter(s: Sketch) -> None:
    """Overwrite some elements, as torch exports in-place assignments."""
    if s.opset < 13:
        raise UndrawableError("no scatter as exporters write it")
    source = s.any(2, 3)
    shape = s.shape(source)
    if s.dice.random() < 0.5:
        rows_ = s.dice.randint(1, shape[1])
        places = [[0, row] for row in s.dice.sample(range(shape[1]), rows_)]
        made = s.one("ScatterND", source, s.constant(places), s.weight(rows_, *shape[2:]))
    else:
        size = s.dice.randint(1, shape[1])
        places = np.argsort(s.numbers.random((1, shape[1], *shape[2:])), axis=1)[:, :size]
        made = s.one("ScatterElements", source, s.constant(places), s.weight(*places.shape), axis=1)
    s.offer(made)


def idle(s: Sketch) -> None:
    """Operators without effect: identities, dropouts, casts, pads of zero, views there and back."""
    made = s.any(2, 3, 4)
    shape = s.shape(made)
    kind = {"float32": 1, "float16": 10}[s.dtype]
    for _ in range(s.dice.randint(1, 4)):
        match s.dice.choice(
            ["Identity", "Dropout", "Cast", "view", "axes", "add", "mul", "slice", "turn"]
        ):
            case "Identity":
                made = s.one("Identity", made)
            case "Dropout":
                made = s.one("Dropout", made)
            case "Cast":
                made = s.one("Cast", made, to=kind)
            case "view":
                made = s.one("Reshape", made, s.constant(list(shape)))
            case "axes":
                made = dropped(s, added(s, made, 1), 1)
            case "add":
                made = s.one("Add", made, s.constant(0.0, s.dtype))
            case "mul":
                made = s.one("Mul", made, s.constant(np.ones(shape[-1]), s.dtype))
            case "slice":
                made = cut(s, made, {1: (0, 2**31 - 1, 1)})
            case _:
                order = [0, *range(len(shape) - 1, 0, -1)]
                made = s.one("Transpose", s.one("Transpose", made, perm=order), perm=order)
    s.offer(made)


IDIOMS = (
    *(
        flatten,
        flatten,
        rows,
        image,
        image,
        view,
        channel_shuffle,
        windows,
        transpose,
        split,
        split,
    ),
    *(join, join, slice_, slice_, gather, gather, repeat, scatter, idle, idle),
)
