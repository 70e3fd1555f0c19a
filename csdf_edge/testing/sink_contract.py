"""The contract of sinks, as a class of tests that each sink's own test class inherits.

`launcher.streaming` relies on it: it tries a lost result again with the same sink, and never asks
whether it was delivered.
"""

from __future__ import annotations

import tracemalloc
from abc import abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path

import numpy as np
import pytest

from launcher.config.ends.sink import FrameResult, Sink, SinkConfig, SinkLostError

TAKEN_S = 1_700_000_000.0
"""When frame 0 was taken; each further one is taken 0.1 s later."""

LARGE, GROWTH_BYTES = 5000, 1_000_000
"""Values of a large result, and the bytes that a sink may keep of 200 of them, which have 6 MB."""


def made_result(index: int, values: int = 3) -> FrameResult:
    """Return a result with an image of 64 × 48 pixels and one output of `values` numbers."""
    image = np.full((48, 64, 3), index % 256, np.uint8)
    outputs = {"scores": np.full((1, values), index, np.float32)}
    return FrameResult(
        index, TAKEN_S + index / 10, outputs, f"{index}.jpg", index / 10, image=image
    )


class SinkContract:
    """Inherit it, and define the sink and how to see what it has delivered.

    `place` is an empty folder for each test.
    """

    password: str = ""
    """A secret in `config`, which no message may contain."""

    @abstractmethod
    def config(self, place: Path) -> SinkConfig:
        """Return the keys of a sink that delivers to `place`, or to something started for it."""

    @abstractmethod
    def delivered(self, place: Path) -> list[int]:
        """Return the indices of all results that have arrived, in the order of their arrival."""

    def outage(self, place: Path) -> AbstractContextManager[None]:
        """Within the context, nothing can be delivered, and `write` raises `SinkLostError`."""
        pytest.skip("an outage cannot be simulated here")

    def bounded(self, place: Path, most_bytes: int) -> SinkConfig:
        """Return the keys of a sink whose files in `place` have at most `most_bytes` together."""
        pytest.skip("it keeps no files")

    @contextmanager
    def opened(self, config: SinkConfig, place: Path) -> Iterator[Sink]:
        """Open a sink, and close it at the end."""
        sink = config.open(place)
        try:
            yield sink
        finally:
            sink.close()

    def test_opening_it_touches_nothing(self, tmp_path: Path) -> None:
        with self.opened(self.config(tmp_path), tmp_path):
            assert not list(tmp_path.iterdir())

    def test_results_arrive_in_order_and_once(self, tmp_path: Path) -> None:
        frames = [0, 1, 2, 5, 6, 40]
        with self.opened(self.config(tmp_path), tmp_path) as sink:
            for index in frames:
                sink.write(made_result(index))
        assert self.delivered(tmp_path) == frames

    def test_a_result_that_was_lost_is_delivered_once_when_it_is_tried_again(
        self, tmp_path: Path
    ) -> None:
        with self.opened(self.config(tmp_path), tmp_path) as sink:
            sink.write(made_result(0))
            with self.outage(tmp_path):
                for _ in range(2):
                    with pytest.raises(SinkLostError):
                        sink.write(made_result(1))
            for index in (1, 2):
                _insist(sink, made_result(index))
        assert self.delivered(tmp_path) == [0, 1, 2]

    def test_a_result_that_was_given_up_may_be_followed_by_another(self, tmp_path: Path) -> None:
        with self.opened(self.config(tmp_path), tmp_path) as sink:
            sink.write(made_result(0))
            with self.outage(tmp_path), pytest.raises(SinkLostError):
                sink.write(made_result(1))
            _insist(sink, made_result(2))
        assert [index for index in self.delivered(tmp_path) if index != 1] == [0, 2]

    def test_a_first_result_may_be_lost(self, tmp_path: Path) -> None:
        with self.opened(self.config(tmp_path), tmp_path) as sink:
            with self.outage(tmp_path), pytest.raises(SinkLostError):
                sink.write(made_result(0))
            _insist(sink, made_result(0))
        assert self.delivered(tmp_path) == [0]

    def test_it_can_be_closed_twice_and_without_a_result(self, tmp_path: Path) -> None:
        for results in (0, 1):
            sink = self.config(tmp_path).open(tmp_path)
            for index in range(results):
                sink.write(made_result(index))
            sink.close()
            sink.close()

    def test_it_can_be_closed_during_an_outage(self, tmp_path: Path) -> None:
        with self.opened(self.config(tmp_path), tmp_path) as sink:
            sink.write(made_result(0))
            with self.outage(tmp_path), pytest.raises(SinkLostError):
                sink.write(made_result(1))
            with self.outage(tmp_path):
                sink.close()

    def test_memory_does_not_grow_with_the_results(self, tmp_path: Path) -> None:
        with self.opened(self.config(tmp_path), tmp_path) as sink:
            for index in range(50):
                sink.write(made_result(index, LARGE))
            tracemalloc.start()
            try:
                for index in range(50, 250):
                    sink.write(made_result(index, LARGE))
                assert tracemalloc.get_traced_memory()[0] < GROWTH_BYTES
            finally:
                tracemalloc.stop()

    def test_files_stay_within_their_bound(self, tmp_path: Path) -> None:
        most_bytes = 200_000
        config = self.bounded(tmp_path, most_bytes)
        for begin in (0, 100):  # the second sink finds the files of the first
            with self.opened(config, tmp_path) as sink:
                for index in range(begin, begin + 100):
                    sink.write(made_result(index, values=1000))
                    assert _bytes_in(tmp_path) <= most_bytes
            assert _bytes_in(tmp_path) <= most_bytes
        assert _bytes_in(tmp_path) > most_bytes / 4

    def test_no_text_has_the_password(self, tmp_path: Path) -> None:
        config = self.config(tmp_path)
        with self.opened(config, tmp_path) as sink:
            assert sink.description
            for text in (sink.description, repr(config), repr(sink)):
                assert not self.password or self.password not in text


def _insist(sink: Sink, result: FrameResult, attempts: int = 100) -> None:
    """Deliver a result as `launcher.streaming` does, but without waiting between attempts."""
    for _ in range(attempts - 1):
        with suppress(SinkLostError):
            return sink.write(result)
    return sink.write(result)


def _bytes_in(place: Path) -> int:
    return sum(path.stat().st_size for path in place.rglob("*") if path.is_file())
