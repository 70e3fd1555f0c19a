"""A source streamed through real agents, in this process."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import onnxruntime as ort
import pytest

from launcher.config.cluster import InputConfig
from launcher.config.ends.sink import FrameResult, Sink, SinkConfig
from launcher.config.ends.source import Source, SourceFrame
from launcher.config.run import RecoveryConfig
from launcher.errors import BadInputError, RunFailedError
from launcher.plan.settings import read_model
from launcher.progress import LineProgress
from launcher.run.request import Request
from launcher.streaming import job
from launcher.streaming.opening import Ends
from launcher.streaming.report import StreamReport
from launcher.streaming.running import stream
from launcher.tasks.opening import open_task
from tests.csdf_edge.test_live import agents_of, have_ended
from tests.streaming.parts import ScriptedSink

DIGITS = Path(__file__).parents[2] / "examples" / "digits"

slow = pytest.mark.slow


class Images:
    """The digits' images again and again, as arrays without a name."""

    description = "the digits"

    def __init__(self, frames: int | None, *, is_live: bool = False) -> None:
        self.is_live = is_live
        self._images = np.load(DIGITS / "test_images.npy")
        self._frames = frames
        self._closed = threading.Event()

    def frames(self) -> Iterator[SourceFrame]:
        number = 0
        while number != self._frames and not self._closed.is_set():
            image = self._images[number % len(self._images)]
            yield SourceFrame({"": image[None]}, float(number))
            number += 1

    def close(self) -> None:
        self._closed.set()


class KeepConfig(SinkConfig):
    """A sink of the test's own."""

    kind: ClassVar[str] = "keep"

    def open(self, folder: Path) -> Sink:
        raise NotImplementedError(str(folder))


class CallingSink(ScriptedSink):
    """Calls something with each result."""

    def __init__(self, call: Callable[[FrameResult], None]) -> None:
        super().__init__()
        self._call = call

    def write(self, result: FrameResult) -> None:
        super().write(result)
        self._call(result)


def loaded(**changes: object) -> job.LoadedTarget:
    found = job.load_target(Request(DIGITS / "cluster.yaml", strategy="sequential"))
    return replace(found, cluster=found.cluster.changed(truth=None, **changes))


def run(source: Source, *sinks: Sink, said: list[str], **changes: object) -> StreamReport:
    class Progress(LineProgress):
        def __init__(self) -> None: ...

        def say(self, text: str, *_: object) -> None:
            said.append(text)

        def update(self, *_: object) -> None: ...

    target = loaded(**changes)
    request = Request(DIGITS / "cluster.yaml", strategy="sequential")
    model = read_model(target.cluster)
    ends = Ends(source, open_task(target.cluster, model), [(KeepConfig(), sink) for sink in sinks])
    return stream(request, Progress(), loaded=target, open_ends=lambda *_: ends)


def check(sink: ScriptedSink, frames: int) -> None:
    """Raises unless these are the whole network's results of the first `frames` frames."""
    assert sink.indices == list(range(frames))
    images = np.load(DIGITS / "test_images.npy")
    session = ort.InferenceSession(DIGITS / "digits.onnx", providers=["CPUExecutionProvider"])
    for result in sink.taken:
        image = images[result.index % len(images)][None]
        (wanted,) = session.run(["probabilities"], {"image": image})
        np.testing.assert_allclose(result.outputs["probabilities"], wanted, rtol=1e-4, atol=1e-6)
        assert result.taken_s == result.index


@slow
def test_every_frame_of_a_source_reaches_every_sink_in_order() -> None:
    first, second, said = ScriptedSink(), ScriptedSink(), list[str]()
    report = run(Images(500), first, second, said=said)
    check(first, 500)
    check(second, 500)
    assert (report.read, report.dropped, report.results) == (500, 0, 500)
    assert [(sink.delivered, sink.not_delivered) for sink in report.sinks] == [(500, 0)] * 2
    assert report.exit_code == 0
    assert report.nodes
    assert report.frames_per_second > 0
    assert report.latency.median_s is not None
    assert agents_of(os.getpid()) == []


@slow
def test_a_signal_stops_an_endless_source_and_all_that_is_under_way_is_delivered() -> None:
    def stop(result: FrameResult) -> None:
        if result.index == 50:
            agents.extend(agents_of(os.getpid()))
            os.kill(os.getpid(), signal.SIGINT)

    agents: list[int] = []
    sink = CallingSink(stop)
    report = run(Images(None), sink, said=[])
    check(sink, report.results)
    assert report.results == report.read > 50
    assert (report.signal, report.exit_code) == (signal.SIGINT, 0)
    assert len(agents) == 3
    assert have_ended(agents)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@slow
def test_a_stream_that_was_stopped_before_all_its_frames_has_the_signal_s_exit_code() -> None:
    def stop(result: FrameResult) -> None:
        if not result.index:
            os.kill(os.getpid(), signal.SIGTERM)

    sink = CallingSink(stop)
    report = run(Images(None), sink, said=[], frames=100_000)
    assert report.exit_code == 128 + signal.SIGTERM


@slow
def test_a_sink_that_fails_ends_the_run_and_leaves_no_agent() -> None:
    def fail(result: FrameResult) -> None:
        if result.index == 7:
            raise RunFailedError("the disk is full")

    with pytest.raises(RunFailedError, match="the disk is full"):
        run(Images(None), CallingSink(fail), said=[])
    assert agents_of(os.getpid()) == []


@slow
def test_all_nodes_lost_end_a_stream_that_waits_for_its_source() -> None:
    came = threading.Event()

    class Pausing(Images):
        def frames(self) -> Iterator[SourceFrame]:
            yield from Images(3).frames()
            assert came.wait(20)
            for agent in agents_of(os.getpid()):
                os.kill(agent, signal.SIGKILL)
            self._closed.wait()

    def took(result: FrameResult) -> None:
        if result.index == 2:
            came.set()

    sink = CallingSink(took)
    with pytest.raises(RunFailedError, match="agent"):
        run(Pausing(None), sink, said=[], recovery=RecoveryConfig(enabled=False))
    check(sink, 3)


def test_what_needs_an_end_is_refused_before_anything_is_opened(tmp_path: Path) -> None:
    def never(*_: object) -> Ends:
        raise AssertionError

    base = Request(DIGITS / "cluster.yaml")
    for request, found, named in (
        (replace(base, output=tmp_path), loaded(), "--output"),
        (replace(base, resume=True), loaded(), "--resume"),
        (replace(base, trace=tmp_path / "trace"), loaded(), "--trace"),
        (base, loaded(journal="kept"), "journal"),
        (base, loaded(rate=10.0), "rate"),
    ):
        with (
            Path(os.devnull).open("w") as nowhere,
            pytest.raises(BadInputError, match=rf"{named}.* a stream may never end"),
        ):
            stream(request, LineProgress(nowhere), loaded=found, open_ends=never)


def test_what_cannot_be_opened_ends_the_run_before_an_agent_is_started() -> None:
    def none(*_: object) -> Ends:
        assert agents_of(os.getpid()) == []
        raise BadInputError("cluster.yaml, line 3, input.source: there is no such file")

    with (
        Path(os.devnull).open("w") as nowhere,
        pytest.raises(BadInputError, match="no such file"),
    ):
        stream(
            Request(DIGITS / "cluster.yaml"), LineProgress(nowhere), loaded=loaded(), open_ends=none
        )


def test_the_plan_of_a_stream_can_be_shown_and_programs_give_files() -> None:
    target = loaded(input=InputConfig(source="-"))  # type: ignore[arg-type]
    request = Request(DIGITS / "cluster.yaml", plan_only=True)
    with Path(os.devnull).open("w") as nowhere:
        shown = job.launch(request, LineProgress(nowhere), started_s=0.0, loaded=target)
        assert shown.plan is not None
        request = replace(request, plan_only=False)
        with pytest.raises(BadInputError, match="names a source or sinks"):
            job.launch(request, LineProgress(nowhere), started_s=0.0, loaded=target)
