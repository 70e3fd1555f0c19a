"""Which files an agent keeps once it has started: what it runs, its keys, its cache, its sockets.

Models are read by an engine that opens what they name. That they name nothing else is checked
before (`nodes.executors.onnx.file`); this is the second wall, which stands whatever the engine
does: the kernel opens nothing for the agent outside of its own places, neither in its user's home
nor `/etc/passwd` (`nodes.host.sandbox`). It has to be put up before there are other threads.

Two things it does not do. The agent reads its keys again whenever they change, so all its threads
can read `secret.key`; the process that optimises models cannot. And an engine on a GPU opens files
of its driver's own choosing, which could not be tried out: such agents are left as they are, and
the unit in `deploy/` is what shuts them in.

Landlock: a process gives up, for good, every file that it does not name (landlock(7)).

Three system calls of Linux, which need no privileges: a set of rules, a rule for each file or
folder with what stays allowed there and below, and the restriction of the calling thread. It is
inherited by threads and processes that are started later, and by programs that they run; threads
that run already are left as they are. What is open stays open, and asking whether a file exists
stays possible.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import struct
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from nodes.host.control_groups import group_folders

EXECUTE, WRITE_FILE, READ_FILE, READ_DIR = 1, 2, 4, 8
REMOVE_DIR, REMOVE_FILE = 16, 32
MAKE_DIR, MAKE_REG, MAKE_SOCK = 128, 256, 512
REFER, TRUNCATE = 1 << 13, 1 << 14

READ = READ_FILE | READ_DIR
RUN = READ | EXECUTE
WRITE = WRITE_FILE | TRUNCATE
KEEP = READ | WRITE | REMOVE_DIR | REMOVE_FILE | MAKE_DIR | MAKE_REG | REFER
"""What may be done below a folder: read files, run them too; write one; do all of it with files."""

_EVERYTHING = (1 << 15) - 1
_OF_FILES = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE

_OLDEST, _KNOWS_TRUNCATE = 2, 3
"""Versions: the first under which files may be moved between folders (Linux 5.19), and the first
that tells shortening a file from writing it (Linux 6.2)."""

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_ASK_VERSION = 1
_PATH_BENEATH = 1
_RULE = struct.Struct("=Qi")
_PR_SET_NO_NEW_PRIVS = 38


@dataclass(frozen=True, slots=True)
class AllowedPath:
    """What stays allowed at a file, or at a folder and all below it."""

    path: Path
    access: int


def restrict(rules: Iterable[AllowedPath]) -> str | None:
    """Leave the calling thread, and what it starts from now on, these files only.

    Rules for paths that do not exist are passed over. Returns None if it is done, else a clause
    that says why this system cannot; then nothing has changed.
    """
    version = _call(_CREATE_RULESET, None, 0, _ASK_VERSION)
    if version < 0:
        return f"the kernel offers no Landlock ({errno.errorcode.get(-version, -version)})"
    if version < _OLDEST:
        return "the kernel's Landlock is too old: Linux 5.19 or newer is needed"
    handled = _EVERYTHING if version >= _KNOWS_TRUNCATE else _EVERYTHING & ~TRUNCATE
    ruleset = _call(_CREATE_RULESET, handled.to_bytes(8, "little"), 8, 0)
    if ruleset < 0:
        return f"the kernel makes no Landlock rules: {os.strerror(-ruleset)}"
    try:
        for rule in rules:
            _add(ruleset, rule, handled)
        if _set_no_new_privileges() != 0 or (failed := _call(_RESTRICT_SELF, ruleset, 0)) != 0:
            return f"the kernel applies no Landlock rules: {os.strerror(-failed)}"
    finally:
        os.close(ruleset)
    return None


def _add(ruleset: int, rule: AllowedPath, handled: int) -> None:
    try:
        place = os.open(rule.path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    try:
        access = rule.access & handled
        if not rule.path.is_dir():
            access &= _OF_FILES
        _call(_ADD_RULE, ruleset, _PATH_BENEATH, _RULE.pack(access, place), 0)
    finally:
        os.close(place)


def _set_no_new_privileges() -> int:
    """Without this only root may restrict itself: programs with other rights would be confused."""
    return int(ctypes.CDLL(None).prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))


def _call(number: int, *arguments: object) -> int:
    """The system call's result, −errno if it failed."""
    libc = ctypes.CDLL(None, use_errno=True)
    result = int(libc.syscall(ctypes.c_long(number), *map(_as_word, arguments)))
    return result if result >= 0 else -ctypes.get_errno()


def _as_word(argument: object) -> object:
    return ctypes.c_long(argument) if isinstance(argument, int) else argument


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
    yield AllowedPath(Path(sys.argv[0]), READ)  # to run itself again (`nodes.host.process`)
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
