"""Names the encodings of tensors between nodes, and says how many bytes each of them takes.

A channel between two nodes may carry its float32 tensors encoded, to send fewer bytes. The encoding
is agreed with the deployment, so a receiver knows before anything comes how long a frame may be. It
holds frames as they came and decodes one when a firing reads it (`nodes.execution.encoding`).

| encoding   | bytes of n values               | what is lost                                      |
|------------|---------------------------------|---------------------------------------------------|
| `raw`      | 4 n                             | nothing                                           |
| `lossless` | at most 4 n, by the values      | nothing                                           |
| `fp16`     | 2 n                             | 13 of 24 bits of precision; finite values beyond  |
|            |                                 | 65504 become ±65504                               |
| `bf16`     | 2 n                             | 16 of 24 bits of precision                        |
| `int8`     | n, and 8 for each group of      | all but 253 levels between a group's least and    |
|            | values that has its own scale   | largest finite value                              |

A group is a channel (axis 1), or the whole tensor if channels have fewer than `FEWEST_IN_GROUP`
values. NaN and infinity are kept by all of them.
"""

from __future__ import annotations

import math
from typing import Literal, TypeAlias, get_args

Encoding: TypeAlias = Literal["raw", "lossless", "fp16", "bf16", "int8"]

ENCODINGS: tuple[Encoding, ...] = get_args(Encoding)

FEWEST_IN_GROUP = 16
"""The fewest values for which a separate scale is worth its 8 bytes."""


def groups(shape: tuple[int, ...]) -> tuple[int, int, int]:
    """Return a tensor's shape as (outer, channels, inner), where each channel has its own scale.

    >>> groups((1, 64, 7, 7)), groups((1, 1000)), groups(())
    ((1, 64, 49), (1, 1, 1000), (1, 1, 1))
    """
    size = math.prod(shape)
    if len(shape) < 2 or not size or size // shape[1] < FEWEST_IN_GROUP:
        return 1, 1, size
    return shape[0], shape[1], math.prod(shape[2:])


def most_bytes(encoding: Encoding, shape: tuple[int, ...]) -> int:
    """Return the bytes of an encoded float32 tensor; of `lossless`, the most that it may have."""
    size = math.prod(shape)
    if encoding in ("fp16", "bf16"):
        return 2 * size
    if encoding == "int8" and size:
        return size + 8 * groups(shape)[1]
    return 4 * size


def is_length(encoding: Encoding, shape: tuple[int, ...], size_bytes: int) -> bool:
    """Return whether an encoded float32 tensor of this shape can have `size_bytes` bytes."""
    most = most_bytes(encoding, shape)
    return 0 < size_bytes <= most if encoding == "lossless" and most else size_bytes == most
