"""A command in its own terminal, whose screen a test can read (pyte emulates it)."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pyte

WAIT_S = 30.0


class Terminal:
    """A screen of 80 × 24, and the process that draws on it."""

    def __init__(self, command: list[str], environment: dict[str, str]) -> None:
        self.screen = pyte.Screen(80, 24)
        self._stream = pyte.ByteStream(self.screen)
        self._ours, theirs = pty.openpty()
        self.received = b""
        _resize(theirs, 80, 24)
        self.process = subprocess.Popen(
            command,
            stdin=theirs,
            stdout=theirs,
            stderr=subprocess.PIPE,
            start_new_session=True,
            env={**os.environ, "TERM": "xterm-256color", "LC_ALL": "C.UTF-8", **environment},
        )
        os.close(theirs)

    @property
    def text(self) -> str:
        """The screen's lines."""
        return "\n".join(line.rstrip() for line in self.screen.display)

    def press(self, keys: str) -> None:
        """Press keys."""
        os.write(self._ours, keys.encode())

    def resize(self, width: int, height: int) -> None:
        """Make the window another size."""
        _resize(self._ours, width, height)
        self.screen.resize(height, width)

    def wait_for(self, holds: Callable[[str], bool]) -> str:
        """Return the screen's text once this holds of it."""
        until_s = time.monotonic() + WAIT_S
        while not holds(self.text):
            left_s = until_s - time.monotonic()
            readable, _, _ = select.select([self._ours], [], [], max(0.0, left_s))
            assert readable, f"it never came:\n{self.text}"
            self._read()
        return self.text

    def end(self) -> int:
        """Return the exit code, once the process has ended."""
        code = self.process.wait(WAIT_S)
        while select.select([self._ours], [], [], 0)[0] and self._read():
            pass
        return code

    @property
    def errors(self) -> str:
        """What the process wrote to standard error; it has ended."""
        assert self.process.stderr is not None
        return self.process.stderr.read().decode()

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
        self.process.communicate(timeout=WAIT_S)
        os.close(self._ours)

    def _read(self) -> bool:
        try:
            data = os.read(self._ours, 1 << 16)
        except OSError:  # the process has closed its end
            return False
        self.received += data
        self._stream.feed(data)
        return bool(data)


def _resize(descriptor: int, width: int, height: int) -> None:
    fcntl.ioctl(descriptor, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))


@contextmanager
def top(*arguments: str, **environment: str) -> Iterator[Terminal]:
    """Run `launch top` with these arguments."""
    code = "from launcher.commands.launch import main; main()"
    found = Terminal([sys.executable, "-c", code, "top", *arguments], environment)
    try:
        yield found
    finally:
        found.close()
