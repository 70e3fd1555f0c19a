"""The files that this process has open, of which other threads open and close some meanwhile."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path


def opened_under(folder: Path) -> list[str]:
    """Return the files under a folder that are open, once for each descriptor."""
    found = []
    for link in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # it has been closed since
            found.append(os.readlink(link))
    return [path for path in found if path.startswith(f"{folder.resolve()}/")]
