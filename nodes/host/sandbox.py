"""Which files an agent keeps once it has started: what it runs, its keys, its cache, its sockets.

Models are read by an engine that opens what they name. That they name nothing else is checked
before (`nodes.executors.onnx.file`); this is the second wall, which stands whatever the engine
does: the kernel opens nothing for the agent outside of its own places, neither in its user's home
nor `/etc/passwd` (`nodes.host.landlock`). It has to be put up before there are other threads.

Two things it does not do. The agent reads its keys again whenever they change, so all its threads
can read `secret.key`; the process that optimises models cannot. And an engine on a GPU opens files
of its driver's own choosing, which could not be tried out: such agents are left as they are, and
the unit in `deploy/` is what shuts them in.
"""

from __future__ import annotations

import contextlib
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from pathlib import Path

from nodes.host.control_groups import group_folders
from nodes.host.landlock import (
    KEEP,
    MAKE_SOCK,
    READ,
    READ_DIR,
    READ_FILE,
    REMOVE_FILE,
    RUN,
    WRITE,
    AllowedPath,
    restrict,
)

_LIBRARIES = ("/usr", "/lib", "/lib64")

_SYSTEM = (
    *("/proc", "/sys", "/dev/urandom", "/dev/random"),
    *("/etc/ld.so.cache", "/etc/localtime"),
    # For the names of other nodes.
    *("/etc/hosts", "/etc/host.conf", "/etc/nsswitch.conf", "/etc/gai.conf", "/etc/services"),
    *("/etc/resolv.conf", "/run/systemd/resolve", "/run/NetworkManager", "/run/resolvconf"),
)

_SITES = frozenset({"site-packages", "dist-packages"})


def shut_agent_in(cache: Path, keys: Path | None, addresses: Iterable[str]) -> str | None:
    """Leave an agent its cache, its keys and the folders of its Unix sockets, and what runs it.

    For a process without other threads; they, and its children, inherit it. Returns None if it is
    done, else why this system cannot.
    """
    return restrict(_agent_rules(cache, keys, addresses))


def shut_optimiser_in(results: Path, folders: Iterable[Path]) -> str | None:
    """Leave a process that optimises models their folders, and the folder of its results."""
    return restrict(
        [*_programs(), AllowedPath(results, KEEP), *(AllowedPath(each, READ) for each in folders)]
    )


def _agent_rules(cache: Path, keys: Path | None, addresses: Iterable[str]) -> Iterator[AllowedPath]:
    yield from _programs()
    yield AllowedPath(cache, KEEP)
    for address in addresses:
        if address.startswith("ipc://") and not address.startswith("ipc://@"):
            socket = Path(address.removeprefix("ipc://"))
            yield AllowedPath(socket.parent, MAKE_SOCK | REMOVE_FILE)
    if keys is not None:
        yield AllowedPath(keys, READ)
        for path in keys.rglob("*"):
            if path.is_symlink():
                yield AllowedPath(path.resolve(), READ)


def _programs() -> Iterator[AllowedPath]:
    """What an interpreter and an engine need for themselves."""
    for place in _LIBRARIES:
        yield AllowedPath(Path(place), RUN)
    for place in _SYSTEM:
        yield AllowedPath(Path(place), READ)
    yield AllowedPath(Path("/dev/null"), READ_FILE | WRITE)
    yield AllowedPath(Path(sys.executable), RUN)
    yield AllowedPath(Path(sys.prefix, "pyvenv.cfg"), READ)
    yield AllowedPath(Path(sys.argv[0]), READ)  # to run itself again (`nodes.host.restart`)
    yield AllowedPath(Path(__file__).parents[2], READ_DIR)  # where another interpreter looks for us
    for path in _code():
        yield AllowedPath(path, RUN)
    for controller in ("cpu", "memory"):
        with contextlib.suppress(OSError, ValueError):
            for folder in (group_folders(controller, Path("/proc/self")) or ())[-1:]:
                yield AllowedPath(folder, READ)


def _code() -> set[Path]:
    """Where Python's modules lie: the usual places, and those that were imported from elsewhere."""
    usual = {Path(sysconfig.get_path("stdlib")).parent, Path(sysconfig.get_path("platstdlib"))}
    usual.update(path for path in map(Path, sys.path) if path.name in _SITES)
    others = set()
    for name, module in sys.modules.copy().items():
        file = getattr(module, "__file__", None)
        if file is not None and "." not in name and usual.isdisjoint(Path(file).parents):
            path = Path(file)
            others.add(path.parent if path.stem == "__init__" else path)
    return usual | others
