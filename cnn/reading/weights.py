"""Separate a model's weights from its operators, and read those that lie in other files.

A protobuf message with a network's weights inside is copied whenever it is passed on, and cannot
exceed 2 GiB. So the weights leave it as soon as it is parsed.

The model's author chose the names of external files and the places in them, so both are untrusted.
A name is accepted if, after all links are followed, it is a regular file inside the model's own
folder, or a blob of the model's own repository in a cache of Hugging Face, in which every file is a
link to a blob (`_blobs`). A place is accepted if the file contains it and it has the weight's size.
This is checked before a file is opened, because opening a pipe blocks and opening a device may
trigger an action.

Weights may be larger than memory, so files are memory-mapped. If another process truncated a mapped
file, SIGBUS would end the process that reads it. This module therefore copies each file to an
unnamed file in the folder for temporary files (`TMPDIR`), and maps and hashes the copy: a model's
digest is that of the weights in use, whatever happens to the original.
"""

from __future__ import annotations

import hashlib
import math
import mmap
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import numpy as np
import onnx
from google.protobuf.message import Message  # type: ignore[import-untyped]
from onnx import helper, numpy_helper

from cnn.errors import ModelError
from cnn.network import Array
from cnn.operators.supported import numpy_dtype
from cnn.reading.regular_files import open_regular

_CHUNK_BYTES = 1 << 20

_NARROW_BITS = {
    getattr(onnx.TensorProto, f"{sign}INT{bits}"): bits
    for sign in ("", "U")
    for bits in (2, 4)
    if hasattr(onnx.TensorProto, f"{sign}INT{bits}")  # those of 2 bits are recent
}
"""The bits of integers that NumPy does not have; `cnn.reading.narrow_integers` widens them."""

_is_blob_name = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}").fullmatch
"""A blob's name is its hash: Git's, or SHA-256 for a large file."""

_is_number = re.compile(r"[0-9]{1,18}").fullmatch


@dataclass(frozen=True, slots=True)
class Contents:
    """A file as it was read: `digest` is the SHA-256 of `data`, a map unless it is empty."""

    file: Path
    data: mmap.mmap | bytes
    digest: bytes


def is_external(tensor: onnx.TensorProto) -> bool:
    """Whether a tensor's data lies in another file."""
    return bool(tensor.data_location == onnx.TensorProto.EXTERNAL)


def messages(message: Message) -> Iterator[Message]:
    """Yield a message and all messages inside it, without looking into tensors' data."""
    waiting = [message]
    while waiting:
        message = waiting.pop()
        yield message
        if isinstance(message, onnx.TensorProto):
            waiting.extend(message.external_data)
            continue
        for field, value in message.ListFields():
            if field.message_type is not None:
                waiting.extend([value] if isinstance(value, Message) else value)


def external_tensors(proto: onnx.ModelProto) -> list[onnx.TensorProto]:
    """Return the tensors of a model that lie in other files, wherever it has tensors."""
    found = (x for x in messages(proto) if isinstance(x, onnx.TensorProto))
    return [tensor for tensor in found if is_external(tensor)]


def file_of(tensor: onnx.TensorProto, directory: Path, what: str) -> Path:
    """Return the file that `tensor` lies in, with links resolved.

    Raises `ModelError` unless it is a regular file inside that folder, or a blob of its repository.
    """
    location = _entry(tensor, "location", what)
    if not location or not location.isprintable():
        raise ModelError(
            f"{what} is stored in another file, which it does not name; export the model again"
        )
    inside = PurePosixPath(location)
    if inside.is_absolute() or ".." in inside.parts:
        raise ModelError(
            f"{what} is stored in {location}, which is not in the model's folder; move it "
            "there and export the model again"
        )
    path = directory / inside
    try:
        file = path.resolve(strict=True)
        is_regular = stat.S_ISREG(file.stat().st_mode)
        folder = directory.resolve()
    except (OSError, RuntimeError) as error:  # RuntimeError: a cycle of links, before 3.13
        reason = getattr(error, "strerror", None) or "its links lead in a circle"
        raise ModelError(
            f"{what} is stored in {path}, which cannot be read ({reason}); put that file into the "
            "model's folder"
        ) from None
    is_blob = file.parent == _blobs(folder) and _is_blob_name(file.name) is not None
    if not is_blob and not file.is_relative_to(folder):
        raise ModelError(
            f"{what} is stored in {path}, a link to {file} outside the model's folder; replace "
            "the link by a copy of that file"
        )
    if not is_regular:
        raise ModelError(f"{what} is stored in {path}, which is not a regular file")
    return file


def _blobs(folder: Path) -> Path | None:
    """Return the folder of blobs that the files of `folder` may be links to; None without one.

    A cache of Hugging Face has a folder `models--ORGANISATION--NAME` for each repository, with a
    tree of links `snapshots/REVISION/…`, each to a file `blobs/HASH` of the same repository. So
    such a link shows a model nothing but files that came with it. `folder` has no links, and a file
    whose resolved parent is the result does not lie behind a link called `blobs` either.
    """
    for snapshots in folder.parents:
        repository = snapshots.parent
        if snapshots.name == "snapshots" and repository.name.startswith("models--"):
            return repository / "blobs"
    return None


def copied(file: Path) -> Contents:
    """Copy a file that `file_of` returned; return its content. Raises `ModelError`."""
    folder = tempfile.gettempdir()
    digest = hashlib.sha256()
    try:
        stream = open_regular(file, may_be_link=False)
    except OSError as error:
        raise ModelError(f"{file} cannot be read: {error.strerror}") from error
    with stream:
        size_bytes = os.fstat(stream.fileno()).st_size
        try:
            free_bytes = shutil.disk_usage(folder).free
            if free_bytes < size_bytes:  # checked first, so that the disk does not fill up
                raise ModelError(
                    f"the {size_bytes} bytes of {file} have to be copied to {folder}, which has "
                    f"{free_bytes} left; set TMPDIR to a folder on another disk"
                )
            with tempfile.TemporaryFile(dir=folder) as copy:
                while chunk := stream.read(min(_CHUNK_BYTES, size_bytes - copy.tell())):
                    copy.write(chunk)
                    digest.update(chunk)
                copy.flush()
                is_empty = copy.tell() == 0
                data = b"" if is_empty else mmap.mmap(copy.fileno(), 0, access=mmap.ACCESS_READ)
        except OSError as error:
            raise ModelError(f"{file} cannot be copied to {folder}: {error.strerror}") from error
    return Contents(file, data, digest.digest())


def array_in(
    contents: Contents,
    tensor: onnx.TensorProto,
    shape: tuple[int, ...],
    dtype: np.dtype[np.generic],
    what: str,
) -> Array:
    """Return a tensor from another file as a read-only array over the file's `contents`.

    `shape` has no negative dimension. Raises `ModelError` if the tensor is not there.
    """
    file = contents.file
    size_bytes = math.prod(shape) * dtype.itemsize
    offset, length = (_number(tensor, key, what) for key in ("offset", "length"))
    if length is not None and length != size_bytes:
        raise ModelError(
            f"{what} takes {size_bytes} bytes, but the model states a length of {length} in "
            f"{file.name}; export the model again"
        )
    end = (offset or 0) + size_bytes
    has = len(contents.data)
    if has < end:
        raise ModelError(
            f"{what} needs {end} bytes of {file}, which has {has}; the file is truncated, or "
            "only a pointer of Git LFS; download it again (git lfs pull)"
        )
    if size_bytes == 0:
        return np.zeros(shape, dtype)
    return np.frombuffer(contents.data, dtype, math.prod(shape), offset or 0).reshape(shape)


def _entry(tensor: onnx.TensorProto, key: str, what: str) -> str | None:
    values = [entry.value for entry in tensor.external_data if entry.key == key]
    if len(values) > 1:
        raise ModelError(
            f"{what} is stored in another file, with a duplicate key {key}; export the model again"
        )
    return values[0] if values else None


def _number(tensor: onnx.TensorProto, key: str, what: str) -> int | None:
    text = _entry(tensor, key, what)
    if text is None:
        return None
    if _is_number(text) is None:
        raise ModelError(
            f"{what} is stored in another file, with the {key} {text[:40]!r}, which is not a "
            "number of bytes; export the model again"
        )
    return int(text)


def _bits(proto: onnx.TensorProto, what: str) -> int:
    if proto.data_type == onnx.TensorProto.BFLOAT16:
        return 16
    return 8 * np.dtype(numpy_dtype(proto.data_type, what)).itemsize


def _shape(proto: onnx.TensorProto, what: str) -> tuple[int, ...]:
    shape = tuple(proto.dims)
    if len(shape) > MOST_DIMENSIONS or any(size < 0 for size in shape):
        raise ModelError(f"{what} has an impossible shape; export the model again")
    return shape


INLINE_BYTES = 1024
"""Smaller tensors stay in the graph: the shapes, axes and scales that inference needs."""

MOST_DIMENSIONS = 32
"""The most dimensions that an array has in every version of NumPy."""


def detach(
    proto: onnx.ModelProto, external: Mapping[str, Contents], label: str
) -> tuple[onnx.ModelProto, dict[str, Array]]:
    """Return the model without its initialisers, and the initialisers by name; `proto` is used up.

    `external` is the result of `external_contents`. Raises `ModelError` if a weight is not there.
    """
    graph = proto.graph
    arrays = {tensor.name: _array(tensor, external, label) for tensor in graph.initializer}
    graph.ClearField("initializer")
    lean = onnx.ModelProto()
    lean.CopyFrom(proto)  # a protobuf message frees its memory only as a whole
    return lean, arrays


def external_contents(
    tensors: Iterable[onnx.TensorProto], directory: Path, label: str
) -> dict[str, Contents]:
    """Read the files that `tensors` lie in, by their names in the model, in order.

    Raises `ModelError` unless `file_of` allows all of them to a model in `directory`.
    """
    files = {
        external_location(tensor): file_of(tensor, directory, called(tensor, label))
        for tensor in tensors
    }
    held = {file: copied(file) for file in set(files.values())}
    return {location: held[files[location]] for location in sorted(files)}


def tensor(name: str, array: Array) -> onnx.TensorProto:
    """Convert an array to an initialiser that holds its own data."""
    kind = helper.np_dtype_to_tensor_dtype(array.dtype)
    return helper.make_tensor(name, kind, array.shape, array.tobytes(), raw=True)


def described(name: str, array: Array) -> onnx.ValueInfoProto:
    """Declare an input with an array's shape and dtype."""
    return helper.make_tensor_value_info(
        name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape
    )


def declare(graph: onnx.GraphProto, weights: Mapping[str, Array]) -> None:
    """Give `graph` its small weights by value and its large ones as inputs, for inference."""
    for name, array in weights.items():
        if array.nbytes < INLINE_BYTES:
            graph.initializer.append(tensor(name, array))
        else:
            graph.input.append(described(name, array))


def widened(array: Array) -> Array:
    """Return the exact float32 values of a bfloat16 array, which may come as its bits (uint16)."""
    if array.dtype == np.uint16:
        return (array.astype(np.uint32) << 16).view(np.float32)
    return array.astype(np.float32)


def external_location(proto: onnx.TensorProto) -> str:
    """Return the name of the file that a weight lies in, relative to the model's folder."""
    return next((entry.value for entry in proto.external_data if entry.key == "location"), "")


def called(proto: onnx.TensorProto, label: str) -> str:
    """Return how messages call a tensor."""
    return f"{label}: weight {proto.name!r}" if proto.name else f"{label}: a constant"


def with_own_data(
    proto: onnx.TensorProto, external: Mapping[str, Contents], what: str
) -> onnx.TensorProto:
    """Return a tensor that lies in another file as one that holds its own data."""
    contents, size = external[external_location(proto)], stored_bytes(proto, what)
    data = array_in(contents, proto, (size,), np.dtype(np.uint8), what)
    return onnx.TensorProto(
        name=proto.name, data_type=proto.data_type, dims=proto.dims, raw_data=data.tobytes()
    )


def stored_bytes(proto: onnx.TensorProto, what: str) -> int:
    """Return the bytes that the values of a tensor take in a file."""
    bits = _NARROW_BITS.get(proto.data_type) or _bits(proto, what)
    return (math.prod(_shape(proto, what)) * bits + 7) // 8


def _array(proto: onnx.TensorProto, external: Mapping[str, Contents], label: str) -> Array:
    what = called(proto, label)
    is_bfloat16 = proto.data_type == onnx.TensorProto.BFLOAT16
    shape = _shape(proto, what)
    is_narrow = proto.data_type in _NARROW_BITS
    if is_narrow and is_external(proto):
        proto = with_own_data(proto, external, what)
    dtype = np.dtype(np.uint16 if is_bfloat16 or is_narrow else numpy_dtype(proto.data_type, what))
    try:
        if is_external(proto):
            array = array_in(external[external_location(proto)], proto, shape, dtype, what)
        else:
            array = np.ascontiguousarray(numpy_helper.to_array(proto)).reshape(shape)
        return widened(array) if is_bfloat16 else array
    except (TypeError, ValueError, OverflowError) as error:
        raise ModelError(
            f"{what} does not contain the {math.prod(shape)} values of its shape"
        ) from error
