"""Streams the frames of a model's source through the release of it that serves, to its sinks.

A stream belongs to a model and not to a release. When another release takes over, the stream
changes to it between two frames: a frame is fitted to the release that will compute it, and is
pushed once all results of the former release have arrived, so that results stay in order. The
former release is kept until then, as it is for a request. While no release serves, a source waits,
or its frames are dropped if it is live.

A stream that fails, because its release has or because the source or a sink is lost for too long,
begins again after a pause, with the frames that had no result and were not dropped.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import CancelledError, Future, wait
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from launcher.config.ends.source import ResumableSource, Source
from launcher.config.load import Cluster
from launcher.core.stream import ENDLESS
from launcher.errors import UnfitFrameError, shortened
from launcher.results.collecting import Results
from launcher.results.journal.ranges import FrameRanges
from launcher.run.feed import Feed, Outputs, Withdrawal
from launcher.run.request import Request
from launcher.run.runtime import Frame
from launcher.service.events import Note
from launcher.streaming.opening import open_ends
from launcher.streaming.running import stream_of
from launcher.streaming.source_stream import NetworkEnds, SourceStream
from launcher.tasks.opening import open_task
from launcher.threads import in_thread
from nodes.core.pauses import pause_s
from nodes.protocol.payload import Array

if TYPE_CHECKING:
    from cnn.model import Model

FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 60.0
"""The pause before a stream that failed begins again: twice as long each time."""

PROVEN_S = 60.0
"""A stream that has run for this time has no failures counted against it."""


@dataclass(frozen=True, eq=False)
class StreamedRelease:
    """A release into which a stream may push frames; `leave` is called when it pushes no more."""

    feed: Feed
    in_flight: int
    """How many frames of the stream may be in flight."""
    leave: Callable[[], None]

    @property
    def model(self) -> Model:
        """The network."""
        return self.feed.part.model


@dataclass(frozen=True)
class SinkStatus:
    """Counts of the results that a sink was given; `dropped` counts those refused as well."""

    sink: str
    delivered: int
    dropped: int
    waiting: int


@dataclass(frozen=True)
class StreamStatus:
    """Counts of the frames of a model's source since its stream last began."""

    model: str
    state: str
    """`waiting` for a release, `streaming`, `failed` (it begins again), or `ended`."""
    reason: str
    """Why it failed last; empty if it has not."""
    read: int = 0
    dropped: int = 0
    results: int = 0
    sinks: tuple[SinkStatus, ...] = ()


class ModelStream:
    """The stream of one model; its own thread opens both ends, and is done once it has `ended`."""

    def __init__(
        self,
        model: str,
        cluster: Cluster,
        report: Callable[[Note], None],
    ) -> None:
        """`cluster` has the source and the sinks of this model alone; `report` takes notes, in any
        thread."""
        self._model = model
        self._cluster = cluster
        self._report = report
        self._changed = threading.Condition()
        self._serving: StreamedRelease | None = None
        self._picked: StreamedRelease | None = None
        """The release for which a frame is fitted now, until it is pushed."""
        self._attempt: object = None
        """A mark of the present stream, which those that have failed do not have."""
        self._is_closed = False
        self._closed = threading.Event()
        self._stream: SourceStream | None = None
        self._last: tuple[Feed, Future[Outputs]] | None = None
        """The feed that got the last frame, and the frame's result."""
        self._network: tuple[Model, NetworkEnds] | None = None
        self._source: Source | None = None
        """The source that was opened last."""
        self._done = FrameRanges()
        """The frames that have results, or were dropped."""
        self._state, self._reason = "waiting", ""
        self.ended = in_thread(self._run, f"stream of {model}")

    def route(self, release: StreamedRelease | None) -> None:
        """Push later frames into this release; without one they wait."""
        with self._changed:
            is_over = self._state == "ended"
            former, self._serving = self._serving, None if is_over else release
            is_left = former is not self._picked
            self._changed.notify_all()
        if former is not None and is_left:
            former.leave()
        if release is not None and is_over:
            release.leave()

    def close(self) -> None:
        """Read no more frames, and end once the results in flight are delivered."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
            stream = self._stream
        self._closed.set()
        if stream is not None:
            stream.stop()

    def status(self) -> StreamStatus:
        """Return the present state and counts."""
        stream = self._stream
        if stream is None:
            return StreamStatus(self._model, self._state, self._reason)
        queued, refused = stream.reader.frames.counts, stream.reader.refused
        read = queued.offered + stream.reader.unread
        return StreamStatus(
            self._model,
            self._state,
            self._reason,
            read,
            queued.dropped + refused,
            stream.results,
            tuple(
                SinkStatus(sink, counts.delivered, counts.dropped + counts.refused, counts.waiting)
                for sink, counts in ((each.description, each.counts) for each in stream.deliveries)
            ),
        )

    # ------------------------------------------------------------ its thread

    def _run(self) -> None:
        failures = 0
        while (release := self._release()) is not None:
            began_s = time.monotonic()
            try:
                self._stream_from(release)
            except BaseException as error:  # noqa: BLE001 - a plugin's as well; the service continues
                if self._is_closed:
                    break
                if time.monotonic() - began_s >= PROVEN_S:
                    failures = 0
                failures += 1
                pause = pause_s(failures, FIRST_PAUSE_S, LONGEST_PAUSE_S)
                self._state, self._reason = "failed", shortened(str(error) or type(error).__name__)
                self._note("error", f"its stream failed, and begins again: {self._reason}")
                self._closed.wait(pause)
            else:
                break
        with self._changed:
            self._state = "ended"
        self.route(None)

    def _release(self) -> StreamedRelease | None:
        """Wait for a release that serves; None if there is none when the stream is closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_closed or self._serving is not None)
            return self._serving

    def _stream_from(self, release: StreamedRelease) -> None:
        """Stream until the source ends or the stream is closed, first through this release."""
        cluster, attempt = self._cluster, object()
        results = _StreamResults(release.model, cluster.config.frames or ENDLESS, self._done)
        ends = open_ends(Request(Path(cluster.source.name)), cluster, release.model, results)
        say, network = partial(self._note, "info"), partial(self._fitted_to, attempt)
        former, self._source = self._source, ends.source
        if former is not None and isinstance(ends.source, ResumableSource):
            ends.source.resume(former)
        with stream_of(ends, results, cluster, release.model, say, network) as stream:
            with self._changed:
                self._stream, self._attempt, is_closed = stream, attempt, self._is_closed
            if is_closed:
                stream.stop()
            self._state = "streaming"
            try:
                stream.run(self._submit, self._in_flight)
            finally:
                with self._changed:
                    self._attempt = None
                    self._changed.notify_all()
                self._leave_picked()
        counts = self.status()
        what = f"{counts.read} frames read, {counts.dropped} dropped, {counts.results} results"
        self._note("info", f"its stream has ended: {what}")

    def _note(self, level: str, text: str) -> None:
        self._report(Note(level, f"{self._model}: {text}"))

    # ------------------------------------------------------------ the thread that pushes frames

    def _in_flight(self) -> int:
        serving = self._serving
        return 1 if serving is None else serving.in_flight

    def _fitted_to(self, attempt: object) -> NetworkEnds:
        """Wait for the release that serves the next frame; return what the frame is fitted to."""

        def may_go_on() -> bool:
            is_over = self._is_closed or self._attempt is not attempt
            return is_over or self._serving is not None

        with self._changed:
            self._changed.wait_for(may_go_on)
            release = self._serving if self._attempt is attempt else None
            if release is None:
                raise CancelledError
            self._picked = release
        if self._network is None or self._network[0] is not release.model:
            task = open_task(self._cluster, release.model)
            self._network = release.model, NetworkEnds(release.model.network.inputs, task)
        return self._network[1]

    def _submit(self, frame: Frame, *, withdrawal: Withdrawal) -> Future[Outputs]:
        release = self._picked
        if release is None:  # the stream has failed meanwhile
            raise CancelledError
        if self._last is not None and self._last[0] is not release.feed:
            wait([self._last[1]])
        try:
            future = release.feed.submit(frame, withdrawal=withdrawal)
        except UnfitFrameError:
            self._leave_picked()
            raise
        self._last = release.feed, future
        self._leave_picked()
        return future

    def _leave_picked(self) -> None:
        """Note that no frame is between fitting and pushing."""
        with self._changed:
            picked, self._picked = self._picked, None
            is_left = picked is not self._serving
        if picked is not None and is_left:
            picked.leave()


class _StreamResults(Results):
    """Notes the frames of a stream that are `done`, so that it can begin again after them."""

    def __init__(self, model: Model, frames: int, done: FrameRanges) -> None:
        super().__init__(None, model.network.outputs, None, None, (), checked=False, frames=frames)
        self.settled = FrameRanges(done.ranges())
        self._done = done

    def on_result(self, frame: int, outputs: Mapping[str, Array], name: str = "") -> None:
        super().on_result(frame, outputs, name)
        self._done.add(frame)

    def on_drop(self, frame: int) -> None:
        super().on_drop(frame)
        self._done.add(frame)
