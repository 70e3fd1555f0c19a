"""What sinks that write files share: which faults of a disk pass, and old files within a bound."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from launcher.errors import LauncherError, RunFailedError
from launcher.files import cannot_write
from launcher.sinks.base import SinkLostError

_FOR_EVER = (
    errno.EACCES,
    errno.EPERM,
    errno.EROFS,
    errno.ENOTDIR,
    errno.EISDIR,
    errno.ELOOP,
    errno.ENAMETOOLONG,
)
"""What no later attempt can write. Room on a disk, a mount or a server may come back."""


def write_error(path: Path, error: OSError) -> LauncherError:
    """The error of a sink that cannot write `path`, to be raised."""
    sentence = f"{error.filename or path}: {cannot_write(error)}"
    kind = RunFailedError if error.errno in _FOR_EVER else SinkLostError
    return kind(sentence)


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn every `OSError` within into the error of a sink that cannot write `path`."""
    try:
        yield
    except OSError as error:
        raise write_error(path, error) from error


def write_all(descriptor: int, data: bytes) -> None:
    """Write all of `data`; the system may take it in parts."""
    left = memoryview(data)
    while left:
        left = left[os.write(descriptor, left) :]
