"""Makes the stream of a run from its ends and its results, and shows how far it is."""

from __future__ import annotations

import queue
import time
from collections import deque
from collections.abc import Callable

from cnn.model import Model
from launcher.config.ends.sink import Sink, SinkConfig
from launcher.config.load import Cluster
from launcher.config.run import Overload, ReconnectConfig
from launcher.core.stream import ENDLESS
from launcher.progress import ProgressDisplay, Say
from launcher.results.collecting import Results
from launcher.run.parts import parts_of
from launcher.run.runtime import Update
from launcher.sinks.filtering import ResultFilter
from launcher.streaming.delivery import Delivery
from launcher.streaming.opening import Ends
from launcher.streaming.reading import Reader
from launcher.streaming.source_stream import NetworkEnds, SourceStream

LIVE_QUEUE_FRAMES = 1
"""How many frames of a live source wait by default, so that those computed are recent."""

QUEUE_FRAMES = 8

RATE_TICKS = 50
"""The number of samples over which the rate is shown, about ten seconds."""


def stream_of(
    ends: Ends,
    results: Results,
    cluster: Cluster,
    model: Model,
    say: Say,
    network: Callable[[], NetworkEnds] | None = None,
) -> SourceStream:
    """Return the stream from the source to the sinks; `results` gets each result before them.

    Frames are fitted to `model`, or to what `network` returns for each of them. Of a source that
    repeats its frames, those that earlier launches have settled are left out; the numbers of
    another one continue after them.
    """
    config, settled = cluster.config, results.settled.ranges()
    overload, places = _overload(cluster, is_live=ends.source.is_live)
    reader = Reader(
        ends.source,
        config.reconnect,
        say,
        on_overload=overload,
        places=places,
        most=None if results.frames == ENDLESS else results.frames,
        first=settled[-1][1] + 1 if settled and results.inputs is None and not ends.repeats else 0,
        settled=results.settled,
        period_s=0.0 if config.rate is None else 1 / config.rate,
    )
    fixed = NetworkEnds(model.network.inputs, ends.task)
    return SourceStream(
        reader,
        [_delivery(sink, keys, config.reconnect, say, model) for keys, sink in ends.sinks],
        network=network or (lambda: fixed),
        on_result=lambda result: results.on_result(result.index, result.outputs, result.name),
        on_lost=results.on_drop,
        sample=results.sample,
    )


def _delivery(
    sink: Sink, keys: SinkConfig, reconnect: ReconnectConfig, say: Say, model: Model
) -> Delivery:
    part = next((part for part in parts_of(model) if part.name == keys.network), None)
    return Delivery(
        sink,
        reconnect,
        say,
        part=None if part is None or part.is_alone else part,
        wanted=ResultFilter.of(keys),
        on_overload=keys.on_overload,
        places=keys.queue_results,
    )


def _overload(cluster: Cluster, *, is_live: bool) -> tuple[Overload, int]:
    """The policy for frames that are not taken in time, and how many may wait."""
    config = cluster.config
    given = config.model_fields_set
    overload: Overload = "drop-oldest" if is_live else "block"
    places = LIVE_QUEUE_FRAMES if is_live else QUEUE_FRAMES
    return (
        config.on_overload if "on_overload" in given else overload,
        config.queue_frames if "queue_frames" in given else places,
    )


def show_update(progress: ProgressDisplay, update: Update) -> None:
    """Show a message of a run, or how far it is before it streams; a stream shows itself."""
    if update.stage == "streaming":
        return
    if not update.stage:
        progress.say(update.text, update.level, update.nodes)
    elif update.stage == "uploading":  # it counts bytes
        progress.update("uploading (kB)", update.done // 1000, (update.total or 0) // 1000)
    else:
        progress.update(update.stage, update.done, update.total, update.text)


class StreamDisplay:
    """Shows a stream from time to time, and the sentences of its threads.

    `frames` are to be streamed, or `ENDLESS`.
    """

    def __init__(self, progress: ProgressDisplay, frames: int) -> None:
        self.progress = progress
        self._frames = None if frames == ENDLESS else frames
        self._said: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._results: deque[tuple[float, int]] = deque(maxlen=RATE_TICKS)

    def say(self, text: str) -> None:
        """Keep a sentence of any thread until it is shown."""
        self._said.put(text)

    def show(self, frames: SourceStream) -> None:
        """Show the sentences that were said, and the counts."""
        while not self._said.empty():
            self.progress.say(self._said.get())
        total = self._frames
        if total is not None:
            total -= frames.reader.frames.counts.dropped
        self.progress.update("streaming", frames.results, total, self._note(frames))

    def _note(self, frames: SourceStream) -> str:
        self._results.append((time.monotonic(), frames.results))
        (began_s, first), (now_s, last) = self._results[0], self._results[-1]
        parts = []
        if now_s > began_s:
            parts.append(f"{(last - first) / (now_s - began_s):.1f} frames/s")
        if dropped := frames.reader.frames.counts.dropped:
            parts.append(f"{dropped} dropped")
        for delivery in frames.deliveries:
            counts = delivery.counts
            if counts.waiting:
                parts.append(f"{counts.waiting} wait for {delivery.description}")
            if counts.dropped:
                parts.append(f"{delivery.description} missed {counts.dropped}")
        return ", ".join(parts)
