"""Arrays in .npy and .npz files as a network's input: one frame each, or a stack of frames.

An array's header is checked against the network's input before any of its data is read, and then
one frame is read at a time: a large file is never read whole. Nothing is mapped, because whoever
shortens a mapped file ends the process that reads it; here that is a sentence. Of an .npz file only
the arrays that are inputs are opened, and what it states of their sizes is believed only as far as
its own size allows.
"""

from __future__ import annotations

import io
import math
import os
import warnings
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Protocol

import numpy as np

from cnn.network import Tensor
from cnn.reading.regular_files import open_regular
from launcher.errors import BadInputError, LauncherError, reason, shortened
from launcher.run.runtime import Array, Frame

SUFFIXES = (".npy", ".npz")

HEADER_BYTES = 10_000
"""What NumPy itself regards as the longest header that is safe to read."""

DEFLATE_RATIO = 1032
"""Bytes that a byte of deflated data stands for at most."""

_BLOCK_BYTES = 4 << 20
_ZIP = (b"PK\x03\x04", b"PK\x05\x06")
_LENGTH_BYTES = {(1, 0): 2, (2, 0): 4}
"""Of the field with the header's length, by version; 3.0 is for fields with names."""


@dataclass(frozen=True)
class _Stored:
    """An array as it lies in a file: `frames` of `inner` shape from byte `begin` on.

    `is_column_major`: the first axis, which counts the frames, changes fastest.
    """

    tensor: Tensor
    dtype: np.dtype[np.generic]
    frames: int
    inner: tuple[int, ...]
    begin: int
    is_column_major: bool

    @property
    def size_bytes(self) -> int:
        """Of all frames."""
        return self.frames * math.prod(self.inner) * self.dtype.itemsize

    def frame(self, file: IO[bytes], index: int) -> Array:
        """One frame, as the network takes it; `EOFError` if the file ends before."""
        count = math.prod(self.inner)
        if self.is_column_major and self.frames > 1:
            values = self._gathered(file, index, count)
        else:
            file.seek(self.begin + index * count * self.dtype.itemsize)
            values = self._values(file, count)
        shaped = values.reshape(self.inner, order="F" if self.is_column_major else "C")
        return np.array(shaped, dtype=self.tensor.dtype, order="C").reshape(self.tensor.shape)

    def _gathered(self, file: IO[bytes], index: int, count: int) -> Array:
        """Every `frames`-th value of all, from `index` on."""
        values, found = np.empty(count, self.dtype), 0
        block = max(1, _BLOCK_BYTES // self.dtype.itemsize)
        file.seek(self.begin)
        for start in range(0, count * self.frames, block):
            read = self._values(file, min(block, count * self.frames - start))
            mine = read[(index - start) % self.frames :: self.frames]
            values[found : found + len(mine)] = mine
            found += len(mine)
        return values

    def _values(self, file: IO[bytes], count: int) -> Array:
        values = np.empty(count, self.dtype)
        left = values.view(np.uint8).data
        while left:
            data = file.read(min(len(left), _BLOCK_BYTES))
            if not data:
                raise EOFError("it ends before its data do; was it shortened?")
            left[: len(data)] = data
            left = left[len(data) :]
        return values


class ArrayFile(Protocol):
    """A file of arrays for all of a network's inputs."""

    @property
    def frames(self) -> int:
        """How many there are."""
        ...

    def frame(self, index: int) -> Frame:
        """One of them; `BadInputError` if the file does not have it any more."""
        ...


@dataclass(frozen=True)
class _Npy:
    """An .npy file, which is opened for each frame: there may be thousands of files."""

    path: Path
    stored: _Stored

    @property
    def frames(self) -> int:
        """See `ArrayFile`."""
        return self.stored.frames

    def frame(self, index: int) -> Frame:
        """See `ArrayFile`."""
        with _reading(self.path), open_regular(self.path) as file:
            return {self.stored.tensor.name: self.stored.frame(file, index)}


class LastArchive:
    """Keeps one .npz file open: reading on is quick, but finding a place anew unpacks all before
    it."""

    def __init__(self) -> None:
        self._path: Path | None = None
        self._members: dict[str, IO[bytes]] = {}
        self._opened = ExitStack()

    def member(self, path: Path, name: str) -> IO[bytes]:
        """A member, open for reading; raises as `zipfile` does."""
        if path != self._path:
            self.close()
            file = self._opened.enter_context(open_regular(path))
            self._archive = self._opened.enter_context(zipfile.ZipFile(file))
            self._path = path
        if name not in self._members:
            self._members[name] = self._opened.enter_context(self._archive.open(name))
        return self._members[name]

    def close(self) -> None:
        """Close what is open."""
        self._path, self._members = None, {}
        self._opened.close()

    def __del__(self) -> None:
        self.close()  # nobody says when inputs are not needed any more


@dataclass(frozen=True)
class _Npz:
    """An .npz file; `members` are the arrays that are inputs, by their names in the archive."""

    path: Path
    members: Mapping[str, _Stored]
    frames: int
    last: LastArchive

    def frame(self, index: int) -> Frame:
        """See `ArrayFile`."""
        with _reading(self.path):
            try:
                return {
                    stored.tensor.name: stored.frame(self.last.member(self.path, name), index)
                    for name, stored in self.members.items()
                }
            except BaseException:
                self.last.close()  # a member that could not be read is of no more use
                raise


def open_arrays(path: Path, inputs: tuple[Tensor, ...], last: LastArchive) -> ArrayFile:
    """The frames of a file, of which only headers are read yet; `last` opens archives later.

    An .npy file is for a network of one input, an .npz file holds one array per input name. An
    array is one frame of the input's shape, with or without a batch axis of 1, or a stack of
    frames. Raises `BadInputError` naming the file.
    """
    with _reading(path), open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        if file.read(4) in _ZIP:
            with zipfile.ZipFile(file) as archive:
                return _archived(path, archive, size, inputs, last)
        if len(inputs) != 1:
            names = ", ".join(tensor.name for tensor in inputs)
            raise BadInputError(
                f"{path}: the model has {len(inputs)} inputs ({names}); "
                "give an .npz file with an array for each, or random"
            )
        file.seek(0)
        return _Npy(path, _stored(path, file, size, inputs[0]))


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Say it in a sentence if the file cannot be read, whatever its reader runs into."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of NumPy's about headers that Python 2 wrote
            yield
    except LauncherError:
        raise
    except Exception as error:  # noqa: BLE001 - zipfile and NumPy let what they run into through
        raise BadInputError(f"{path}: cannot be read as a NumPy file: {reason(error)}") from None


def _archived(
    path: Path, archive: zipfile.ZipFile, size: int, inputs: tuple[Tensor, ...], last: LastArchive
) -> _Npz:
    # An array is called NAME in NumPy's archives, and its member NAME.npy.
    names = {name.removesuffix(".npy"): name for name in archive.namelist()}
    for tensor in inputs:
        if tensor.name not in names:
            raise BadInputError(
                f"{path}: holds no array {tensor.name!r}, which is an input of the model; "
                f"it has {shortened(', '.join(sorted(names))) or 'none'}"
            )
    members = {}
    for tensor in inputs:
        about = archive.getinfo(names[tensor.name])
        with archive.open(about) as member:
            members[about.filename] = _stored(path, member, _unpacked(about, size), tensor)
    lengths = {stored.tensor.name: stored.frames for stored in members.values()}
    if len(set(lengths.values())) > 1:
        shown = ", ".join(f"{name}: {length}" for name, length in lengths.items())
        raise BadInputError(f"{path}: its arrays hold different numbers of frames ({shown})")
    return _Npz(path, members, next(iter(lengths.values())), last)


def _unpacked(member: zipfile.ZipInfo, archive_bytes: int) -> int:
    """The bytes of a member, as far as they can be true; `ValueError` if they cannot."""
    ratios = {zipfile.ZIP_STORED: 1, zipfile.ZIP_DEFLATED: DEFLATE_RATIO}
    if member.compress_type not in ratios:
        raise ValueError("it is packed by a method that NumPy does not use")
    if member.file_size > ratios[member.compress_type] * min(member.compress_size, archive_bytes):
        raise ValueError(f"its array {member.filename!r} states a size that it cannot have")
    return member.file_size


def _stored(path: Path, file: IO[bytes], size: int, tensor: Tensor) -> _Stored:
    """What a header says, checked against the network's input and against the file's size."""
    version = np.lib.format.read_magic(file)
    if version not in _LENGTH_BYTES:
        raise ValueError(f"its format {version[0]}.{version[1]} is not one of plain numbers")
    length_field = file.read(_LENGTH_BYTES[version])
    length = int.from_bytes(length_field, "little")
    if length > HEADER_BYTES:
        raise ValueError(f"its header has {length} bytes, more than any array needs")
    head = io.BytesIO(length_field + file.read(length))
    begin = np.lib.format.MAGIC_LEN + len(head.getvalue())
    if version == (1, 0):
        shape, is_column_major, dtype = np.lib.format.read_array_header_1_0(head)
    else:
        shape, is_column_major, dtype = np.lib.format.read_array_header_2_0(head)
    if not all(0 <= length < 1 << 63 for length in shape):
        raise ValueError("its header states a length that no array has")
    if dtype.hasobject:
        raise ValueError("it holds Python objects")
    wanted = np.dtype(tensor.dtype)
    fits = dtype.names is None and dtype.subdtype is None
    if not fits or not np.can_cast(dtype, wanted, casting="same_kind"):
        raise BadInputError(
            f"{path}: holds {shortened(str(dtype))}, but "
            f"the model's input {tensor.name!r} is {tensor.dtype}"
        )
    frames, inner = _layout(path, shape, tensor)
    stored = _Stored(tensor, dtype, frames, inner, begin, is_column_major)
    if begin + stored.size_bytes > size:
        raise ValueError(f"it states {stored.size_bytes} bytes of data and has {size - begin}")
    return stored


def _layout(path: Path, shape: tuple[int, ...], tensor: Tensor) -> tuple[int, tuple[int, ...]]:
    """How many frames an array of `shape` holds, and of which shape they are."""
    wanted = tensor.shape
    alone = (wanted, wanted[1:]) if wanted[:1] == (1,) else (wanted,)
    if 0 not in shape and shape in alone:
        return 1, shape
    if 0 not in shape and shape[1:] in alone and shape[0] > 0:
        return shape[0], shape[1:]
    raise BadInputError(
        f"{path}: has the shape {shortened(str(list(shape)))}, but the model's input "
        f"{tensor.name!r} has {list(tensor.shape)} (a stack of frames has one more axis in front)"
    )
