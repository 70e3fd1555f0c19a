"""Pages that commands write beside what they print."""

from __future__ import annotations

from pathlib import Path

from launcher.errors import BadInputError
from launcher.whole_files import unwritten, write_whole


def write_text(path: Path, text: str, named: str) -> None:
    """Write a page and make its folder; raises `BadInputError` that calls the page `named`."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, text)
    except OSError as error:
        raise BadInputError(f"{named}: {unwritten(error)}") from None
