"""Runs `launch top` in a terminal: asks the server each second, reads keys, and draws."""

from __future__ import annotations

import os
import select
import sys
import termios
import tty
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from rich.console import Console, Group
from rich.live import Live

from launcher.errors import RunFailedError
from launcher.threads import Repeated
from launcher.top.client import ViewClient
from launcher.top.screen import Style
from launcher.top.watching import Event, Key, NotAnswered, Viewed, Watching

EVERY_S = 1.0

SEQUENCES = {
    b"\x1b[A": "up",
    b"\x1b[B": "down",
    b"\x1b[C": "right",
    b"\x1b[D": "left",
    b"\x1b[5~": "page up",
    b"\x1b[6~": "page down",
    b"\x1b[H": "home",
    b"\x1b[F": "end",
    b"\x1b[1~": "home",
    b"\x1b[4~": "end",
}
"""The sequences of keys that are not letters; with `O` for `[` in another mode."""


def style_of(console: Console) -> Style:
    """Return what a console can show; Python may write UTF-8 though the terminal has none."""
    found = (os.environ.get(name) for name in ("LC_ALL", "LC_CTYPE", "LANG"))
    locale = next(filter(None, found), "").lower().replace("-", "")
    return Style(is_ascii=console.options.ascii_only or "utf8" not in locale)


def watch(client: ViewClient, console: Console) -> None:
    """Show the server's runs until the user quits; raises `BadInputError` for what cannot pass."""
    state, page_lines = Watching(client.url), 1
    style, answers = style_of(console), _Answers(client)
    with (
        answers.asked(),
        _keys_at_once(sys.stdin.fileno()) as keyboard,
        Live(console=console, screen=True, auto_refresh=False) as live,
    ):
        while not state.has_ended:
            drawn = state.shows(console.width, console.height, style)
            state, page_lines = state.settled(drawn.first_line), drawn.page_lines
            live.update(Group(*drawn.rows), refresh=True)
            readable, _, _ = select.select([answers.descriptor, keyboard], [], [])
            events: list[Event] = []
            if answers.descriptor in readable:
                events += answers.take()
            if keyboard in readable:
                events += _keys(os.read(keyboard, 1024))
            for event in events:
                state = state.handle(event, page_lines)


@contextmanager
def _keys_at_once(descriptor: int) -> Iterator[int]:
    """Give keys as they are pressed, and do not show them."""
    before = termios.tcgetattr(descriptor)
    tty.setcbreak(descriptor)
    try:
        yield descriptor
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


def _keys(data: bytes) -> Iterator[Event]:
    """Return the keys of what was read; an end of input is `q`, as the terminal is gone."""
    if not data:
        yield Key("q")
    while data:
        known = next((each for each in SEQUENCES if data.startswith(_usual(each, data))), None)
        if known is not None:
            yield Key(SEQUENCES[known])
            data = data[len(known) :]
        else:
            yield Key(chr(data[0]))
            data = data[1:]


def _usual(sequence: bytes, data: bytes) -> bytes:
    return sequence.replace(b"[", b"O", 1) if data[1:2] == b"O" else sequence


class _Answers:
    """The server's answers to a thread that asks it; `descriptor` is readable after each."""

    def __init__(self, client: ViewClient) -> None:
        self._client = client
        self._answers: deque[Event | BaseException] = deque(maxlen=4)
        self.descriptor, self._bell = os.pipe()

    def asked(self) -> Repeated:
        """Ask the server while the context lasts, a second after each answer."""
        return Repeated(self._ask, lambda: EVERY_S, "top", patience_s=0.0)

    def take(self) -> Iterator[Event]:
        """Return what came; raises what the thread raised, a `BadInputError` usually."""
        os.read(self.descriptor, 64)
        while self._answers:
            answer = self._answers.popleft()
            if isinstance(answer, BaseException):
                raise answer
            yield answer

    def _ask(self) -> None:
        self._answers.append(self._answer())
        with suppress(OSError):
            os.write(self._bell, b"!")

    def _answer(self) -> Event | BaseException:
        try:
            return Viewed(self._client.views())
        except RunFailedError as error:
            return NotAnswered(str(error))
        except BaseException as error:  # noqa: BLE001 - raised where answers are taken
            return error
