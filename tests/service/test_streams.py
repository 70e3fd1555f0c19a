"""The stream of a model's source: whichever release serves, each frame has one result, in order."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from launcher.config.ends.source import Source, SourceFrame
from launcher.config.load import Cluster, load_cluster
from launcher.errors import RunFailedError
from launcher.run.feed import Feed
from launcher.service import streams as module
from launcher.service.events import Note
from launcher.service.streams import ModelStream, StreamedRelease
from launcher.sinks.stdout import StdoutConfig
from launcher.streaming.opening import Ends
from tests.streaming.parts import WAIT_S, EndlessSource, ScriptedSink, ScriptedSource

DIGITS = Path(__file__).parents[2] / "examples" / "digits" / "digits.onnx"


class Release:
    """A release that multiplies by `factor`, and keeps results back until it is to `answer`."""

    def __init__(self, factor: int, *, answers: bool = True) -> None:
        self.factor = factor
        self.answers = answers
        self.pushed: list[int] = []
        self.left = threading.Semaphore(0)
        self.asked = threading.Semaphore(0)
        self._waiting: list[tuple[Future[Any], int]] = []
        network = SimpleNamespace(inputs=("x",), outputs=("y",), name="digits", tensors={})
        self.part = SimpleNamespace(model=SimpleNamespace(network=network, parts=()))

    def submit(self, frame: Mapping[str, Any], **_: object) -> Future[dict[str, np.ndarray]]:
        number = int(frame["x"][0])
        self.pushed.append(number)
        future: Future[dict[str, np.ndarray]] = Future()
        self._waiting.append((future, number))
        if self.answers:
            self.answer()
        self.asked.release()
        return future

    def answer(self) -> None:
        """Give all results that are kept back, and later ones at once."""
        self.answers = True
        while self._waiting:
            future, number = self._waiting.pop(0)
            future.set_result({"y": np.array([self.factor * number])})

    def fail(self) -> None:
        """End with an error."""
        while self._waiting:
            self._waiting.pop(0)[0].set_exception(RunFailedError("node 'a' was lost"))

    def streamed(self) -> StreamedRelease:
        return StreamedRelease(cast(Feed, self), 4, self.left.release)


class Streaming:
    """A stream between a source and a sink; a new pair of them each time it begins."""

    def __init__(self, cluster: Cluster, sources: list[ScriptedSource]) -> None:
        self.sinks: list[ScriptedSink] = []
        self.notes: list[Note] = []
        self._sources = iter(sources)
        self.stream = ModelStream("digits", cluster, self.notes.append)

    def open_ends(self, *_: object) -> Ends:
        self.sinks.append(ScriptedSink())
        return Ends(next(self._sources), None, [(StdoutConfig(), self.sinks[-1])], repeats=True)

    @property
    def results(self) -> list[list[tuple[int, int]]]:
        return [[(r.index, int(r.outputs["y"][0])) for r in sink.taken] for sink in self.sinks]

    def end(self) -> None:
        self.stream.close()
        self.stream.ended.result(WAIT_S)


Begin = Callable[..., Streaming]


@pytest.fixture
def begin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Begin]:
    path = tmp_path / "cluster.yaml"
    path.write_text(f"model: {DIGITS}\nnodes: [{{name: a}}]\n")
    begun: list[Streaming] = []

    def start(*sources: ScriptedSource) -> Streaming:
        streaming = Streaming(load_cluster(path), list(sources))
        begun.append(streaming)
        monkeypatch.setattr(module, "open_ends", streaming.open_ends)
        return streaming

    monkeypatch.setattr(module, "open_task", lambda *_: None)
    monkeypatch.setattr(module, "FIRST_PAUSE_S", 0.01)
    yield start
    for streaming in begun:
        streaming.end()


def test_frames_wait_for_a_release_and_a_source_that_ends_ends_the_stream(begin: Begin) -> None:
    streaming = begin(ScriptedSource(["frame"] * 5))
    assert streaming.stream.status().state == "waiting"
    release = Release(10)
    streaming.stream.route(release.streamed())
    streaming.stream.ended.result(WAIT_S)
    assert streaming.results == [[(n, 10 * n) for n in range(5)]]
    assert release.left.acquire(timeout=WAIT_S)
    status = streaming.stream.status()
    assert (status.state, status.read, status.results, status.dropped) == ("ended", 5, 5, 0)
    assert [(sink.delivered, sink.waiting) for sink in status.sinks] == [(5, 0)]
    assert "5 frames read" in streaming.notes[-1].text
    streaming.stream.route(release.streamed())
    assert release.left.acquire(timeout=0), "it is left at once: nothing more comes"


def test_another_release_takes_over_between_two_frames_and_results_stay_in_order(
    begin: Begin,
) -> None:
    source = EndlessSource(is_live=False)
    streaming = begin(source)
    first, second = Release(10, answers=False), Release(100)
    streaming.stream.route(first.streamed())
    for _ in range(3):
        source.next.release()
        assert first.asked.acquire(timeout=WAIT_S)
    streaming.stream.route(second.streamed())
    assert first.left.acquire(timeout=WAIT_S), "no frame is between fitting and pushing"
    source.next.release()
    assert not second.asked.acquire(timeout=0.2), "the results of the first come before"
    first.answer()
    assert second.asked.acquire(timeout=WAIT_S)
    streaming.end()
    assert streaming.results == [[(0, 0), (1, 10), (2, 20), (3, 300)]]
    assert (first.pushed, second.pushed) == ([0, 1, 2], [3])


def test_a_release_is_kept_while_a_frame_is_fitted_to_it(begin: Begin) -> None:
    source = EndlessSource(is_live=False)
    streaming = begin(source)
    first, second = Release(10), Release(100)
    fits, may_go_on = threading.Semaphore(0), threading.Semaphore(0)
    submit = first.submit

    def slow(frame: Mapping[str, Any], **options: object) -> Future[dict[str, np.ndarray]]:
        fits.release()
        assert may_go_on.acquire(timeout=WAIT_S)
        return submit(frame, **options)

    first.submit = slow  # type: ignore[method-assign]
    streaming.stream.route(first.streamed())
    source.next.release()
    assert fits.acquire(timeout=WAIT_S)
    streaming.stream.route(second.streamed())
    assert not first.left.acquire(timeout=0)
    may_go_on.release()
    assert first.left.acquire(timeout=WAIT_S)
    source.next.release()
    assert second.asked.acquire(timeout=WAIT_S)
    streaming.end()
    assert streaming.results == [[(0, 0), (1, 100)]]


def test_a_stream_whose_release_fails_begins_again_with_the_frames_that_have_no_result(
    begin: Begin,
) -> None:
    lost, kept = EndlessSource(is_live=False), ScriptedSource(["frame"] * 5)
    streaming = begin(lost, kept)
    first, second = Release(10), Release(100)
    streaming.stream.route(first.streamed())
    for _ in range(2):
        lost.next.release()
        assert first.asked.acquire(timeout=WAIT_S)
    lost.wait_until_put(2)
    first.answers = False
    lost.next.release()
    assert first.asked.acquire(timeout=WAIT_S)
    streaming.stream.route(None)
    first.fail()
    streaming.stream.route(second.streamed())
    streaming.stream.ended.result(WAIT_S)
    assert streaming.results == [[(0, 0), (1, 10)], [(2, 200), (3, 300), (4, 400)]]
    assert ("error", True) in [(note.level, "was lost" in note.text) for note in streaming.notes]
    assert streaming.stream.status().reason == "node 'a' was lost"


def test_a_stream_can_be_closed_while_no_release_serves(begin: Begin) -> None:
    source = EndlessSource(is_live=False)
    streaming = begin(source)
    release = Release(10)
    streaming.stream.route(release.streamed())
    source.next.release()
    assert release.asked.acquire(timeout=WAIT_S)
    streaming.stream.route(None)
    assert release.left.acquire(timeout=WAIT_S)
    source.next.release()
    streaming.end()
    assert streaming.results == [[(0, 0)]]
    assert source.closed.is_set()
    assert streaming.sinks[0].closed


class FileSource(ScriptedSource):
    """Settles frames as a folder does, and continues after another source."""

    def __init__(self, frames: int) -> None:
        super().__init__(["frame"] * frames)
        self.settled: list[int] = []
        self.resumed: list[Source] = []

    def frames(self) -> Iterator[SourceFrame]:
        for number, frame in enumerate(super().frames()):
            yield replace(frame, settle=partial(self.settled.append, number))

    def resume(self, former: Source) -> None:
        self.resumed.append(former)


def test_a_source_learns_which_frames_have_results_and_its_successor_continues(
    begin: Begin,
) -> None:
    former, source = FileSource(2), FileSource(1)
    streaming = begin(former, source)
    release, second = Release(10, answers=False), Release(100)
    streaming.stream.route(release.streamed())
    for _ in range(2):
        assert release.asked.acquire(timeout=WAIT_S)
    assert former.settled == []
    streaming.stream.route(None)
    release.fail()
    streaming.stream.route(second.streamed())
    streaming.stream.ended.result(WAIT_S)
    assert (former.settled, source.settled) == ([], [0])
    assert (former.resumed, source.resumed) == ([], [former])
