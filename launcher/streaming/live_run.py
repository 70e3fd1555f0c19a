"""A run in a separate thread, into which a program pushes frames while it does other work."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, wait
from secrets import token_hex
from typing import TypeAlias

from launcher.errors import LauncherError, RunFailedError
from launcher.quantities import duration
from launcher.run.feed import Feed
from launcher.run.runtime import OnUpdate, RunResult, Update
from launcher.threads import in_thread
from launcher.view.observation import Observation

Stream: TypeAlias = Callable[[tuple[Feed, ...], OnUpdate], RunResult]
"""Streams frames through a plan until they end (`launcher.run.runtime.Runner`, its plan given)."""


def observe(feeds: Sequence[Feed], versions: Mapping[str, str] = {}) -> Observation:
    """Return an observation of a new run of these networks; by name, their versions, usually 1."""
    names = [feed.part.name for feed in feeds]
    return Observation(
        token_hex(8),
        names,
        [feed.figures for feed in feeds],
        [versions.get(name, "1") for name in names],
    )


class LiveRun:
    """Streams the frames submitted to `feeds`; enter it to begin, leave it to end.

    Entering waits until the nodes have loaded their subnets, and raises the `LauncherError` with
    which that failed. Leaving waits for all results; after an exception, and while too few nodes
    are left to compute any, it gives them up. The thread does not keep a program from its end.
    """

    def __init__(
        self,
        stream: Stream,
        feeds: Sequence[Feed],
        on_update: OnUpdate,
        observation: Observation | None = None,
    ) -> None:
        """`on_update` is called in the run's thread; `stream` keeps the `observation`."""
        self.feeds = tuple(feeds)
        self.observation = observation or observe(feeds)
        self.result: RunResult | None = None
        """The measurements, once the run has ended well."""
        self._stream = stream
        self._on_update = on_update
        self._streams = threading.Event()
        self._shortage = Shortage()
        self._is_leaving = False
        self._error: BaseException | None = None
        self._reported: LauncherError = RunFailedError("the cluster is closed")
        """The error with which frames without a result, and later ones, end."""
        self._ended: Future[None] | None = None
        for feed in self.feeds:
            feed.trouble = self._shortage.sentence

    def __enter__(self) -> LiveRun:
        self._ended = in_thread(self._run, "run")
        try:
            self._streams.wait()
        except BaseException:
            self._end(given_up=True)
            raise
        if self._error is not None:
            self._end(given_up=True)
            raise self._error
        return self

    def __exit__(self, kind: object, error: BaseException | None, _: object) -> None:
        self._end(given_up=kind is not None)
        if self._error is not None and (kind is None or error is self._reported):
            raise self._error from None

    def ended_well(self) -> RunResult:
        """Return the measurements, after the run; raises `RuntimeError` if it failed."""
        if self.result is None:
            raise RuntimeError("the run has failed")
        return self.result

    def _end(self, *, given_up: bool) -> None:
        is_own_thread = self.feeds[0].is_own_thread  # in a callback of a future
        for feed in self.feeds:
            if given_up or is_own_thread:
                feed.give_up()
            else:
                feed.end()
        if is_own_thread or self._ended is None:  # that thread ends after this callback
            return
        self._is_leaving = True
        self._give_up_if_lost()
        try:
            wait([self._ended])
        except BaseException:  # Ctrl-C while the last results are awaited
            for feed in self.feeds:
                feed.give_up()
            wait([self._ended])
            raise
        finally:
            for feed in self.feeds:
                feed.close()

    def _run(self) -> None:
        try:
            self.result = self._stream(self.feeds, self._update)
        except LauncherError as error:
            self._error = self._reported = error
        except BaseException as error:  # noqa: BLE001 - leaving the context raises it
            self._error = error
            self._reported = RunFailedError(f"{type(error).__name__}: {error}")
        finally:
            for feed in self.feeds:
                feed.finish(self._reported)
            self._streams.set()

    def _update(self, update: Update) -> None:
        self._on_update(update)
        if update.stage == "streaming":
            self._streams.set()
        if self._streams.is_set():
            self._shortage.note(update)
            self._give_up_if_lost()

    def _give_up_if_lost(self) -> None:
        """Fail the frames in flight if too few nodes are left to compute them."""
        if not self._is_leaving or not (trouble := self._shortage.sentence()):
            return
        if any(feed.figures().in_flight for feed in self.feeds):
            for feed in self.feeds:
                feed.give_up(RunFailedError(f"results are missing: {trouble}"))


class Shortage:
    """Knows, by a run's updates, since when and why too few nodes are left to compute."""

    def __init__(self) -> None:
        self._since_s: float | None = None
        self._why = ""

    def note(self, update: Update) -> None:
        """Handle an update, in the run's thread."""
        if not update.stage:
            if self._since_s is None and update.level == "warning":
                self._why = update.text
        elif update.stage.startswith("waiting for "):
            if self._since_s is None:
                self._since_s = time.monotonic() - update.done
        elif update.stage != "streaming":  # which also counts frames that were cancelled
            self._since_s = None

    def sentence(self) -> str:
        """Say it to the user, and what to do; empty if there is none. For any thread."""
        since_s = self._since_s
        if since_s is None:
            return ""
        return (
            f"for {duration(time.monotonic() - since_s)} too few nodes have been left to compute: "
            f"{self._why}. Start their agents again, or close the cluster"
        )
