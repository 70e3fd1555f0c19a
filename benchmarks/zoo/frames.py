"""Makes the frames for the zoo's networks: noise, a dark room, a white wall.

Images come as numbers around 0, from 0 to 1 or from 0 to 255, by network, and nothing in the file
says which; so all of them are made.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from cnn.network import Network, Tensor
from launcher.run.runtime import Frame
from nodes.protocol.payload import Array

KINDS = ("noise", "noise", "camera", "black", "white", "glare")
"""Normal numbers, twice; uniform ones from 0 to 255; 0; 1; 255."""


def frames(network: Network, *, with_state: bool = False) -> list[Frame]:
    """A frame of each kind, with an array for every input, and if asked for every state."""
    generator = np.random.default_rng(0)
    return [
        {
            name: _values(generator, network.tensors[name], kind)
            for name in (*network.inputs, *(network.state if with_state else ()))
        }
        for kind in KINDS
    ]


def write(shown: list[Frame], folder: Path) -> list[Path]:
    """Files that `launch` streams in this order, one for each frame."""
    paths = []
    for number, frame in enumerate(shown):
        path = folder / f"{number:02d}.npz"
        np.savez(path, allow_pickle=False, **frame)
        paths.append(path)
    return paths


def _values(generator: np.random.Generator, tensor: Tensor, kind: str) -> Array:
    """In the input's own type: of whole numbers noise is from 0 to 99, which suits indices; bytes
    are those of a camera, where white is 255."""
    dtype, shape = np.dtype(tensor.dtype), tensor.shape
    if kind == "noise":
        if dtype.kind == "f":
            return generator.standard_normal(shape).astype(dtype)
        return generator.integers(0, _most(dtype, 99) + 1, shape).astype(dtype)
    if kind == "camera":
        return generator.integers(0, _most(dtype, 255) + 1, shape).astype(dtype)
    if kind == "black":
        return np.zeros(shape, dtype)
    white = 1 if kind == "white" and dtype != np.uint8 else 255
    return np.full(shape, min(white, _most(dtype, 255)), dtype)


def _most(dtype: np.dtype[np.generic], asked: int) -> int:
    """The largest value: `asked` for amounts, 255 for a camera's bytes; at most 1 for truth values,
    and 99 for what may be an index."""
    if dtype.kind == "f":
        return asked
    if dtype == np.uint8:
        return 255
    return 1 if dtype == np.bool_ else 99
