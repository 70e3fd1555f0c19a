"""Reads .npy and .npz files as a network's input, one frame at a time, and makes their headers.

An array holds one frame or a stack of frames. Its header is checked against the network's input
before any data is read. Files are not mapped into memory, because a process dies if a file that it
has mapped is truncated; a read reports that as an error. Only those arrays of an .npz file that are
inputs are opened, and a size that an archive states must be possible for a file of its length.
"""

from __future__ import annotations

import io
import math
import os
import warnings
import weakref
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
from launcher.run.runtime import Frame
from nodes.protocol.payload import Array

SUFFIXES = (".npy", ".npz")

HEADER_BYTES = 10_000
"""The longest header that NumPy itself considers safe to read."""

DEFLATE_RATIO = 1032
"""The most bytes that one byte of deflated data can expand to."""

MOST_BYTES = 512 << 20
"""The most data of a frame whose network is not known yet."""

_BLOCK_BYTES = 4 << 20
_ZIP = (b"PK\x03\x04", b"PK\x05\x06")
_LENGTH_BYTES = {(1, 0): 2, (2, 0): 4}
"""Size of the header's length field by format version; version 3.0 is for named fields."""


@dataclass(frozen=True)
class _Stored:
    """An array in a file: `frames` frames of shape `inner`, from byte `begin` on.

    With `is_column_major` the first axis, which counts the frames, changes fastest.
    """

    tensor: Tensor
    dtype: np.dtype[np.generic]
    frames: int
    inner: tuple[int, ...]
    begin: int
    is_column_major: bool

    @property
    def size_bytes(self) -> int:
        """The size of all frames."""
        return self.frames * math.prod(self.inner) * self.dtype.itemsize

    def frame(self, file: IO[bytes], index: int) -> Array:
        """Read one frame in the network's shape and dtype; raises `EOFError` if the file ends."""
        count = math.prod(self.inner)
        if self.is_column_major and self.frames > 1:
            values = self._gathered(file, index, count)
        else:
            file.seek(self.begin + index * count * self.dtype.itemsize)
            values = _values(file, self.dtype, count)
        shaped = values.reshape(self.inner, order="F" if self.is_column_major else "C")
        return np.array(shaped, dtype=self.tensor.dtype, order="C").reshape(self.tensor.shape)

    def _gathered(self, file: IO[bytes], index: int, count: int) -> Array:
        """Read every `frames`-th value, beginning with the value at `index`."""
        values, found = np.empty(count, self.dtype), 0
        block = max(1, _BLOCK_BYTES // self.dtype.itemsize)
        file.seek(self.begin)
        for start in range(0, count * self.frames, block):
            read = _values(file, self.dtype, min(block, count * self.frames - start))
            mine = read[(index - start) % self.frames :: self.frames]
            values[found : found + len(mine)] = mine
            found += len(mine)
        return values


def _values(file: ByteReader, dtype: np.dtype[np.generic], count: int) -> Array:
    values = np.empty(count, dtype)
    left = values.view(np.uint8).data
    while left:
        data = file.read(min(len(left), _BLOCK_BYTES))
        if not data:
            raise EOFError("it ends before its data do; was it truncated?")
        left[: len(data)] = data
        left = left[len(data) :]
    return values


class ByteReader(Protocol):
    """A source of consecutive bytes, such as a file or a pipe."""

    def read(self, count: int = ..., /) -> bytes:
        """Return `count` bytes; fewer only at the end."""
        ...


class ArrayFile(Protocol):
    """A file of arrays for all of a network's inputs."""

    @property
    def frames(self) -> int:
        """The number of frames."""
        ...

    def frame(self, index: int) -> Frame:
        """Read a frame; raises `BadInputError` if the file no longer has it."""
        ...


@dataclass(frozen=True)
class _Npy:
    """An .npy file, opened again for each frame because there may be thousands of files."""

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
    """Keeps the last .npz file open, because a reopened one is unpacked from its beginning."""

    def __init__(self) -> None:
        self._path: Path | None = None
        self._members: dict[str, IO[bytes]] = {}
        self._opened = ExitStack()
        # Nothing marks the moment from which inputs are no longer needed. A `__del__` may run after
        # those of the files, where the archive is part of a cycle.
        weakref.finalize(self, self._opened.close)

    def member(self, path: Path, name: str) -> IO[bytes]:
        """Return a member, open for reading; raises what `zipfile` raises."""
        if path != self._path:
            self.close()
            file = self._opened.enter_context(open_regular(path))
            self._archive = self._opened.enter_context(zipfile.ZipFile(file))
            self._path = path
        if name not in self._members:
            self._members[name] = self._opened.enter_context(self._archive.open(name))
        return self._members[name]

    def close(self) -> None:
        """Close the file that is open."""
        self._path, self._members = None, {}
        self._opened.close()


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
                self.last.close()  # reading cannot continue in a member that failed
                raise


def open_arrays(path: Path, inputs: tuple[Tensor, ...], last: LastArchive) -> ArrayFile:
    """Read a file's headers and return access to its frames; `last` will open archives.

    An .npy file is for a network with one input; an .npz file holds one array per input name. An
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
                "use an .npz file with an array for each, or random"
            )
        file.seek(0)
        return _Npy(path, _stored(path, file, size, inputs[0]))


def read_arrays(path: Path) -> dict[str, Array]:
    """Read all arrays of a file by name; the array of an .npy file has the name "".

    They may have any shape, and have at most `MOST_BYTES` together. Raises `BadInputError` naming
    the file.
    """
    with _reading(path), open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        if file.read(4) not in _ZIP:
            file.seek(0)
            return {"": read_array(file, min(size, MOST_BYTES))}
        arrays: dict[str, Array] = {}
        left = MOST_BYTES
        with zipfile.ZipFile(file) as archive:
            for about in archive.infolist():
                with archive.open(about) as member:
                    array = read_array(member, min(_unpacked(about, size), left))
                left -= array.nbytes
                arrays[about.filename.removesuffix(".npy")] = array
        return arrays


def read_array(file: ByteReader, most_bytes: int) -> Array:
    """Read an array of at most `most_bytes` from a file or pipe that begins with it, and no more.

    Raises `ValueError`, or `EOFError` if the file ends before.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # NumPy's about headers that Python 2 wrote
        header = _header(file)
    if header.dtype.kind not in "biuf":
        raise ValueError(f"it holds {shortened(str(header.dtype))} instead of numbers")
    count = math.prod(header.shape)
    if count * header.dtype.itemsize > most_bytes:
        raise ValueError(
            f"it declares {count * header.dtype.itemsize} bytes of data, but has or may have only "
            f"{most_bytes}"
        )
    values = _values(file, header.dtype, count)
    shaped = values.reshape(header.shape, order="F" if header.is_column_major else "C")
    return np.asarray(shaped, header.dtype.newbyteorder("="), order="C")


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Turn every error of a reader into a `BadInputError` that names the file."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # NumPy's about headers that Python 2 wrote
            yield
    except LauncherError:
        raise
    except Exception as error:  # noqa: BLE001 - zipfile and NumPy raise errors of any type
        raise BadInputError(
            f"{path}: cannot be read as a NumPy file: {reason(error, path)}"
        ) from None


def _archived(
    path: Path, archive: zipfile.ZipFile, size: int, inputs: tuple[Tensor, ...], last: LastArchive
) -> _Npz:
    # An array is called NAME in NumPy's archives, and its member NAME.npy.
    names = {name.removesuffix(".npy"): name for name in archive.namelist()}
    for tensor in inputs:
        if tensor.name not in names:
            raise BadInputError(
                f"{path}: has no array {tensor.name!r}, which is an input of the model; add it to "
                f"{shortened(', '.join(sorted(names))) or 'none'}"
            )
    members = {}
    for tensor in inputs:
        about = archive.getinfo(names[tensor.name])
        with archive.open(about) as member:
            members[about.filename] = _stored(path, member, _unpacked(about, size), tensor)
    lengths = {stored.tensor.name: stored.frames for stored in members.values()}
    if len(set(lengths.values())) > 1:
        shown = ", ".join(f"{name}: {length}" for name, length in lengths.items())
        raise BadInputError(
            f"{path}: its arrays hold different numbers of frames ({shown}); all need the same"
        )
    return _Npz(path, members, next(iter(lengths.values())), last)


def _unpacked(member: zipfile.ZipInfo, archive_bytes: int) -> int:
    """Return the unpacked size of a member; raises `ValueError` if it cannot be true."""
    ratios = {zipfile.ZIP_STORED: 1, zipfile.ZIP_DEFLATED: DEFLATE_RATIO}
    if member.compress_type not in ratios:
        raise ValueError("it is packed by a method that NumPy does not use")
    if member.file_size > ratios[member.compress_type] * min(member.compress_size, archive_bytes):
        raise ValueError(f"its array {member.filename!r} declares an impossible size")
    return member.file_size


@dataclass(frozen=True)
class _Header:
    """The contents of an array's header; the data begin at byte `begin`."""

    shape: tuple[int, ...]
    dtype: np.dtype[np.generic]
    is_column_major: bool
    begin: int


def _header(file: ByteReader) -> _Header:
    """Read a header; raises `ValueError` for one that no array of numbers has."""
    version = np.lib.format.read_magic(file)
    if version not in _LENGTH_BYTES:
        raise ValueError(f"its format {version[0]}.{version[1]} is not for plain numbers")
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
        raise ValueError("its header declares a length that no array has")
    if dtype.hasobject:
        raise ValueError("it holds Python objects")
    return _Header(shape, dtype, is_column_major, begin)


def _stored(path: Path, file: IO[bytes], size: int, tensor: Tensor) -> _Stored:
    """Read a header, and check it against the network's input and the file's size."""
    header = _header(file)
    dtype, wanted = header.dtype, np.dtype(tensor.dtype)
    fits = dtype.names is None and dtype.subdtype is None
    if not fits or not np.can_cast(dtype, wanted, casting="same_kind"):
        raise BadInputError(
            f"{path}: holds {shortened(str(dtype))}, but "
            f"the model's input {tensor.name!r} is {tensor.dtype}"
        )
    frames, inner = _layout(path, header.shape, tensor)
    stored = _Stored(tensor, dtype, frames, inner, header.begin, header.is_column_major)
    if header.begin + stored.size_bytes > size:
        raise ValueError(
            f"it declares {stored.size_bytes} bytes of data but has {size - stored.begin}"
        )
    return stored


def _layout(path: Path, shape: tuple[int, ...], tensor: Tensor) -> tuple[int, tuple[int, ...]]:
    """Return how many frames an array of `shape` holds, and the shape of each."""
    wanted = tensor.shape
    alone = (wanted, wanted[1:]) if wanted[:1] == (1,) else (wanted,)
    if 0 not in shape and shape in alone:
        return 1, shape
    if 0 not in shape and shape[1:] in alone and shape[0] > 0:
        return shape[0], shape[1:]
    raise BadInputError(
        f"{path}: has the shape {shortened(str(list(shape)))}, but the model's input "
        f"{tensor.name!r} needs {list(tensor.shape)}, or a stack of these with one more axis in "
        "front"
    )


def npy_header(dtype: np.dtype[np.generic], shape: tuple[int, ...]) -> bytes:
    """Return the header of an .npy file, after which the values follow in C order."""
    written = io.BytesIO()
    described = np.lib.format.dtype_to_descr(dtype)
    data = {"descr": described, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(written, data)
    return written.getvalue()


def npy_parts(array: Array) -> tuple[bytes, memoryview | bytes]:
    """Return the content of an .npy file of an array: its header, and its values in C order."""
    values = np.ascontiguousarray(array)
    return npy_header(array.dtype, array.shape), values.data.cast("B") if values.nbytes else b""
