"""Frames dealt out to copies of a network, in a fixed cyclic pattern.

A pattern names the copy of each frame of a cycle: (0, 0, 1) gives two frames of three to copy 0 and
one to copy 1. In CSDF terms the host's source is an actor with as many phases as the cycle has
frames, whose production on the channels of a copy is one frame in the phases that deal to it and
zero in the others, and its sink consumes likewise, so results come out in frame order. A copy that
gets c frames of a cycle fires its phases c times per iteration.

Source: the split of a batch over unequal processors is that of Vanishree et al., "CoIn: Accelerated
CNN Co-Inference through data partitioning on heterogeneous devices", ICACCS 2020.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from csdf.errors import ConversionError


def balanced_pattern(frames: Sequence[int]) -> tuple[int, ...]:
    """The pattern in which copy i gets `frames[i]` ≥ 0 frames of a cycle, spread evenly.

    Frame k goes to the copy whose next frame is due first, if copy i's j-th is due at
    (j + ½) / frames[i] of the cycle. So no copy ever is a whole frame ahead of its share or behind.
    """
    due = [
        ((2 * turn + 1) / (2 * count), copy)
        for copy, count in enumerate(frames)
        for turn in range(count)
    ]
    return tuple(copy for _, copy in sorted(due))


def longest_wait(pattern: Sequence[int], copy: int) -> int:
    """The most frames of `copy` between two neighbouring frames of any other copy, 1 at least."""
    most = 1
    for other in set(pattern) - {copy}:
        turns = [place for place, dealt in enumerate(pattern) if dealt == other]
        for start, stop in zip(turns, [*turns[1:], turns[0] + len(pattern)], strict=True):
            between = (pattern[place % len(pattern)] for place in range(start, stop))
            most = max(most, sum(dealt == copy for dealt in between))
    return most


def copies_of(
    inputs: Sequence[str], layers: Iterable[tuple[str, Sequence[str], Sequence[str]]], count: int
) -> Mapping[str, int]:
    """Tensor → the copy that it belongs to, of a network that is `count` copies side by side.

    `layers` are (name, tensors read, tensors made) in topological order; the network's `inputs` are
    those of one copy, then those of the next. Raises `ConversionError` if this is not so: if a
    layer reads tensors of two copies, or none.
    """
    if count < 1 or len(inputs) % count:
        raise ConversionError(f"{len(inputs)} network inputs are not those of {count} copies")
    each = len(inputs) // count
    copy = {tensor: number // each for number, tensor in enumerate(inputs)}
    for name, read, made in layers:
        copies = {copy[tensor] for tensor in read}
        if len(copies) != 1:
            raise ConversionError(f"layer {name!r} reads tensors of {len(copies)} copies")
        copy.update(dict.fromkeys(made, copies.pop()))
    return copy
