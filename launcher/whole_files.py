"""Writes a file whole or not at all.

The content goes to another name in the same folder first, and takes the file's place when it is
complete: whoever reads the file sees what was there before or all of what is there now, and a full
disk leaves neither half a file nor an empty one.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

_FULL = (errno.ENOSPC, errno.EDQUOT)
_LONGEST_NAME = 200


@contextmanager
def whole_file(path: Path, *, durable: bool = False) -> Iterator[BinaryIO]:
    """The file at `path`, open for writing; it is there once the context ends well.

    `durable`: the disk has it then, so that not even a power cut takes it. What is no regular file
    (`/dev/stdout`) is written to as it is; a link's target is replaced, and not the link. Raises
    `OSError` with the file's name.
    """
    target = path.resolve()
    draft = target.with_name(f".{target.name[:_LONGEST_NAME]}.{os.getpid()}")
    try:
        if target.exists() and not target.is_file():
            with target.open("wb") as file:
                yield file
            return
        with draft.open("wb") as file:
            yield file
            file.flush()
            with suppress(FileNotFoundError):
                os.fchmod(file.fileno(), stat.S_IMODE(target.stat().st_mode))
            if durable:
                os.fsync(file.fileno())
        draft.replace(target)
    except BaseException as error:
        with suppress(OSError):
            draft.unlink()
        if isinstance(error, OSError):
            error.filename, error.filename2 = str(path), None
        raise


def write_whole(path: Path, content: str | bytes, *, durable: bool = False) -> None:
    """Write a file of this content; see `whole_file`.

    Text is written as UTF-8, and the bytes of file names that are no text as escapes, which JSON
    reads back as they were.
    """
    data = content if isinstance(content, bytes) else content.encode("utf-8", "backslashreplace")
    with whole_file(path, durable=durable) as file:
        file.write(data)


def unwritten(error: OSError) -> str:
    """`cannot be written: No space left on device; make room …`, to follow the file's name."""
    return f"cannot be written: {advised(error, 'name a place on another disk')}"


def advised(error: OSError, otherwise: str) -> str:
    """What the system says, and what helps where a disk is full: room there, or `otherwise`."""
    advice = f"; make room there, or {otherwise}" if error.errno in _FULL else ""
    return f"{error.strerror or error}{advice}"
