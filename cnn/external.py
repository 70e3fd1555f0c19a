"""Weights in files beside a model, checked before a byte of them is read.

Who wrote a model chose the names of these files and the places in them. A name counts if it is that
of a regular file inside the model's own folder, once all links are followed; a place, if that file
has it and the weight has as many bytes. Opening a pipe would wait for its writer, and a device may
act on being opened, so what a file is gets asked first.
"""

from __future__ import annotations

import math
import os
import re
import stat
from pathlib import Path, PurePosixPath
from typing import BinaryIO

import numpy as np
import onnx
from numpy.typing import NDArray

from cnn.errors import ModelError

_is_number = re.compile(r"[0-9]{1,18}").fullmatch


def is_external(tensor: onnx.TensorProto) -> bool:
    """Whether a tensor's content lies in another file."""
    return bool(tensor.data_location == onnx.TensorProto.EXTERNAL)


def file_of(tensor: onnx.TensorProto, directory: Path | None, what: str) -> Path:
    """The file that `tensor` lies in, without links; `directory` is the model's folder.

    Raises `ModelError` unless it is a regular file inside of that.
    """
    location = _entry(tensor, "location", what)
    if not location or not location.isprintable():
        raise ModelError(
            f"{what} lies in another file and has no name for it; export the model again"
        )
    inside = PurePosixPath(location)
    if directory is None or inside.is_absolute() or ".." in inside.parts:
        raise ModelError(
            f"{what} lies in {location}, which is not beside the model; move it there and export "
            "the model again"
        )
    path = directory / inside
    try:
        file = path.resolve(strict=True)
        is_regular = stat.S_ISREG(file.stat().st_mode)
        folder = directory.resolve()
    except (OSError, RuntimeError) as error:  # RuntimeError: links in a circle, before Python 3.13
        reason = getattr(error, "strerror", None) or "its links lead in a circle"
        raise ModelError(
            f"{what} should lie in {path}, which cannot be read ({reason}); put that file beside "
            "the model"
        ) from None
    if not file.is_relative_to(folder):
        raise ModelError(
            f"{what} lies in {path}, a link to {file} outside of the model's folder; put a copy of "
            "that file in the link's place"
        )
    if not is_regular:
        raise ModelError(f"{what} should lie in {path}, which is no regular file")
    return file


def mapped(
    tensor: onnx.TensorProto,
    shape: tuple[int, ...],
    dtype: np.dtype[np.generic],
    directory: Path | None,
    what: str,
) -> NDArray[np.generic]:
    """A tensor in another file as a read-only map of that; raises `ModelError` if it is not there.

    `shape` has no negative dimension.
    """
    file = file_of(tensor, directory, what)
    size_bytes = math.prod(shape) * dtype.itemsize
    offset, length = (_number(tensor, key, what) for key in ("offset", "length"))
    if length is not None and length != size_bytes:
        raise ModelError(
            f"{what} takes {size_bytes} bytes, and the model says that {length} of {file.name} "
            "are it; export the model again"
        )
    end = (offset or 0) + size_bytes
    with opened(file) as stream:
        has = os.fstat(stream.fileno()).st_size
        if has < end:
            raise ModelError(
                f"{what} needs {end} bytes of {file}, which has {has}; the file is truncated, copy "
                "it again"
            )
        if size_bytes == 0:
            return np.zeros(shape, dtype)
        return np.memmap(stream, dtype, "r", offset or 0, shape)


def opened(file: Path) -> BinaryIO:
    """A file that was just found to be a regular one; raises `ModelError` if it cannot be read."""
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
        stream = os.fdopen(descriptor, "rb")
    except OSError as error:
        raise ModelError(f"{file} cannot be read: {error.strerror}") from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        stream.close()
        raise ModelError(f"{file} is no regular file any more")
    return stream


def _entry(tensor: onnx.TensorProto, key: str, what: str) -> str | None:
    values = [entry.value for entry in tensor.external_data if entry.key == key]
    if len(values) > 1:
        raise ModelError(f"{what} has its {key} in another file twice; export the model again")
    return values[0] if values else None


def _number(tensor: onnx.TensorProto, key: str, what: str) -> int | None:
    text = _entry(tensor, key, what)
    if text is None:
        return None
    if _is_number(text) is None:
        raise ModelError(
            f"{what} lies in another file, with the {key} {text[:40]!r}, which is no number of "
            "bytes; export the model again"
        )
    return int(text)
