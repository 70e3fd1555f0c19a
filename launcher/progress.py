"""Shows progress on standard error: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Protocol, TextIO

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.progress import Progress as RichProgress
from rich.text import Text

from nodes.protocol.fields import printable

STEPS = 10
"""The approximate number of lines of a stage without a terminal."""

ENDLESS_EVERY_S = 60.0
"""Seconds between two lines of a stage without an end, without a terminal."""


Say = Callable[[str], None]
"""Shows a sentence to the user; it may be called in any thread."""


class ProgressDisplay(Protocol):
    """A context manager that shows messages and how far a stage is, called from any thread."""

    def __enter__(self) -> ProgressDisplay: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...

    def name_run(self, run: str) -> None:
        """Attribute all later messages to this run; displays for people do not show it."""
        ...

    def say(self, text: str, level: str = "info", nodes: Sequence[str] = ()) -> None:
        """Show a line that stays; `level` is `info` or `warning`, `nodes` are those concerned."""
        ...

    def update(self, stage: str, done: int, total: int | None, note: str = "") -> None:
        """Show `done` of `total` in `stage`, which has no end without a total.

        A stage ends with the next stage or `say`.
        """
        ...


def open_progress() -> ProgressDisplay:
    """Return a bar if standard error is a terminal, and lines if not."""
    return BarProgress() if sys.stderr.isatty() else LineProgress(sys.stderr)


class LineProgress:
    """Writes a line per message, and per tenth of a stage; per minute of one without an end."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._stage = ""
        self._shown = -1
        self._endless_until_s = 0.0
        self._lock = threading.RLock()

    def __enter__(self) -> LineProgress:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        return None

    def name_run(self, run: str) -> None:
        """See `ProgressDisplay`; this one does nothing."""

    def say(self, text: str, level: str = "info", nodes: Sequence[str] = ()) -> None:  # noqa: ARG002
        """See `ProgressDisplay`."""
        with self._lock:
            self._stage = ""
            self._write(text)

    def update(self, stage: str, done: int, total: int | None, note: str = "") -> None:
        """See `ProgressDisplay`."""
        with self._lock:
            if self._is_due(stage, done, total):
                of = "" if total is None else f" of {total}"
                self._write(f"{stage}: {done}{of}" + (f", {note}" if note else ""))

    def _is_due(self, stage: str, done: int, total: int | None) -> bool:
        if total is None:
            now_s = time.monotonic()
            if now_s < self._endless_until_s:
                return False
            self._endless_until_s = now_s + ENDLESS_EVERY_S
            return True
        tenth = STEPS * done // total if total else STEPS
        if stage != self._stage:
            self._stage, self._shown = stage, -1
        if tenth == self._shown:
            return False
        self._shown = tenth
        return True

    def _write(self, text: str) -> None:
        self._stream.write(printable(text) + "\n")
        self._stream.flush()


class BarProgress:
    """Shows Rich's progress bar for one stage at a time, with messages above it."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(stderr=True, highlight=False)
        self._bar = RichProgress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[note]}", markup=False),
            console=self._console,
            transient=True,
        )
        self._stage = ""
        self._task: TaskID | None = None
        self._lock = threading.RLock()

    def __enter__(self) -> BarProgress:
        self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._bar.stop()

    def name_run(self, run: str) -> None:
        """See `ProgressDisplay`; this one does nothing."""

    def say(self, text: str, level: str = "info", nodes: Sequence[str] = ()) -> None:  # noqa: ARG002
        """See `ProgressDisplay`."""
        with self._lock:
            self._clear()
            self._console.print(Text(printable(text)))

    def update(self, stage: str, done: int, total: int | None, note: str = "") -> None:
        """See `ProgressDisplay`."""
        with self._lock:
            if stage != self._stage or self._task is None:
                self._clear()
                self._stage = stage
                self._task = self._bar.add_task(printable(stage), total=None, note="")
            self._bar.update(self._task, completed=done, total=total, note=printable(note))

    def _clear(self) -> None:
        if self._task is not None:
            self._bar.remove_task(self._task)
        self._task = None
