"""The contract of sources, as a class of tests that each source's own test class inherits.

`launcher.streaming` relies on it: it reads a source in one thread, closes it in another, and calls
`frames` again when the source was lost.
"""

from __future__ import annotations

import queue
import threading
import time
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from launcher.config.ends.source import Source, SourceConfig, SourceFrame, SourceLostError
from launcher.errors import LauncherError

FRAMES = 5
"""How many frames the source of each test gives."""

PATIENCE_S = 30.0
"""How long a test waits for what must happen."""

CLOSE_S = 1.0
"""The time in which `frames` must end after `close`."""


class SourceContract:
    """Inherit it, and define the source and how to tell its frames apart.

    `place` is an empty folder for each test.
    """

    password: str = ""
    """A secret in `config`, which no message may contain."""

    @abstractmethod
    def config(self, place: Path) -> SourceConfig:
        """Return the keys of a source that gives `FRAMES` frames, and then ends, waits or
        continues.

        It is called once in a test.
        """

    @abstractmethod
    def number(self, frame: SourceFrame) -> int:
        """Return the frame's index, from 0 on, as its content shows.

        The index of a live source may start again from 0 when it reconnects.
        """

    def outage(self, place: Path) -> AbstractContextManager[None]:
        """Within the context, the source of `config` is lost; afterwards it gives frames again."""
        pytest.skip("an outage cannot be simulated here")

    def broken(self, place: Path) -> SourceConfig:
        """Return the keys of a source whose content is broken."""
        pytest.skip("it has no content to damage")

    @contextmanager
    def opened(self, config: SourceConfig, place: Path) -> Iterator[_Reading]:
        """Open a source, and close it at the end."""
        source = config.open(place)
        try:
            yield _Reading(source)
        finally:
            source.close()

    def test_frames_come_in_order_and_once(self, tmp_path: Path) -> None:
        with self.opened(self.config(tmp_path), tmp_path) as reading:
            numbers = [self.number(frame) for frame in reading.take(FRAMES)]
        assert numbers == sorted(set(numbers))
        assert reading.source.is_live or numbers == list(range(FRAMES))

    def test_a_frame_is_an_image_or_the_inputs_of_a_network(self, tmp_path: Path) -> None:
        with self.opened(self.config(tmp_path), tmp_path) as reading:
            (frame,) = reading.take(1)
        assert "/" not in frame.name
        if isinstance(frame.data, Mapping):
            assert all(isinstance(array, np.ndarray) for array in frame.data.values())
        else:
            assert frame.data.dtype == np.uint8
            assert frame.data.ndim == 3
            assert frame.data.shape[2] == 3

    def test_times_rise(self, tmp_path: Path) -> None:
        with self.opened(self.config(tmp_path), tmp_path) as reading:
            frames = reading.take(FRAMES)
        taken = [frame.taken_s for frame in frames]
        assert taken == sorted(taken)
        assert abs(taken[0] - time.time()) < PATIENCE_S
        media = [frame.media_s for frame in frames if frame.media_s is not None]
        assert media == sorted(set(media))
        assert all(seconds >= 0 for seconds in media)

    def test_another_call_continues_after_the_frames_that_were_yielded(
        self, tmp_path: Path
    ) -> None:
        with self.opened(self.config(tmp_path), tmp_path) as reading:
            first = [self.number(frame) for frame in reading.take(2)]
            (again,) = reading.take(1)
        if not reading.source.is_live:
            assert [*first, self.number(again)] == [0, 1, 2]

    def test_close_ends_the_frames_of_another_thread_within_a_second(self, tmp_path: Path) -> None:
        with self.opened(self.config(tmp_path), tmp_path) as reading:
            thread = _Thread(reading.source)
            for _ in range(FRAMES):
                thread.frame()
            began_s = time.monotonic()
            reading.source.close()
            thread.join(PATIENCE_S)
            assert time.monotonic() - began_s < CLOSE_S
            assert not isinstance(thread.error, Exception), thread.error

    def test_it_can_be_closed_twice_and_before_its_first_frame(self, tmp_path: Path) -> None:
        source = self.config(tmp_path).open(tmp_path)
        source.close()
        source.close()
        assert list(source.frames()) == []

    def test_a_lost_source_says_so_and_then_gives_frames_again(self, tmp_path: Path) -> None:
        with self.opened(self.config(tmp_path), tmp_path) as reading:
            reading.insist(1)
            frames = reading.source.frames()
            next(frames)
            with self.outage(tmp_path):
                for _ in range(2):
                    with pytest.raises(SourceLostError) as lost:
                        list(frames)
                    assert not self.password or self.password not in str(lost.value)
                    frames = reading.source.frames()
            reading.insist(1)

    def test_broken_content_is_an_error_and_neither_hangs_nor_kills(self, tmp_path: Path) -> None:
        with self.opened(self.broken(tmp_path), tmp_path) as reading:
            thread = _Thread(reading.source)
            thread.join(PATIENCE_S)
            assert not thread.is_alive()
            assert isinstance(thread.error, LauncherError)
            assert "\n" not in str(thread.error)

    def test_no_text_has_the_password(self, tmp_path: Path) -> None:
        config = self.config(tmp_path)
        with self.opened(config, tmp_path) as reading:
            source = reading.source
            assert source.description
            for text in (source.description, repr(config), repr(source)):
                assert not self.password or self.password not in text


class _Reading:
    """Reads a source in the test's own thread."""

    def __init__(self, source: Source) -> None:
        self.source = source

    def take(self, count: int) -> list[SourceFrame]:
        """Call `frames` and return its first `count` frames."""
        found: list[SourceFrame] = []
        frames: Any = self.source.frames()
        with closing(frames):
            for frame in frames:
                found.append(frame)
                if len(found) == count:
                    return found
        raise AssertionError(f"it ended after {len(found)} frames")

    def insist(self, count: int) -> list[SourceFrame]:
        """Return what `take` does, but try a lost source again, as `launcher.streaming` does."""
        until_s = time.monotonic() + PATIENCE_S
        while time.monotonic() < until_s:
            with suppress(SourceLostError):
                return self.take(count)
        return self.take(count)


class _Thread(threading.Thread):
    """Reads a source in a separate thread until it ends."""

    def __init__(self, source: Source) -> None:
        super().__init__(name="contract", daemon=True)
        self._source = source
        self._frames: queue.SimpleQueue[SourceFrame] = queue.SimpleQueue()
        self.error: Exception | None = None
        self.start()

    def run(self) -> None:
        try:
            for frame in self._source.frames():
                self._frames.put(frame)
        except Exception as error:  # noqa: BLE001 - the test examines it
            self.error = error

    def frame(self) -> SourceFrame:
        return self._frames.get(timeout=PATIENCE_S)
