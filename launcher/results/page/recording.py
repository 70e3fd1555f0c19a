"""Watches a run for its page, and writes the page when the run has ended, by an error or not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from launcher.errors import LauncherError
from launcher.files import read_json, write_text
from launcher.results.page.page import RunRecord, report_page
from launcher.view.model import RunView
from launcher.view.sampling import WholeRun, sampling


class RunRecorder:
    """Samples a run while its context lasts. Without a path it does nothing.

    `begun` is what is known of the run before it streams. If the context ends by an error, the page
    is written at once, with the error; otherwise `write` completes it.
    """

    def __init__(self, path: Path | None, look: Callable[[], RunView], begun: RunRecord) -> None:
        self._path = path
        self._look = look
        self._record = begun
        self._whole = WholeRun()
        self._sampling = sampling(lambda: (look(),), self._whole.keep, self._whole.every_s)

    def __enter__(self) -> RunRecorder:
        if self._path is not None:
            self._sampling.__enter__()
        return self

    def __exit__(self, kind: object, error: BaseException | None, _: object) -> None:
        if self._path is None:
            return
        self._sampling.__exit__()
        self._whole.keep(self._look())
        if isinstance(error, LauncherError):
            self.write(replace(self.record, problems=(*self.record.problems, str(error))))

    @property
    def record(self) -> RunRecord:
        """The record of the run so far."""
        return replace(self._record, view=self._whole.view, history=self._whole.history)

    def write(self, record: RunRecord, trace: Path | None = None) -> None:
        """Write the page; `trace` is the file of the run's trace. Raises `BadInputError`."""
        if self._path is None:
            return
        if trace is not None:
            record = replace(record, trace=read_json(trace)[1])
        write_text(self._path, report_page(record), f"--report {self._path}")
