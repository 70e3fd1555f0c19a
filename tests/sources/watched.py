"""Runs a reader in a process whose opens the kernel reports, those of C libraries too.

A seccomp filter (seccomp_unotify(2)) stops each system call that opens a file, makes a socket or
starts a program until this side has answered. It lets through what the interpreter needs and the
reader's own file; all else is denied, and reported as `AssertionError`. The filter holds for the
threads that the child starts later, as those of a decoder.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import platform
import re
import select
import socket
import struct
import subprocess
import sys
import time
import traceback
from importlib import import_module
from pathlib import Path

_NUMBERS = {
    "x86_64": (317, {2: 0, 85: 0, 257: 1, 437: 1, 59: 0, 322: 1, 41: None, 42: None, 49: None}),
    "aarch64": (277, {56: 1, 437: 1, 221: 0, 281: 1, 198: None, 203: None, 200: None}),
}
"""For each machine the number of seccomp(2), and those that are reported: open, creat,
openat, openat2, execve and execveat with the index of the argument that is a path; socket,
connect and bind."""

_SET_MODE_FILTER, _NEW_LISTENER = 1, 1 << 3
_NOTIFY, _ALLOW = 0x7FC00000, 0x7FFF0000
_LOAD, _JUMP_IF_EQUAL, _RETURN = 0x20, 0x15, 0x06
_RECEIVE, _SEND = 0xC0502100, 0xC0182101
_PR_SET_NO_NEW_PRIVS = 38
_NOTIFICATION = struct.Struct("=QIIiIQ6Q")
_ANSWER = struct.Struct("=QqiI")
_CONTINUE = 1

_HEAD = struct.Struct("=I")
_REPLY = struct.Struct("=?dI")
_PATIENCE_S = 60.0
_PAGE = 4096

_SLOW_S = 2.0
"""Processor seconds that no input may take."""

_OF_PYTHON = tuple(
    {sys.prefix, sys.base_prefix, str(Path(__file__).parents[2]), "/proc/", "/sys/", "/usr/lib"}
    | {"/lib", "/etc/ld.so.cache", "/dev/null", "/dev/urandom", "<unknown>"}
)
"""What the interpreter opens; where it prints a traceback, a source of that name, too."""


_LIBRARY = re.compile(r"\.so[.0-9]*$")


def can_watch() -> bool:
    """Whether this machine's system calls are known here."""
    return platform.machine() in _NUMBERS


class Watched:
    """Reads bytes by `reader` ("module:function", which is given `folder`) in a child process.

    `own` are the names of files in `folder` that it may open.
    """

    def __init__(self, reader: str, folder: Path, own: tuple[str, ...]) -> None:
        self._folder = folder
        self._own = {str(folder / name) for name in own}
        mine, its = socket.socketpair()
        command = [sys.executable, "-m", "tests.sources.watched", reader, str(folder)]
        self._child = subprocess.Popen(
            [*command, str(its.fileno())], pass_fds=[its.fileno()], cwd=Path(__file__).parents[2]
        )
        its.close()
        self._control = mine
        _, (self._listener,), _, _ = socket.recv_fds(mine, 1, 1)

    def close(self) -> None:
        """End the child."""
        self._control.close()
        self._child.kill()
        self._child.wait()
        os.close(self._listener)

    def read(self, data: bytes) -> bool:
        """Return what the reader returns.

        Raises `AssertionError` if it raised an error, took too long, or opened anything else.
        """
        self._control.sendall(_HEAD.pack(len(data)) + data)
        opened = []
        until_s = time.monotonic() + _PATIENCE_S
        poll = select.poll()
        poll.register(self._control, select.POLLIN)
        poll.register(self._listener, select.POLLIN)
        while ready := [descriptor for descriptor, _ in poll.poll(_PATIENCE_S * 1000)]:
            if self._listener in ready and (what := self._answered()) is not None:
                opened.append(what)
            if self._control.fileno() in ready:
                is_good, took_s, length = _REPLY.unpack(self._received(_REPLY.size))
                error = self._received(length).decode()
                assert not opened, f"it opened {opened}"
                assert not error, error
                assert took_s < _SLOW_S, f"it took {took_s:.1f} s"
                return bool(is_good)
            assert time.monotonic() < until_s, "it takes too long"
        raise AssertionError("it hangs")

    def _received(self, count: int) -> bytes:
        data = bytearray()
        while len(data) < count:
            part = self._control.recv(count - len(data))
            assert part, f"it died: {self._child.wait()}"
            data += part
        return bytes(data)

    def _answered(self) -> str | None:
        """Answer a system call; return what it is about unless it is allowed."""
        buffer = bytearray(_NOTIFICATION.size)
        try:
            fcntl.ioctl(self._listener, _RECEIVE, buffer)
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.EINTR):  # the thread has gone
                return None
            raise
        call, process, _, number, _, _, *arguments = _NOTIFICATION.unpack(buffer)
        index = _NUMBERS[platform.machine()][1][number]
        what = f"system call {number}" if index is None else _text(process, arguments[index])
        is_allowed = index is not None and (
            what in self._own or what.startswith(_OF_PYTHON) or _LIBRARY.search(what) is not None
        )
        answer = (0, 0, _CONTINUE) if is_allowed else (0, -errno.EPERM, 0)
        fcntl.ioctl(self._listener, _SEND, _ANSWER.pack(call, *answer))
        return None if is_allowed else what


def _text(process: int, address: int) -> str:
    """Return the text at an address of a process."""
    with open(f"/proc/{process}/mem", "rb", buffering=0) as memory:
        memory.seek(address)
        text = memory.read(_PAGE - address % _PAGE)
        while b"\0" not in text:  # it continues in the next page, which is there then
            text += memory.read(_PAGE)
        return os.fsdecode(text.split(b"\0", 1)[0])


def _install() -> int:
    """Let the calling thread, and all that it starts, be watched; return the listener."""
    number, watched = _NUMBERS[platform.machine()]
    program = [struct.pack("=HBBI", _LOAD, 0, 0, 0)]
    for left, call in enumerate(reversed(watched)):
        program.insert(1, struct.pack("=HBBI", _JUMP_IF_EQUAL, left + 1, 0, call))
    program.append(struct.pack("=HBBI", _RETURN, 0, 0, _ALLOW))
    program.append(struct.pack("=HBBI", _RETURN, 0, 0, _NOTIFY))
    code = ctypes.create_string_buffer(b"".join(program))
    head = ctypes.create_string_buffer(struct.pack("@HP", len(program), ctypes.addressof(code)))
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
    listener = libc.syscall(
        ctypes.c_long(number), ctypes.c_long(_SET_MODE_FILTER), ctypes.c_long(_NEW_LISTENER), head
    )
    assert listener >= 0, os.strerror(ctypes.get_errno())
    return int(listener)


def main() -> None:
    """Read what comes over the descriptor of the last argument."""
    place, folder, descriptor = sys.argv[1:]
    module, _, name = place.partition(":")
    read = getattr(import_module(module), name)(Path(folder))
    control = socket.socket(fileno=int(descriptor))
    listener = _install()
    socket.send_fds(control, [b"\0"], [listener])
    os.close(listener)
    stream = control.makefile("rb")
    while head := stream.read(_HEAD.size):
        data, error, is_good = stream.read(*_HEAD.unpack(head)), "", False
        began_s = time.process_time()
        try:
            is_good = read(data)
        except Exception:  # noqa: BLE001 - whatever it is, the other side reports it
            error = traceback.format_exc()
        took_s = time.process_time() - began_s
        control.sendall(_REPLY.pack(is_good, took_s, len(error.encode())) + error.encode())


if __name__ == "__main__":
    main()
