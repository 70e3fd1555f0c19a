"""Finds the folders in which a user's programs keep their files (XDG Base Directory)."""

from __future__ import annotations

import os
from pathlib import Path


def user_folder(variable: str, usual: str) -> Path:
    """Return the folder that an environment variable names, or else `usual` in the user's home.

    A user without a home has `/`, as in a container: there, writing fails with the folder's name.
    """
    if base := os.environ.get(variable):
        return Path(base)
    home = os.path.expanduser("~")
    return Path("/" if home == "~" else home) / usual
