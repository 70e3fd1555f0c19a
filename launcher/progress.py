"""Shows progress on standard error: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import Protocol, TextIO

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.progress import Progress as RichProgress
from rich.text import Text

from nodes.protocol.fields import printable

STEPS = 10
"""Lines that a stage writes, about, where there is no terminal."""


class ProgressDisplay(Protocol):
    """A context manager that shows messages and how far a stage is."""

    def __enter__(self) -> ProgressDisplay: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...

    def say(self, text: str) -> None:
        """Show a line that stays."""
        ...

    def update(self, stage: str, done: int, total: int, note: str = "") -> None:
        """Show `done` of `total` in `stage`; a stage ends with the next stage or `say`."""
        ...


def open_progress() -> ProgressDisplay:
    """Return a bar if standard error is a terminal, and lines if not."""
    return BarProgress() if sys.stderr.isatty() else LineProgress(sys.stderr)


class LineProgress:
    """Writes a line per message, and a line per tenth of a stage."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._stage = ""
        self._shown = -1

    def __enter__(self) -> LineProgress:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        return None

    def say(self, text: str) -> None:
        """See `ProgressDisplay`."""
        self._stage = ""
        self._write(text)

    def update(self, stage: str, done: int, total: int, note: str = "") -> None:
        """See `ProgressDisplay`."""
        tenth = STEPS * done // total if total else STEPS
        if stage != self._stage:
            self._stage, self._shown = stage, -1
        if tenth == self._shown:
            return
        self._shown = tenth
        self._write(f"{stage}: {done} of {total}" + (f", {note}" if note else ""))

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

    def say(self, text: str) -> None:
        """See `ProgressDisplay`."""
        self._clear()
        self._console.print(Text(printable(text)))

    def update(self, stage: str, done: int, total: int, note: str = "") -> None:
        """See `ProgressDisplay`."""
        if stage != self._stage or self._task is None:
            self._clear()
            self._stage = stage
            self._task = self._bar.add_task(printable(stage), total=None, note="")
        self._bar.update(self._task, completed=done, total=total, note=printable(note))

    def _clear(self) -> None:
        if self._task is not None:
            self._bar.remove_task(self._task)
        self._task = None
