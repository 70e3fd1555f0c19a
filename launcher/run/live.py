"""A run in a thread of its own, into which a program pushes frames while it does other work."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import TypeAlias

from launcher.errors import LauncherError, RunFailedError
from launcher.run.feed import Feed
from launcher.run.runtime import Array, OnResult, OnUpdate, PushedFrames, RunResult, Update

Stream: TypeAlias = Callable[[PushedFrames, OnResult, OnUpdate], RunResult]
"""Streams frames through a plan until they end (`launcher.run.runtime.Runner`, its plan given)."""


class LiveRun:
    """Streams what is submitted to `feed`; enter it to begin, leave it to end.

    Entering waits until the nodes have loaded their subnets, and raises the `LauncherError` with
    which that failed. Leaving waits for all results, or, after an exception, gives them up.
    """

    def __init__(
        self, stream: Stream, most: int, on_update: OnUpdate, constants: Mapping[str, Array]
    ) -> None:
        """At most `most` frames are under way; `on_update` is called in the run's thread.

        `constants` are outputs that no input reaches; each result has them.
        """
        self._constants = dict(constants)
        self.feed = Feed(most)
        self.result: RunResult | None = None
        """What was measured, once the run has ended well."""
        self._stream = stream
        self._on_update = on_update
        self._streams = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="csdf-edge run")

    def __enter__(self) -> LiveRun:
        self._thread.start()
        try:
            self._streams.wait()
        except BaseException:
            self._end(given_up=True)
            raise
        if self._error is not None:
            self._end(given_up=True)
            raise self._error
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self._end(given_up=kind is not None)
        if kind is None and self._error is not None:
            raise self._error

    def _end(self, *, given_up: bool) -> None:
        if given_up:
            self.feed.give_up()
        else:
            self.feed.end()
        try:
            self._thread.join()
        except BaseException:  # Ctrl-C while the last results are awaited
            self.feed.give_up()
            self._thread.join()
            raise
        finally:
            self.feed.close()

    def _run(self) -> None:
        ended: LauncherError = RunFailedError("the cluster is closed")
        try:
            self.result = self._stream(self.feed, self._took, self._update)
        except LauncherError as error:
            self._error = ended = error
        except BaseException as error:
            self._error = error
            ended = RunFailedError(f"{type(error).__name__}: {error}")
            raise
        finally:
            self.feed.finish(ended)
            self._streams.set()

    def _took(self, index: int, outputs: Mapping[str, Array]) -> None:
        self.feed.took(index, {**outputs, **self._constants})

    def _update(self, update: Update) -> None:
        self._on_update(update)
        if update.stage == "streaming":
            self._streams.set()
