"""Reads passwords from where `cluster.yaml` says that they are, so that the file has none."""

from __future__ import annotations

import os
from pathlib import Path

from launcher.errors import BadInputError

MOST_BYTES = 4096
"""The longest password of a file; a longer file is another one."""


def from_environment(variable: str | None, key: str) -> str | None:
    """Return the value of a variable that `key` names, None if it names none.

    Raises `BadInputError` if the variable is not set.
    """
    if variable is None:
        return None
    value = os.environ.get(variable)
    if not value:
        raise BadInputError(f"{key}: the environment variable {variable!r} is not set")
    return value


def from_file(path: Path | None, key: str) -> str | None:
    """Return the first line of a file that `key` names, None if it names none.

    Raises `BadInputError` if the file cannot be read, or has no password.
    """
    if path is None:
        return None
    try:
        with path.open("rb") as file:
            content = file.read(MOST_BYTES + 1)
        line = content.decode().partition("\n")[0].rstrip("\r")
    except OSError as error:
        raise BadInputError(f"{key}: {path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise BadInputError(f"{key}: {path}: is not UTF-8 text") from None
    if not line or len(content) > MOST_BYTES:
        raise BadInputError(f"{key}: {path}: must have the password as its only line")
    return line
