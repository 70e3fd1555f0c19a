"""Opens the frames that a run streams: image files, arrays, or random numbers from a seed.

Every input is checked before the run starts, decoded when it is needed, and kept in memory up to a
small budget. Inputs are repeated if there are fewer than frames.
"""

from __future__ import annotations

import bisect
import hashlib
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import overload

import numpy as np

from cnn.network import Network, Tensor
from launcher.config.load import matching_files, unmatched
from launcher.config.network import RANDOM, InputConfig, Resize
from launcher.errors import BadInputError
from launcher.inputs.arrays import SUFFIXES as ARRAY_SUFFIXES
from launcher.inputs.arrays import ArrayFile, LastArchive, open_arrays
from launcher.inputs.fitting import ImageFormat, image_format
from launcher.inputs.images import SUFFIXES as IMAGE_SUFFIXES
from launcher.inputs.images import read_image, read_pixels
from launcher.run.runtime import Frame
from nodes.protocol.payload import Array

KEPT_BYTES = 64 << 20
"""Decoded inputs that are kept; the others are decoded again when they are needed."""

RANDOM_INPUTS = 16
"""Distinct frames of random input, which are repeated as files are."""

MOST_INPUTS = 10_000_000
"""Distinct frames of a run, because each takes some memory."""


@dataclass(frozen=True)
class Item:
    """One distinct input: its name, and a function that makes its frame.

    `picture` decodes the image, uint8 [height, width, 3] in RGB, from which the frame is made.
    """

    name: str
    load: Callable[[], Frame]
    picture: Callable[[], Array] | None = None


class Items(Sequence[Item]):
    """A sequence that makes its items on access, because a file may hold millions of frames."""

    def __init__(self, count: int, make: Callable[[int], Item]) -> None:
        self._count, self._make = count, make

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> Item: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Item, ...]: ...
    def __getitem__(self, index: int | slice) -> Item | tuple[Item, ...]:
        if isinstance(index, slice):
            return tuple(self._make(number) for number in range(self._count)[index])
        return self._make(range(self._count)[index])


def chained(parts: Sequence[Sequence[Item]]) -> Items:
    """Return the items of several files, one file after the other."""
    ends = list(itertools.accumulate(map(len, parts)))

    def make(number: int) -> Item:
        part = bisect.bisect_right(ends, number)
        return parts[part][number - ends[part]]  # a negative index, from the part's end

    return Items(ends[-1] if ends else 0, make)


@dataclass
class Inputs:
    """`count` frames that repeat `items` in order; implements `launcher.run.runtime.Frames`."""

    items: Sequence[Item]
    count: int
    description: str
    _kept: dict[int, Frame] = field(default_factory=dict)
    _kept_bytes: int = 0

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Frame:
        if not 0 <= index < self.count:
            raise IndexError(index)
        number = self.source(index)
        if number in self._kept:
            return self._kept[number]
        frame = self.items[number].load()
        size = sum(array.nbytes for array in frame.values())
        if self._kept_bytes + size <= KEPT_BYTES:
            self._kept[number] = frame
            self._kept_bytes += size
        return frame

    @property
    def distinct(self) -> int:
        """How many of the items are streamed; frame i < distinct is item i."""
        return min(self.count, len(self.items))

    def source(self, index: int) -> int:
        """Return the number of the item that frame `index` is."""
        return index % len(self.items)

    def check(self) -> None:
        """Decode every item that will be streamed; raises `BadInputError` for the first failure."""
        for index in range(self.distinct):
            self[index]

    def digest(self) -> str:
        """Return a digest of all decoded items that are streamed; raises as `check` does."""
        return frames_digest(self[index] for index in range(self.distinct))


def open_inputs(
    network: Network,
    config: InputConfig,
    folder: Path,
    *,
    frames: int | None,
    seed: int,
    is_classifier: bool,
    where: str,
    usual_resize: Resize = "crop",
) -> Inputs:
    """Open the input that `config` describes as frames for `network`, without decoding it yet.

    Globs are relative to `folder`. Without `frames`, every input is streamed once. Raises
    `BadInputError`, whose message begins with `where`.
    """
    if config.source is not None:
        raise BadInputError(
            f"{where}: only a service streams a source of one network (launch up); name files "
            "here, or write the source as `input`"
        )
    tensors = tuple(network.tensors[name] for name in network.inputs)
    if config.is_random:
        items = tuple(
            Item(f"{RANDOM}[{number}]", _random(tensors, seed, number))
            for number in range(RANDOM_INPUTS)
        )
        return Inputs(items, frames or len(items), f"seeded random numbers (seed {seed})")
    paths = _paths(config, folder, where)
    images = [path for path in paths if path.suffix.lower() in IMAGE_SUFFIXES]
    wanted: ImageFormat | None = None
    if images:
        wanted = _image_format(tensors, config, images[0], is_classifier, where, usual_resize)
    parts: list[Sequence[Item]] = []
    last = LastArchive()
    for path in paths:
        if wanted is not None and path in images:
            parts.append((_image_item(path, tensors[0].name, wanted),))
        else:
            parts.append(_array_items(path, open_arrays(path, tensors, last)))
    found = chained(parts)
    if len(found) > MOST_INPUTS:
        raise BadInputError(
            f"{where}: has {len(found)} frames, but a run takes at most {MOST_INPUTS} different "
            "ones; name fewer files, or shorter ones"
        )
    description = f"{len(found)} inputs from {len(paths)} file{'s' if len(paths) > 1 else ''}"
    if wanted is not None:
        description += f": {wanted.description}"
    return Inputs(found, frames or len(found), description)


def _paths(config: InputConfig, folder: Path, where: str) -> tuple[Path, ...]:
    known = (*IMAGE_SUFFIXES, *ARRAY_SUFFIXES)
    paths: list[Path] = []
    for pattern in config.files:
        matched = matching_files(folder, pattern)
        if not matched:
            raise BadInputError(f"{where}: {unmatched(folder, pattern)}")
        paths += matched
    for path in paths:
        if path.suffix.lower() not in known:
            raise BadInputError(
                f"{where}: {str(path)!r} is not a kind of file that can be read; use "
                f"{', '.join(known)}"
            )
    return tuple(dict.fromkeys(paths))


def _image_format(
    tensors: tuple[Tensor, ...],
    config: InputConfig,
    example: Path,
    is_classifier: bool,
    where: str,
    usual_resize: Resize,
) -> ImageFormat:
    if len(tensors) != 1:
        names = ", ".join(tensor.name for tensor in tensors)
        raise BadInputError(
            f"{where}: {str(example)!r} is one image, but the model has {len(tensors)} inputs "
            f"({names}); use .npz files with an array for each, or random"
        )
    return image_format(
        tensors[0], config, is_classifier=is_classifier, where=where, usual_resize=usual_resize
    )


def _image_item(path: Path, name: str, wanted: ImageFormat) -> Item:
    picture = None if wanted.channels == 4 else partial(read_pixels, path)
    return Item(path.name, lambda: {name: read_image(path, wanted)}, picture)


def _array_items(path: Path, arrays: ArrayFile) -> Items:
    def make(index: int) -> Item:
        name = f"{path.name}[{index}]" if arrays.frames > 1 else path.name
        return Item(name, lambda: arrays.frame(index))

    return Items(arrays.frames, make)


def _random(tensors: tuple[Tensor, ...], seed: int, number: int) -> Callable[[], Frame]:
    def load() -> Mapping[str, Array]:
        generator = np.random.default_rng((seed, number))
        return {tensor.name: _drawn(generator, tensor) for tensor in tensors}

    return load


def _drawn(generator: np.random.Generator, tensor: Tensor) -> Array:
    dtype = np.dtype(tensor.dtype)
    if np.issubdtype(dtype, np.floating):
        return generator.standard_normal(tensor.shape, dtype=np.float32).astype(dtype)
    if dtype == np.bool_:
        return generator.integers(0, 2, tensor.shape).astype(dtype)
    limit = 256 if dtype == np.uint8 else 100
    return generator.integers(0, limit, tensor.shape).astype(dtype)


def frames_digest(frames: Iterable[Frame]) -> str:
    """Return the SHA-256 (hexadecimal) of these frames' names, dtypes, shapes and values."""
    digest = hashlib.sha256()
    for frame in frames:
        for name in sorted(frame):
            array = np.ascontiguousarray(frame[name])
            digest.update(f"{name}\0{array.dtype.str}\0{array.shape}\0".encode())
            digest.update(array.data.cast("B") if array.nbytes else b"")
        digest.update(b"\n")
    return digest.hexdigest()
