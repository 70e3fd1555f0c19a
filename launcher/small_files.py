"""Text and JSON files that people or earlier runs wrote, read within a bound.

`cluster.yaml` may come through a pipe. Whatever else is named in a file or lies in a folder that
somebody handed over must be a regular file: opening a pipe there would wait for ever.
"""

from __future__ import annotations

import errno
import json
import math
from pathlib import Path
from typing import Any

from cnn.read.regular_files import open_regular
from launcher.errors import BadInputError

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
