"""Reads passwords and tokens from the environment, so that no file needs to have them."""

from __future__ import annotations

import os

from launcher.errors import BadInputError


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
