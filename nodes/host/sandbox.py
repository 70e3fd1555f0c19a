"""Restrict an agent, by Landlock, to the files that it needs: programs, keys, cache, sockets.

An engine opens the files that a model names. `nodes.executors.onnx.file` checks beforehand that a
model names no others than its own. This is the second barrier, which holds whatever the engine
does: the kernel opens no other file for the agent, neither in its user's home nor `/etc/passwd`.

Two limits remain. The agent reads its keys again whenever they change, so all of its threads can
read `secret.key`; the process that optimises models cannot. And an engine on a GPU opens files that
its driver chooses: such agents are not restricted by this module, only by the unit in `deploy/`.
CUDA computed on one GPU with what an agent on the CPU may open, `/dev/nvidia*` and writing below
`/proc/self/task` (decision 064); on a Jetson that could not be tried.

Landlock (landlock(7)) needs no privileges and three system calls: one creates a set of rules, one
adds what stays allowed at and below a path, and one restricts the calling thread permanently.
Threads and processes that are started later, and programs that they run, inherit the restriction;
threads that already run do not. Open files stay open, and whether a file exists can still be found
out.
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
"""Sets of rights: read files; read and run them; write a file; and everything with files."""

_EVERYTHING = (1 << 15) - 1
_OF_FILES = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE

_OLDEST, _KNOWS_TRUNCATE = 2, 3
"""Versions of Landlock: the first that can allow moving files between folders (Linux 5.19), and the
first that distinguishes truncating a file from writing it (Linux 6.2)."""

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_ASK_VERSION = 1
_PATH_BENEATH = 1
_RULE = struct.Struct("=Qi")
_PR_SET_NO_NEW_PRIVS = 38


_LIBRARIES = ("/usr", "/lib", "/lib64")

_SYSTEM = (
    *("/proc", "/sys", "/dev/urandom", "/dev/random"),
    *("/etc/ld.so.cache", "/etc/localtime"),
    # To resolve the names of other nodes.
    *("/etc/hosts", "/etc/host.conf", "/etc/nsswitch.conf", "/etc/gai.conf", "/etc/services"),
    *("/etc/resolv.conf", "/run/systemd/resolve", "/run/NetworkManager", "/run/resolvconf"),
)

_SITES = frozenset({"site-packages", "dist-packages"})


@dataclass(frozen=True, slots=True)
class AllowedPath:
    """The rights that stay at a file, or at a folder and everything below it."""

    path: Path
    access: int


def restrict(rules: Iterable[AllowedPath]) -> str | None:
    """Restrict the calling thread, and what it starts from now on, to these files.

    Rules for paths that do not exist are ignored. Returns None on success, else a clause that says
    why this system cannot do it; then nothing has changed.
    """
    version = _call(_CREATE_RULESET, None, 0, _ASK_VERSION)
    if version < 0:
        return f"the kernel offers no Landlock ({errno.errorcode.get(-version, -version)})"
    if version < _OLDEST:
        return "the kernel's Landlock is too old: Linux 5.19 or newer is needed"
    handled = _EVERYTHING if version >= _KNOWS_TRUNCATE else _EVERYTHING & ~TRUNCATE
    ruleset = _call(_CREATE_RULESET, handled.to_bytes(8, "little"), 8, 0)
    if ruleset < 0:
        return f"the kernel refuses to create Landlock rules: {os.strerror(-ruleset)}"
    try:
        for rule in rules:
            _add(ruleset, rule, handled)
        if _set_no_new_privileges() != 0 or (failed := _call(_RESTRICT_SELF, ruleset, 0)) != 0:
            return f"the kernel refuses to apply Landlock rules: {os.strerror(-failed)}"
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
    """Set PR_SET_NO_NEW_PRIVS, without which only root may restrict itself."""
    return int(ctypes.CDLL(None).prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))


def _call(number: int, *arguments: object) -> int:
    """Return a system call's result, −errno if it failed."""
    libc = ctypes.CDLL(None, use_errno=True)
    result = int(libc.syscall(ctypes.c_long(number), *map(_as_word, arguments)))
    return result if result >= 0 else -ctypes.get_errno()


def _as_word(argument: object) -> object:
    return ctypes.c_long(argument) if isinstance(argument, int) else argument


def sandbox_agent(cache: Path, keys: Path | None, addresses: Iterable[str]) -> str | None:
    """Restrict an agent to its cache, keys, folders of Unix sockets, and the programs that it runs.

    Call it before other threads are started. Returns None on success, else a clause that says why
    this system cannot do it.
    """
    return restrict(_agent_rules(cache, keys, addresses))


def sandbox_optimiser(results: Path, folders: Iterable[Path]) -> str | None:
    """Restrict a process that optimises models to their folders and the folder of its results."""
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
    """Yield what an interpreter and an engine need for themselves."""
    for place in _LIBRARIES:
        yield AllowedPath(Path(place), RUN)
    for place in _SYSTEM:
        yield AllowedPath(Path(place), READ)
    yield AllowedPath(Path("/dev/null"), READ_FILE | WRITE)
    yield AllowedPath(Path(sys.executable), RUN)
    yield AllowedPath(Path(sys.prefix, "pyvenv.cfg"), READ)
    yield AllowedPath(Path(sys.argv[0]), READ)  # to run itself again (`nodes.host.process`)
    yield AllowedPath(Path(__file__).parents[2], READ_DIR)  # where a child finds this package
    for path in _code():
        yield AllowedPath(path, RUN)
    for controller in ("cpu", "memory"):
        with contextlib.suppress(OSError, ValueError):
            for folder in (group_folders(controller, Path("/proc/self")) or ())[-1:]:
                yield AllowedPath(folder, READ)


def _code() -> set[Path]:
    """Return where Python's modules are: the standard places, and those of other imports."""
    usual = {Path(sysconfig.get_path("stdlib")).parent, Path(sysconfig.get_path("platstdlib"))}
    usual.update(path for path in map(Path, sys.path) if path.name in _SITES)
    others = set()
    for name, module in sys.modules.copy().items():
        file = getattr(module, "__file__", None)
        if file is not None and "." not in name and usual.isdisjoint(Path(file).parents):
            path = Path(file)
            others.add(path.parent if path.stem == "__init__" else path)
    return usual | others
