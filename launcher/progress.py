"""Shows progress: on standard error a bar on a terminal, else a line for each stage; or the log, or
one output of a notebook's cell."""

from __future__ import annotations

import sys
import threading
import time
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from importlib import import_module
from secrets import token_hex
from typing import Protocol, TextIO

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.progress import Progress as RichProgress
from rich.text import Text

from launcher.logs import is_json, log, log_line
from nodes.protocol.fields import printable

MOST_LINES = 200
"""Messages that a notebook keeps."""

LONG_STAGE_S = 5.0
"""Seconds after which a stage that has not ended gets a line, without a terminal."""

LINE_EVERY_S = 60.0
"""Seconds between two further lines of such a stage, or of one without an end."""


Say = Callable[[str], None]
"""Shows a sentence to the user; it may be called in any thread."""


class ProgressDisplay(Protocol):
    """A context manager that shows messages and how far a stage is, called from any thread."""

    def __enter__(self) -> ProgressDisplay:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def name_run(self, run: str) -> None:  # noqa: ARG002
        """Attribute all later messages to this run; displays for people do not show it."""
        return

    @abstractmethod
    def say(self, text: str, level: str = "info", nodes: Sequence[str] = ()) -> None:
        """Show a line that stays; `level` is `info` or `warning`, `nodes` are those concerned."""

    @abstractmethod
    def update(self, stage: str, done: int, total: int | None, note: str = "") -> None:
        """Show `done` of `total` in `stage`, which has no end without a total.

        A stage ends with the next one; on a terminal also with `say`.
        """


def open_progress(lines: TextIO | None = None) -> ProgressDisplay:
    """Return the log, if it has JSON lines; else a bar if standard error is a terminal, and lines
    if not, or if they are to go to `lines`."""
    if is_json():
        return JsonDisplay()
    if lines is None and sys.stderr.isatty():
        return BarDisplay()
    return LineDisplay(lines or sys.stderr)


def program_progress(*, shown: bool) -> ProgressDisplay:
    """Return the display for programs that import csdf-edge: lines on standard error, one output in
    a notebook, and none unless progress is to be `shown`."""
    if not shown:
        return SilentDisplay()
    # Only Jupyter's shells have a kernel; those in a terminal read lines.
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    if getattr(shell, "kernel", None) is not None:
        return NotebookDisplay(import_module("IPython.display").display)
    return LineDisplay(sys.stderr)


@dataclass(frozen=True, slots=True)
class _Reached:
    """How far a stage is; it has no end without a total."""

    stage: str
    done: int
    total: int | None
    note: str

    @property
    def is_complete(self) -> bool:
        return self.total is not None and self.done >= self.total

    @property
    def text(self) -> str:
        of = "" if self.total is None else f" of {self.total}"
        return f"{self.stage}: {self.done}{of}" + (f", {self.note}" if self.note else "")


@dataclass(slots=True)
class _OpenStage:
    """A stage that has not ended: the numbers of its first and its last update."""

    began: int
    due_s: float
    last: int = 0
    reached: _Reached | None = None
    """How far it is, unless that was shown."""


class _Stages:
    """Chooses the updates that a log shows: the last one of each stage, and one of a long stage
    after `LONG_STAGE_S` and then every `LINE_EVERY_S`. A stage without an end is shown at once.

    Stages may overlap. One that does not reach its total is shown before a later one that began
    after its last update, or at the end. Messages end no stage.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._count = 0
        self._open: dict[str, _OpenStage] = {}
        self._complete: dict[str, _Reached] = {}

    def update(self, reached: _Reached) -> list[_Reached]:
        """Take an update; return those that are to be shown now."""
        name, now_s = reached.stage, self._clock()
        self._count += 1
        if name in self._complete and reached.is_complete:
            return []
        if name not in self._open:
            wait_s = 0.0 if reached.total is None else LONG_STAGE_S
            self._open[name] = _OpenStage(self._count, now_s + wait_s)
            self._complete.pop(name, None)
        stage = self._open[name]
        stage.last, stage.reached = self._count, reached
        if not reached.is_complete and now_s < stage.due_s:
            return []
        shown = [*self._ended(stage.began), reached]
        stage.reached, stage.due_s = None, now_s + LINE_EVERY_S
        if reached.is_complete:
            self._complete[name] = reached
            del self._open[name]
        return shown

    def end(self) -> list[_Reached]:
        """End all stages; return how far those are that are still to be shown."""
        return self._ended(self._count + 1)

    def _ended(self, before: int) -> list[_Reached]:
        """End the stages whose last update is older than that number."""
        ended = [name for name, stage in self._open.items() if stage.last < before]
        found = [self._open.pop(name).reached for name in ended]
        return [each for each in found if each is not None and each.total is not None]


class JsonDisplay(ProgressDisplay):
    """Logs messages, and one line for each stage (see `_Stages`)."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._run = ""
        self._stages = _Stages(clock)

    def __exit__(self, *_: object) -> None:
        self._log(self._stages.end())

    def name_run(self, run: str) -> None:
        """See `ProgressDisplay`."""
        self._run = run

    def say(self, text: str, level: str = "info", nodes: Sequence[str] = ()) -> None:
        """See `ProgressDisplay`."""
        log_line(text, level, nodes=nodes, run=self._run)

    def update(self, stage: str, done: int, total: int | None, note: str = "") -> None:
        """See `ProgressDisplay`; stages without an end are not logged: metrics have their rate."""
        if total is not None:
            self._log(self._stages.update(_Reached(stage, done, total, note)))

    def _log(self, shown: Sequence[_Reached]) -> None:
        for each in shown:
            fields = {
                "run": self._run,
                "stage": each.stage,
                "done": each.done,
                "total": each.total,
            }
            log.info("%s", each.note or each.stage, extra={"fields": fields})


class SilentDisplay(ProgressDisplay):
    """Shows warnings alone, as log records."""

    def say(self, text: str, level: str = "info", nodes: Sequence[str] = ()) -> None:  # noqa: ARG002
        """See `ProgressDisplay`."""
        if level == "warning":
            log.warning("%s", printable(text))

    def update(self, stage: str, done: int, total: int | None, note: str = "") -> None:
        """See `ProgressDisplay`."""


class NotebookDisplay(ProgressDisplay):
    """Shows the last message or stage in one output of a notebook's cell, and all messages when it
    is unfolded."""

    def __init__(self, display: Callable[..., object]) -> None:
        """`display` is that of `IPython.display`."""
        self._display = display
        self._id = token_hex(8)
        self._lines: list[str] = []
        self._is_shown = False
        self._lock = threading.RLock()

    def say(self, text: str, level: str = "info", nodes: Sequence[str] = ()) -> None:  # noqa: ARG002
        """See `ProgressDisplay`."""
        with self._lock:
            self._lines = [*self._lines[1 - MOST_LINES :], printable(text)]
            self._show(printable(text), is_open=level == "warning")

    def update(self, stage: str, done: int, total: int | None, note: str = "") -> None:
        """See `ProgressDisplay`."""
        if total is None:
            return
        with self._lock:
            self._show(printable(f"{stage}: {done} of {total}" + (f", {note}" if note else "")))

    def _show(self, last: str, *, is_open: bool = False) -> None:
        lines = escape("\n".join(self._lines))
        page = (
            f"<details{' open' if is_open else ''}><summary>{escape(last)}</summary>"
            f"<pre>{lines}</pre></details>"
        )
        self._display(
            {"text/plain": last, "text/html": page},
            raw=True,
            display_id=self._id,
            update=self._is_shown,
        )
        self._is_shown = True


class LineDisplay(ProgressDisplay):
    """Writes a line per message, and one for each stage (see `_Stages`)."""

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream
        self._stages = _Stages(clock)
        self._lock = threading.RLock()

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._write(self._stages.end())

    def say(self, text: str, level: str = "info", nodes: Sequence[str] = ()) -> None:  # noqa: ARG002
        """See `ProgressDisplay`."""
        with self._lock:
            self._write_line(text)

    def update(self, stage: str, done: int, total: int | None, note: str = "") -> None:
        """See `ProgressDisplay`."""
        with self._lock:
            self._write(self._stages.update(_Reached(stage, done, total, note)))

    def _write(self, shown: Sequence[_Reached]) -> None:
        for each in shown:
            self._write_line(each.text)

    def _write_line(self, text: str) -> None:
        self._stream.write(printable(text) + "\n")
        self._stream.flush()


class BarDisplay(ProgressDisplay):
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

    def __enter__(self) -> BarDisplay:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

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
