"""Gives folders for temporary files, and removes those that killed processes have left behind.

A process that is killed cannot remove its folders, and a service that is started again after each
kill would fill the disk with them. Each folder is therefore locked by the process that uses it
(`nodes.host.private_files`), and a process that makes another one first removes those that no
process has locked.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from launcher.errors import RunFailedError
from launcher.files import with_advice
from nodes.host.private_files import left_behind, make_folder, private_name

PREFIX = "csdf-edge-tmp"
"""How the names of these folders begin."""

NAME_BYTES = len(private_name(PREFIX))
"""The length of their names."""


@contextmanager
def scratch_folder(parent: Path | None = None) -> Iterator[Path]:
    """Make a folder that only its owner can read; remove it when the context ends.

    `parent` is the folder for temporary files by default. Raises `RunFailedError` if the folder
    cannot be made.
    """
    parent = parent or Path(tempfile.gettempdir())
    try:
        _remove_left_behind(parent)
        made = make_folder(parent, PREFIX)
    except OSError as error:
        what = with_advice(error, "name another folder by TMPDIR")
        raise RunFailedError(f"{parent}: {what}") from None
    process = os.getpid()
    try:
        yield made.path
    finally:
        if os.getpid() == process:  # and not in a child, which also has this context
            shutil.rmtree(made.path, ignore_errors=True)
        made.close()


def _remove_left_behind(parent: Path) -> None:
    """Remove the folders of this user's processes that have ended without doing so."""
    for path in parent.glob(f"{PREFIX}.*"):
        with contextlib.suppress(FileNotFoundError):  # another process removes it just now
            if path.lstat().st_uid != os.geteuid():
                continue
            with left_behind(path) as is_left:
                if is_left:
                    shutil.rmtree(path, ignore_errors=True)
