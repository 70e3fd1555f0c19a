"""Carries out `launch` from a source or to sinks: opens both, deploys, streams, and reports.

The end of a source is not known in advance, so results are not kept: there is no comparison with
the whole model, no journal and no folder of results. The simplified network is compared with its
file before the first frame.
"""

from __future__ import annotations

import functools
import queue
import time
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import dataclass, replace

from cnn.model import Model
from launcher.config.ends.sink import FrameResult, Sink, SinkConfig
from launcher.config.load import Cluster
from launcher.config.pace import Overload
from launcher.config.reconnect import ReconnectConfig
from launcher.errors import BadInputError
from launcher.plan.machines import machine_of
from launcher.plan.prediction import with_warmup
from launcher.progress import ProgressDisplay, Say
from launcher.results.page.recording import RunRecorder
from launcher.results.report import NonFiniteResults
from launcher.run.request import Request
from launcher.signals import stopping_on_signals
from launcher.streaming import job
from launcher.streaming.delivery import Delivery
from launcher.streaming.in_flight import frames_in_flight
from launcher.streaming.live_cluster import live_cluster
from launcher.streaming.opening import Ends, open_ends
from launcher.streaming.overload import OverloadQueue
from launcher.streaming.reading import Reader
from launcher.streaming.report import StreamReport, stream_report
from launcher.streaming.report_text import of_stream, stream_lines, stream_problems
from launcher.streaming.source_stream import SourceStream
from launcher.streaming.submitting import submit_to
from nodes.host.heap import give_back_free_memory

LIVE_QUEUE_FRAMES = 1
"""How many frames of a live source wait by default, so that those computed are recent."""

QUEUE_FRAMES = 8

MOST_IN_FLIGHT = 10_000
"""The most frames in flight on any plan."""

RATE_TICKS = 20
"""The number of samples over which the rate is shown, about ten seconds."""


OpenEnds = Callable[[Request, Cluster, Model], Ends]
"""Opens both ends of a stream, as `open_ends` does."""


class _GivenUpError(Exception):
    """Frames in flight are not waited for."""


@dataclass
class _Ran:
    """A stream that has ended, on a cluster that is closed."""

    live: job.Live
    in_flight: int
    recorder: RunRecorder
    signal: int | None = None


def stream(
    request: Request,
    progress: ProgressDisplay,
    *,
    loaded: job.LoadedTarget,
    open_ends: OpenEnds = open_ends,
) -> StreamReport:
    """Stream a source through the cluster that was `loaded`, to sinks, until it ends or a signal.

    Raises `BadInputError` before the first result, `RunFailedError` after that.
    """
    check_request(request, loaded.cluster)
    config = loaded.cluster.config
    infinite = NonFiniteCount(checked=config.check != "none")
    said: queue.SimpleQueue[str] = queue.SimpleQueue()
    with ExitStack() as stack:
        streams: list[SourceStream] = []

        def prepare(model: Model) -> None:
            ends = open_ends(request, loaded.cluster, model)
            opened = _source_stream(ends, loaded.cluster, said.put, infinite.seen)
            streams.append(stack.enter_context(opened))

        opening = job.open_live(
            request, progress, most=MOST_IN_FLIGHT, loaded=loaded, check=prepare, is_service=True
        )
        record = functools.partial(_recorder, request, loaded.cluster)
        ran = _run(opening, streams, _Progress(progress, said, config.frames), record)
        result = ran.live.run.result
        plan = ran.live.plan if result is None else result.replanned or ran.live.plan
        report = stream_report(
            streams[0],
            plan,
            result,
            order=config.run.order,
            in_flight=ran.in_flight,
            infinite=infinite.found,
            signal=ran.signal,
            frames=config.frames,
            measured=None if result is None else with_warmup(plan, result),
            cpus={node.name: node.cpus for node in config.nodes},
            machines={node.name: machine_of(node) for node in config.nodes},
            choice=ran.live.choice,
        )
        if request.report is not None:
            ran.recorder.write(
                replace(
                    ran.recorder.record,
                    plan=plan,
                    lines=tuple(stream_lines(report)),
                    compared=of_stream(report, plan),
                    nodes=report.nodes,
                    problems=stream_problems(report),
                )
            )
        return report


def _recorder(request: Request, cluster: Cluster, live: job.Live) -> RunRecorder:
    observation = live.run.observation
    record = job.run_record(cluster, live.plan, observation.models)
    return RunRecorder(request.report, observation.view, record)


def _run(
    opening: AbstractContextManager[job.Live],
    streams: list[SourceStream],
    progress: _Progress,
    record: Callable[[job.Live], RunRecorder],
) -> _Ran:
    """Open the cluster, which opens the stream, stream to the end, and close the cluster."""
    with suppress(_GivenUpError), opening as live:
        (frames,) = streams
        live.run.observation.count_drops(lambda: frames.reader.frames.counts.dropped)
        cluster = live_cluster(live, ExitStack())
        cluster.ended.add_done_callback(frames.cluster_ended)
        ran = _Ran(live, min(frames_in_flight(live.plan), MOST_IN_FLIGHT), record(live))
        progress.begin(frames, ran.in_flight)
        give_back_free_memory()  # that planning needed
        with ran.recorder, stopping_on_signals(frames.stop) as stopped:
            frames.run(submit_to(cluster), ran.in_flight, functools.partial(progress.show, frames))
        ran.signal = stopped.number
        if frames.is_given_up:
            raise _GivenUpError
    return ran


def check_request(request: Request, cluster: Cluster) -> None:
    """Raise `BadInputError` for what a stream cannot do."""
    options = {"--output": request.output, "--resume": request.resume, "--trace": request.trace}
    for option, given in options.items():
        if given:
            raise BadInputError(
                f"{option}: is for runs from files without sinks, since a stream may never end; "
                "results go to the sinks that cluster.yaml names"
            )
    for key in ("journal", "truth", "rate"):
        if getattr(cluster.config, key) is not None:
            raise cluster.error(
                (key,), "is for runs from files without sinks, since a stream may never end"
            )


def _source_stream(
    ends: Ends, cluster: Cluster, say: Say, seen: Callable[[FrameResult], None]
) -> SourceStream:
    config = cluster.config
    overload, places = _overload(cluster, is_live=ends.source.is_live)
    reconnect = config.reconnect
    return SourceStream(
        Reader(ends.source, OverloadQueue(places, overload), reconnect, say, most=config.frames),
        [_delivery(sink, keys, reconnect, say) for keys, sink in ends.sinks],
        task=ends.task,
        on_result=seen,
    )


def _delivery(sink: Sink, keys: SinkConfig, reconnect: ReconnectConfig, say: Say) -> Delivery:
    return Delivery(sink, reconnect, say, on_overload=keys.on_overload, places=keys.queue_results)


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


class NonFiniteCount:
    """Counts results with NaN or infinity, if they are `checked`."""

    def __init__(self, *, checked: bool) -> None:
        self.found = NonFiniteResults() if checked else None

    def seen(self, result: FrameResult) -> None:
        """Count a result."""
        if self.found is not None:
            self.found = self.found.seen(result.index, result.outputs)


class _Progress:
    """Shows a stream from time to time, and the sentences of its threads."""

    def __init__(
        self, progress: ProgressDisplay, said: queue.SimpleQueue[str], most: int | None
    ) -> None:
        self._progress = progress
        self._said = said
        self._most = most
        self._results: deque[tuple[float, int]] = deque(maxlen=RATE_TICKS)

    def begin(self, frames: SourceStream, in_flight: int) -> None:
        self._progress.say(
            f"streaming {frames.reader.source.description}, {in_flight} frames in flight; results "
            "are not compared with the whole model's"
        )

    def show(self, frames: SourceStream) -> None:
        while not self._said.empty():
            self._progress.say(self._said.get())
        self._progress.update("streaming", frames.results, self._most, self._note(frames))

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
