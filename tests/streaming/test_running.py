"""A source streamed through real agents, in this process."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import onnxruntime as ort
import pytest

from launcher.config.cluster import JournalConfig
from launcher.config.ends.sink import FrameResult, Sink, SinkConfig
from launcher.config.ends.source import Source, SourceFrame
from launcher.config.network import InputConfig
from launcher.config.run import RecoveryConfig
from launcher.errors import BadInputError, RunFailedError
from launcher.plan.settings import read_model
from launcher.progress import LineDisplay
from launcher.results.report import Report
from launcher.run.feed import Feed
from launcher.run.request import Request
from launcher.streaming import job
from launcher.streaming.opening import Ends
from launcher.streaming.target import LoadedTarget, load_target
from launcher.tasks.opening import open_task
from nodes.protocol.payload import Array
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


def loaded(**changes: object) -> LoadedTarget:
    found = load_target(Request(DIGITS / "cluster.yaml", strategy="sequential"))
    given = {"input": InputConfig(source="-"), **changes}  # type: ignore[arg-type]
    return replace(found, cluster=found.cluster.changed(truth=None, **given))


def run(source: Source, *sinks: Sink, said: list[str], **changes: object) -> Report:
    class Progress(LineDisplay):
        def __init__(self) -> None: ...

        def say(self, text: str, *_: object) -> None:
            said.append(text)

        def update(self, *_: object) -> None: ...

    asked = {key: changes.pop(key) for key in ("output", "trace", "resume") if key in changes}
    target = loaded(**changes)
    request = Request(DIGITS / "cluster.yaml", strategy="sequential", **asked)  # type: ignore[arg-type]
    model = read_model(target.cluster)
    task = open_task(target.cluster, model)
    ends = Ends(source, task, [(KeepConfig(), sink) for sink in sinks], repeats=not source.is_live)
    outcome = job.launch(
        request, Progress(), started_s=0.0, loaded=target, open_ends=lambda *_: ends
    )
    assert outcome.report is not None
    return outcome.report


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
    streamed = report.streamed
    assert streamed is not None
    assert (streamed.read, streamed.dropped, report.frames) == (500, 0, 500)
    assert [(sink.delivered, sink.not_delivered) for sink in streamed.sinks] == [(500, 0)] * 2
    assert report.exit_code == 0
    assert report.nodes
    assert report.frames_per_second > 0
    assert streamed.latency.median_s is not None
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
    check(sink, report.frames)
    assert report.streamed is not None
    assert report.frames == report.streamed.read > 50
    assert (report.streamed.signal, report.exit_code) == (signal.SIGINT, 0)
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


@slow
def test_a_stream_is_written_traced_and_kept_and_continues_where_it_was_interrupted(
    tmp_path: Path,
) -> None:
    """Its source gives the same frames again: those with a result are left out."""

    def stop(result: FrameResult) -> None:
        if result.index == 20:
            os.kill(os.getpid(), signal.SIGINT)

    output, journal = tmp_path / "out", JournalConfig(folder=str(tmp_path / "kept"), keep=10**7)
    first, second, said = CallingSink(stop), ScriptedSink(), list[str]()
    kept: dict[str, object] = {"output": output, "journal": journal}
    began = run(Images(None), first, said=said, **kept)
    assert began.journal is not None
    assert began.journal.saved == began.frames == len(first.taken) > 20
    trace = tmp_path / "trace.json"
    report = run(
        Images(None), second, said=said, **kept, trace=trace, resume=True, frames=200, rate=1000.0
    )
    assert report.journal is not None
    assert (report.journal.saved, report.journal.resumed) == (200, began.frames)
    assert (report.frames, report.exit_code) == (200 - began.frames, 0)
    check(first, began.frames)
    first.taken += second.taken
    check(first, 200)
    for result in first.taken:
        written = np.load(output / f"{result.index:06d}.npy")
        np.testing.assert_array_equal(written, result.outputs["probabilities"])
    assert len((output / "classes.csv").read_text().splitlines()) == 1 + 5 * 200
    assert json.loads(trace.read_text())["traceEvents"]


@slow
@pytest.mark.parametrize("wrong", [120, 121, pytest.param(None, marks=pytest.mark.further)])
def test_of_a_stream_every_nth_result_is_compared_with_the_whole_model(
    monkeypatch: pytest.MonkeyPatch, wrong: int | None
) -> None:
    took = Feed.took

    def spoiled(feed: Feed, index: int, outputs: Mapping[str, Array]) -> None:
        if index == wrong:
            outputs = {name: 1 - array for name, array in outputs.items()}
        took(feed, index, outputs)

    monkeypatch.setattr(Feed, "took", spoiled)
    report = run(Images(200), ScriptedSink(), said=[], verify_every=40)
    assert report.compared == 5
    assert report.agreement is not None
    if wrong == 120:
        assert (report.worst_frame, report.exit_code) == (120, 1)
        assert report.problem is not None
        assert "of frame 120" in report.problem
    else:
        assert (report.agreement.agrees, report.exit_code) == (True, 0)


@slow
def test_the_numbers_of_a_camera_continue_after_those_that_are_kept(tmp_path: Path) -> None:
    journal = JournalConfig(folder=str(tmp_path / "kept"), keep=10**7)
    kept: dict[str, object] = {"journal": journal, "on_overload": "block"}
    first, second = ScriptedSink(), ScriptedSink()
    run(Images(7, is_live=True), first, said=[], **kept)
    report = run(Images(5, is_live=True), second, said=[], **kept, resume=True)
    assert first.indices == list(range(7))
    assert second.indices == list(range(7, 12))
    assert report.journal is not None
    assert (report.journal.saved, report.journal.resumed) == (12, 7)


@slow
def test_a_source_has_the_rate_that_the_user_gives_it() -> None:
    sink = ScriptedSink()
    report = run(Images(11), sink, said=[], rate=20.0)
    check(sink, 11)
    assert report.seconds >= 0.5


def test_a_journal_of_a_source_without_an_end_needs_a_bound(tmp_path: Path) -> None:
    journal = JournalConfig(folder=str(tmp_path / "kept"))
    with pytest.raises(BadInputError, match="without an end need a bound: write `keep`"):
        run(Images(None), said=[], journal=journal)


def test_what_cannot_be_opened_ends_the_run_before_an_agent_is_started() -> None:
    def none(*_: object) -> Ends:
        assert agents_of(os.getpid()) == []
        raise BadInputError("cluster.yaml, line 3, input.source: there is no such file")

    with (
        Path(os.devnull).open("w") as nowhere,
        pytest.raises(BadInputError, match="no such file"),
    ):
        job.launch(
            Request(DIGITS / "cluster.yaml"),
            LineDisplay(nowhere),
            started_s=0.0,
            loaded=loaded(),
            open_ends=none,
        )


def test_the_plan_of_a_stream_can_be_shown() -> None:
    target = loaded(input=InputConfig(source="-"))  # type: ignore[arg-type]
    request = Request(DIGITS / "cluster.yaml", plan_only=True)
    with Path(os.devnull).open("w") as nowhere:
        shown = job.launch(request, LineDisplay(nowhere), started_s=0.0, loaded=target)
        assert shown.plan is not None
