"""Returns where the exported networks are: outside the repository, in the user's cache."""

from __future__ import annotations

import os
from pathlib import Path

VARIABLE = "CSDF_EDGE_ZOO"
"""The environment variable that names another folder."""


def folder() -> Path:
    """The folder of the exported networks, made if absent."""
    named = os.environ.get(VARIABLE)
    found = Path(named) if named else Path.home() / ".cache" / "csdf-edge" / "zoo"
    found.mkdir(parents=True, exist_ok=True)
    return found


def file_of(name: str) -> Path:
    """The file of a network; it may not be there."""
    return folder() / f"{name}.onnx"
