"""Reads and writes small text and JSON files safely: bounded reads, and writes that are atomic.

`cluster.yaml` may come through a pipe. Every other file that a user or another file names must be
a regular file, because opening a pipe would block for ever.

A written file first gets a temporary name in the same folder and is renamed when it is complete.
A reader therefore sees either the old content or all of the new one, and a full disk leaves neither
half a file nor an empty one.
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
from nodes.host.folders import user_folder

MOST_BYTES = 64 << 20
"""Largest file that is read; plans of the largest networks have a few megabytes."""

LONGEST_NUMBER = 100
"""Characters of a number in a file: enough for every double, and few enough that every number can
be converted and shown."""

LONGEST_PLAIN_NAME = 100
"""Characters; with what is put around it, a name stays below the 255 bytes of file systems."""

PROFILES, SIMPLIFIED = "csdf-edge-profiles", "csdf-edge-simplified"
"""The launcher's folders in the user's cache: of measurements and plans, and of models whose
simplified network has agreed with the file."""

_LONGEST_DRAFT_NAME = 200
_DISK_FULL = (errno.ENOSPC, errno.EDQUOT)


def user_cache(name: str) -> Path:
    """The folder `name` in the user's cache (`$XDG_CACHE_HOME`, or else `~/.cache`)."""
    return user_folder("XDG_CACHE_HOME", ".cache") / name


# Reading


def read_small(path: Path, *, may_be_pipe: bool = False) -> bytes:
    """Return a file's content.

    Raises `OSError` with `strerror`, also if it is larger than `MOST_BYTES` or not a regular file.
    """
    with path.open("rb") if may_be_pipe else open_regular(path) as file:
        content = file.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        raise OSError(errno.EFBIG, f"it is larger than {MOST_BYTES >> 20} MiB", str(path))
    return content


def read_json(path: Path, *, missing: str = "there is no such file") -> tuple[str, Any]:
    """Return a JSON file's text and data; stricter than JSON: no key twice, no endless number.

    Raises `BadInputError` naming file and line; `missing` is the sentence for a missing file.
    """
    try:
        text = read_small(path).decode("utf-8-sig")
        return text, json.loads(
            text,
            object_pairs_hook=_without_repeated_keys,
            parse_int=_integer,
            parse_float=_finite,
            parse_constant=_refuse_constant,
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
    except _RepeatedKeyError as error:
        raise BadInputError(f"{path}: duplicate key {str(error)!r} in one mapping") from None
    except RecursionError:
        raise BadInputError(f"{path}: is nested too deeply") from None


class _RepeatedKeyError(Exception):
    """A JSON mapping has a key twice."""


class _NumberError(Exception):
    """A number is too long, too large, or not JSON."""

    def __init__(self, number: str, what: str) -> None:
        super().__init__(what)
        self.number, self.what = number, what


def too_long(number: str) -> str | None:
    """Return what is wrong with a number as it is written if it is too long, else None."""
    if len(number) <= LONGEST_NUMBER:
        return None
    return f"a number of {len(number)} characters; write it with {LONGEST_NUMBER} at most"


def _integer(number: str) -> int:
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


def _refuse_constant(name: str) -> float:
    raise _NumberError(name, f"{name} is not a number in JSON")


def _without_repeated_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    data: dict[str, Any] = {}
    for key, value in pairs:
        if key in data:
            raise _RepeatedKeyError(key)
        data[key] = value
    return data


# Writing


@contextmanager
def whole_file(path: Path, *, durable: bool = False, mode: int | None = None) -> Iterator[BinaryIO]:
    """Open a file for writing that appears at `path` only when the context ends without an error.

    With `durable` the disk has it by then, so that it survives a power cut. Its permissions are
    `mode`, or else those of the file that it replaces, or else the user's usual ones. A file that
    is not regular (`/dev/stdout`) is written to directly; of a link, the target is replaced. Raises
    `OSError` with the file's name.
    """
    try:
        target = path.resolve()
    except RuntimeError:  # before Python 3.13, for links that lead to themselves
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path)) from None
    draft = target.with_name(f".{target.name[:_LONGEST_DRAFT_NAME]}.{os.getpid()}")
    try:
        if path.exists() and not path.is_file():  # `target` of a pipe does not exist
            with path.open("wb") as file:
                yield file
            return
        created = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        with open(os.open(draft, created, 0o666 if mode is None else mode), "wb") as file:
            yield file
            file.flush()
            with suppress(FileNotFoundError):
                if mode is None:
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


def write_whole(
    path: Path, content: str | bytes, *, durable: bool = False, mode: int | None = None
) -> None:
    """Write a file of this content; see `whole_file`.

    Text is written as UTF-8. Bytes of file names that are not text become escapes, from which a
    JSON reader restores them.
    """
    data = content if isinstance(content, bytes) else content.encode("utf-8", "backslashreplace")
    with whole_file(path, durable=durable, mode=mode) as file:
        file.write(data)


def write_text(path: Path, text: str, named: str) -> None:
    """Write a text file and make its folder; raises `BadInputError` that calls the file `named`."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, text)
    except OSError as error:
        raise BadInputError(f"{named}: {cannot_write(error)}") from None


def check_can_write(path: Path | None, option: str) -> None:
    """Raise `BadInputError` if the file that an option names could not be written."""
    if path is None:
        return
    folder = path.absolute().parent
    if path.is_dir() or not folder.is_dir():
        raise BadInputError(f"{option} {path}: it must be a file in a folder that exists")
    if not os.access(path if path.exists() else folder, os.W_OK):
        raise BadInputError(f"{option} {path}: it must be a file that you may write")


def check_folder(folder: Path) -> None:
    """Raise `BadInputError` if files could not be written into a folder, which may be missing."""
    folder = folder.absolute()
    exists = next((each for each in (folder, *folder.parents) if os.path.lexists(each)), folder)
    if not exists.is_dir():
        raise BadInputError(f"{folder}: {exists} is not a folder; name another place")
    if not os.access(exists, os.W_OK | os.X_OK):
        raise BadInputError(f"{folder}: {exists} cannot be written to; name another place")


def cannot_write(error: OSError) -> str:
    """`cannot be written: No space left on device; make room …`, to follow the file's name."""
    return f"cannot be written: {with_advice(error, 'name a place on another disk')}"


def with_advice(error: OSError, otherwise: str) -> str:
    """The system's message and, if a disk is full, advice: make room there, or `otherwise`."""
    advice = f"; make room there, or {otherwise}" if error.errno in _DISK_FULL else ""
    return f"{error.strerror or error}{advice}"


# Names


def plain_name(name: str) -> str:
    """`name`, which may be any text, as a part of a file's name: letters, digits, _ and - only."""
    return re.sub(r"[^A-Za-z0-9_-]+", "_", name)[:LONGEST_PLAIN_NAME]


def distinct_names(names: Iterable[str]) -> list[str]:
    """The same names; a repeated one is followed by a dot and its index.

    Upper and lower case count as the same, as on some file systems.
    """
    found: list[str] = []
    taken: set[str] = set()
    for index, name in enumerate(names):
        found.append(f"{name}.{index}" if name.lower() in taken else name)
        taken.add(name.lower())
    return found


def file_suffixes(outputs: tuple[str, ...]) -> dict[str, str]:
    """Map each of a network's outputs to what follows a frame's number in its file's name."""
    if len(outputs) == 1:
        return {outputs[0]: ""}
    names = distinct_names(map(plain_name, outputs))
    return {output: f".{name}" for output, name in zip(outputs, names, strict=True)}
