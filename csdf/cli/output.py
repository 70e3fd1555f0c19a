"""What the command `csdf` writes: text that steers no terminal, and files whole or not at all."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path


def printable(text: str) -> str:
    """`text` with escapes for whatever is neither printable nor the end of a line."""
    return "".join(c if c.isprintable() or c == "\n" else _escape(c) for c in text)


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


def write_whole(path: Path, text: str) -> None:
    """Write a file that appears under its name once it is complete; raises `OSError`.

    What is no regular file (`/dev/stdout`) is written to as it is.
    """
    target = path.resolve()
    if target.exists() and not target.is_file():
        target.write_text(text, "utf-8")
        return
    draft = target.with_name(f".{target.name[:200]}.{os.getpid()}")
    try:
        draft.write_text(text, "utf-8")
        draft.replace(target)
    except BaseException:
        with suppress(OSError):
            draft.unlink()
        raise
