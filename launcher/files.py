"""Text and JSON files that people or earlier runs wrote, read within a bound.

`cluster.yaml` may come through a pipe. Whatever else is named in a file or lies in a folder that
somebody handed over must be a regular file: opening a pipe there would wait for ever.

Writes a file whole or not at all.

The content goes to another name in the same folder first, and takes the file's place when it is
complete: whoever reads the file sees what was there before or all of what is there now, and a full
disk leaves neither half a file nor an empty one.

Names of files that are made from names of tensors, which are anybody's text.

Pages that commands write beside what they print.
"""

from __future__ import annotations

import errno
import json
import math
import os
import re
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from cnn.reading.regular_files import open_regular
from launcher.errors import BadInputError

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


LONGEST = 100
"""Characters; with what is put around them, a name stays below the 255 bytes of file systems."""


def plain(name: str) -> str:
    """`name` as a part of a file's name: letters, digits, _ and - only."""
    return re.sub(r"[^A-Za-z0-9_-]+", "_", name)[:LONGEST]


def distinct(names: Iterable[str]) -> list[str]:
    """The same names, those that repeat an earlier one followed by a dot and their index.

    Case makes no difference, as on some file systems.
    """
    found: list[str] = []
    taken: set[str] = set()
    for index, name in enumerate(names):
        found.append(f"{name}.{index}" if name.lower() in taken else name)
        taken.add(name.lower())
    return found


def write_text(path: Path, text: str, named: str) -> None:
    """Write a page and make its folder; raises `BadInputError` that calls the page `named`."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, text)
    except OSError as error:
        raise BadInputError(f"{named}: {unwritten(error)}") from None


MOST_BYTES = 64 << 20
"""Of a file; plans of the largest networks have a few megabytes."""

LONGEST_NUMBER = 100
"""Characters of a number in a file: enough for all that a double can hold, and few enough that
every number can be converted and shown."""


def read_small(path: Path, *, may_be_pipe: bool = False) -> bytes:
    """A file's content; raises `OSError` with `strerror`, also if it is too large or no file."""
    with path.open("rb") if may_be_pipe else open_regular(path) as file:
        content = file.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        raise OSError(errno.EFBIG, f"it is larger than {MOST_BYTES >> 20} MiB", str(path))
    return content


def read_json(path: Path, *, missing: str = "there is no such file") -> tuple[str, Any]:
    """A JSON file's text and data, stricter than JSON: no key twice, numbers that can be shown.

    Raises `BadInputError` naming file and line; `missing` is said of a file that is not there.
    """
    try:
        text = read_small(path).decode("utf-8")
        return text, json.loads(
            text,
            object_pairs_hook=_once,
            parse_int=_whole,
            parse_float=_finite,
            parse_constant=_no_number,
        )
    except FileNotFoundError:
        raise BadInputError(f"{path}: {missing}") from None
    except OSError as error:
        raise BadInputError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise BadInputError(f"{path}: is not UTF-8 text (byte {error.start})") from None
    except json.JSONDecodeError as error:
        raise BadInputError(
            f"{path}, line {error.lineno}: is not valid JSON: {error.msg}"
        ) from None
    except _NumberError as error:
        line = text.count("\n", 0, max(0, text.find(error.number))) + 1
        raise BadInputError(f"{path}, line {line}: {error.what}") from None
    except _TwiceError as error:
        raise BadInputError(f"{path}: the key {str(error)!r} stands in one mapping twice") from None
    except RecursionError:
        raise BadInputError(f"{path}: is nested too deeply") from None


class _TwiceError(Exception):
    """A JSON mapping has a key twice."""


class _NumberError(Exception):
    """A number that no file of ours holds."""

    def __init__(self, number: str, what: str) -> None:
        super().__init__(what)
        self.number, self.what = number, what


def too_long(number: str) -> str | None:
    """What is wrong with a number as it is written, if it is too long."""
    if len(number) <= LONGEST_NUMBER:
        return None
    return f"a number of {len(number)} characters; write it with {LONGEST_NUMBER} at most"


def _whole(number: str) -> int:
    if what := too_long(number):
        raise _NumberError(number, what)
    return int(number)


def _finite(number: str) -> float:
    if what := too_long(number):
        raise _NumberError(number, what)
    value = float(number)
    if not math.isfinite(value):
        raise _NumberError(number, f"{number} is larger than any number that can be used")
    return value


def _no_number(name: str) -> float:
    raise _NumberError(name, f"{name} is no number in JSON")


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    data: dict[str, Any] = {}
    for key, value in pairs:
        if key in data:
            raise _TwiceError(key)
        data[key] = value
    return data
