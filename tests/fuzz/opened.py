"""Which files Python opens, removes or renames while something runs."""

from __future__ import annotations

import os
import re
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_PATHS = {
    "open": 1, "os.remove": 1, "os.rename": 2, "os.listdir": 1, "os.scandir": 1, "os.truncate": 1,
}  # fmt: skip
"""Events of the interpreter, and how many of their arguments are paths."""

_OWN = tuple({sys.prefix, sys.base_prefix, str(Path(__file__).parents[2])})

_is_the_kernels = re.compile(r"/proc/(\d+/stat|sys/kernel/random/boot_id)").fullmatch
"""What tells whether a process lives (`nodes.host.owner`)."""

_heard: list[list[Path]] = []
_hooked: list[bool] = []


def _hear(event: str, arguments: tuple[object, ...]) -> None:
    if _heard and event in _PATHS:
        paths = arguments[: _PATHS[event]]
        _heard[-1].extend(Path(os.fsdecode(p)) for p in paths if isinstance(p, str | bytes | Path))


@contextmanager
def opened() -> Iterator[list[Path]]:
    """The paths, as they were given, but for Python's own modules and ours, and other processes."""
    if not _hooked:
        sys.addaudithook(_hear)  # there is no way to take it back
        _hooked.append(True)
    unnamed = Path(tempfile.gettempdir())  # opened itself, for files that have no name
    paths: list[Path] = []
    _heard.append(paths)
    try:
        yield paths
    finally:
        _heard.pop()
        paths[:] = [path for path in paths if path != unnamed and not _is_own(str(path))]


def _is_own(path: str) -> bool:
    return path.startswith(_OWN) or _is_the_kernels(path) is not None


def leads_out(paths: list[Path], folder: Path) -> list[Path]:
    """Those that are not in `folder`, links followed."""
    return [path for path in paths if not path.resolve().is_relative_to(folder.resolve())]
