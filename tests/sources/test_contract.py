"""Every built-in source keeps the contract that those of other packages must keep."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from csdf_edge.testing import FRAMES, SourceContract
from launcher.config.ends.source import SourceConfig, SourceFrame
from launcher.sources.folder import FolderConfig
from launcher.sources.stdin import StdinConfig
from launcher.sources.video import VideoConfig
from tests.sources.media import free_port, number_in, serving, write_video


def write_image(path: Path, number: int) -> Path:
    """Write an image of one brightness, which shows its number."""
    Image.fromarray(np.full((8, 9, 3), 10 * number, np.uint8)).save(path)
    return path


def brightness(frame: SourceFrame) -> int:
    assert isinstance(frame.data, np.ndarray)
    return round(float(frame.data.mean()) / 10)


class TestVideoFile(SourceContract):
    def config(self, place: Path) -> SourceConfig:
        return VideoConfig(url=str(write_video(place / "clip.mp4", FRAMES)))

    def number(self, frame: SourceFrame) -> int:
        assert isinstance(frame.data, np.ndarray)
        return number_in(frame.data)

    def broken(self, place: Path) -> SourceConfig:
        whole = write_video(place / "clip.mp4", 50, "-movflags", "faststart")
        os.truncate(whole, whole.stat().st_size * 2 // 3)
        return VideoConfig(url=str(whole))


class TestStream(SourceContract):
    """An address; frames come in real time to whoever connects, and the server can be killed."""

    password = "secret"

    @pytest.fixture(autouse=True)
    def _server(self) -> Iterator[None]:
        self._port = free_port()
        with ExitStack() as self._serving:
            yield

    def config(self, place: Path) -> SourceConfig:
        self._serving.enter_context(serving(self._port))
        return VideoConfig(url=f"tcp://me:secret@127.0.0.1:{self._port}?key=secret", timeout_s=5.0)

    def number(self, frame: SourceFrame) -> int:
        assert isinstance(frame.data, np.ndarray)
        return number_in(frame.data)

    @contextmanager
    def outage(self, place: Path) -> Iterator[None]:
        self._serving.close()
        yield
        self._serving.enter_context(serving(self._port))


class TestFolder(SourceContract):
    def config(self, place: Path) -> SourceConfig:
        folder = place / "in"
        folder.mkdir()
        for number in range(FRAMES):
            write_image(folder / f"{number}.png", number)
        return FolderConfig(path="in")

    def number(self, frame: SourceFrame) -> int:
        return brightness(frame)

    @contextmanager
    def outage(self, place: Path) -> Iterator[None]:
        (place / "in").rename(place / "elsewhere")
        yield
        (place / "elsewhere").rename(place / "in")

    def broken(self, place: Path) -> SourceConfig:
        (place / "in").mkdir()
        (place / "in" / "a.png").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(100))
        return FolderConfig(path="in")


class _Piped(SourceContract):
    """Standard input is a pipe that stays open."""

    @pytest.fixture(autouse=True)
    def _pipe(self) -> Iterator[None]:
        kept = os.dup(0)
        reading, self._writing = os.pipe()
        os.dup2(reading, 0)
        os.close(reading)
        yield
        os.dup2(kept, 0)
        os.close(kept)
        if self._writing is not None:
            os.close(self._writing)

    def written(self, place: Path, number: int) -> Path:
        raise NotImplementedError

    def config(self, place: Path) -> SourceConfig:
        for number in range(FRAMES):
            os.write(self._writing, self.written(place, number).read_bytes())
        return StdinConfig()

    def broken(self, place: Path) -> SourceConfig:
        os.write(self._writing, self.written(place, 1).read_bytes()[:-1])
        os.close(self._writing)
        self._writing = os.open(os.devnull, os.O_RDONLY)
        return StdinConfig()


class TestPipedImages(_Piped):
    def written(self, place: Path, number: int) -> Path:
        return write_image(place / f"{number}.jpg", number)

    def number(self, frame: SourceFrame) -> int:
        return brightness(frame)


class TestPipedArrays(_Piped):
    def written(self, place: Path, number: int) -> Path:
        np.save(place / f"{number}.npy", np.full((2, 3), number, np.float32))
        return place / f"{number}.npy"

    def number(self, frame: SourceFrame) -> int:
        assert not isinstance(frame.data, np.ndarray)
        return int(frame.data[""][0, 0])
