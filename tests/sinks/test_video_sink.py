"""The kind video: segments that players show up to wherever they were cut off."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import av
import imageio_ffmpeg
import numpy as np
import pytest

from csdf_edge.testing.sink_contract import TAKEN_S, SinkContract, made_result
from launcher.config.ends.sink import FrameResult, ResultRefusedError, SinkConfig, SinkLostError
from launcher.errors import RunFailedError
from launcher.sinks import video
from launcher.sinks.video import VideoSinkConfig
from tests.sinks.disks import full_disk


def times(path: Path) -> list[float]:
    with av.open(str(path)) as file:
        return [float(frame.time) for frame in file.decode(video=0)]


def first_frame(path: Path) -> dict[str, float]:
    with av.open(str(path)) as file:
        about: dict[str, float] = json.loads(file.metadata["comment"])
        return about


def shown(folder: Path) -> list[int]:
    """The indices of all frames that can be decoded; each is taken 0.1 s after the one before."""
    return [
        round(first_frame(path)["index"] + time * 10)
        for path in sorted(folder.glob("*.mp4"))
        for time in times(path)
    ]


class TestVideo(SinkContract):
    def config(self, place: Path) -> SinkConfig:
        return VideoSinkConfig(path="out")

    def bounded(self, place: Path, most_bytes: int) -> SinkConfig:
        return VideoSinkConfig(path="out", keep_bytes=most_bytes // 10)

    def delivered(self, place: Path) -> list[int]:
        return shown(place / "out")

    @contextmanager
    def outage(self, place: Path) -> Iterator[None]:
        with full_disk():
            yield

    def test_files_stay_within_their_bound(self, tmp_path: Path) -> None:
        """Also those of an earlier run."""
        rng = np.random.default_rng(1)
        config = VideoSinkConfig(path="out", keep_bytes=100_000)
        for begin in (0, 60):
            with self.opened(config, tmp_path) as sink:
                for index in range(begin, begin + 60):
                    noise = rng.integers(0, 255, (48, 64, 3), np.uint8)
                    sink.write(replace(made_result(index), image=noise))
                    sizes = [path.stat().st_size for path in (tmp_path / "out").glob("*.mp4")]
                    assert sum(sizes) <= 100_000
            assert sum(sizes) > 60_000
        assert shown(tmp_path / "out")[-1] == 119


def test_a_segment_has_the_sources_times_and_says_when_it_begins(tmp_path: Path) -> None:
    sink = VideoSinkConfig(path="out").open(tmp_path)
    media = [4.0, 4.04, 4.08, 4.5, 7.1]
    for index, media_s in enumerate(media, start=3):
        sink.write(replace(made_result(index), media_s=media_s))
    sink.close()
    path = tmp_path / "out" / "000001.mp4"
    assert times(path) == pytest.approx([media_s - 4 for media_s in media], abs=1e-4)
    assert first_frame(path) == {"index": 3, "taken_s": TAKEN_S + 0.3, "media_s": 4.0}


def test_another_player_shows_the_colours_that_were_written(tmp_path: Path) -> None:
    """FFmpeg's own program, of another build than PyAV's library."""
    colors = [(200, 30, 30), (30, 200, 30), (30, 30, 200)]
    sink = VideoSinkConfig(path="out").open(tmp_path)
    for index, color in enumerate(colors):
        image = np.zeros((48, 64, 3), np.uint8) + np.array(color, np.uint8)
        sink.write(replace(made_result(index), image=image))
    sink.close()
    raw = subprocess.run(
        [
            *(imageio_ffmpeg.get_ffmpeg_exe(), "-v", "error", "-i", tmp_path / "out/000001.mp4"),
            *("-fps_mode", "passthrough", "-f", "rawvideo", "-pix_fmt", "rgb24", "-"),
        ],
        check=True,
        capture_output=True,
    ).stdout
    frames = np.frombuffer(raw, np.uint8).reshape(-1, 48, 64, 3)
    assert len(frames) == 3
    assert abs(frames[:, 24, 32].astype(int) - colors).max() < 12


def test_a_new_segment_begins_in_time_and_in_every_run(tmp_path: Path) -> None:
    for begin in (0, 25):
        sink = VideoSinkConfig(path="out", segment_s=1.0).open(tmp_path)
        for index in range(begin, begin + 25):
            sink.write(made_result(index))
        sink.close()
    found = sorted((tmp_path / "out").glob("*.mp4"))
    assert [first_frame(path)["index"] for path in found] == [0, 10, 20, 25, 35, 45]
    assert shown(tmp_path / "out") == list(range(50))


@pytest.mark.parametrize("jump_s", [-1000.0, 1000.0])
def test_a_clock_that_jumps_begins_a_new_segment(tmp_path: Path, jump_s: float) -> None:
    sink = VideoSinkConfig(path="out").open(tmp_path)
    for index in range(4):
        taken_s = TAKEN_S + index + jump_s * (index > 1)
        sink.write(replace(made_result(index), media_s=None, taken_s=taken_s))
    sink.close()
    for number in (1, 2):
        assert times(tmp_path / "out" / f"00000{number}.mp4") == pytest.approx([0, 1])


def test_images_of_any_size_are_encoded_and_another_size_begins_a_new_segment(
    tmp_path: Path,
) -> None:
    sink = VideoSinkConfig(path="out").open(tmp_path)
    for index, (height, width) in enumerate([(33, 17), (33, 17), (34, 64), (1, 1), (300, 2)]):
        image = np.zeros((height, width, 3), np.uint8)
        with suppress(ResultRefusedError):  # the encoder decides what is too small
            sink.write(replace(made_result(index), image=image))
    sink.write(made_result(9))
    sink.close()
    assert {0, 1, 2, 9} <= set(shown(tmp_path / "out"))


def test_without_x264_it_is_mpeg_4(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(video, "_encoder", lambda: ("mpeg4", {}))
    sink = VideoSinkConfig(path="out").open(tmp_path)
    for index in range(30):
        sink.write(made_result(index))
    sink.close()
    assert shown(tmp_path / "out") == list(range(30))


KILLED = """
import os, sys
from pathlib import Path
from csdf_edge.testing.sink_contract import made_result
from launcher.sinks.video import VideoSinkConfig
sink = VideoSinkConfig(path="out").open(Path(sys.argv[1]))
for index in range(40):
    sink.write(made_result(index))
os.kill(os.getpid(), 9)
"""


def test_kill_9_loses_one_frame(tmp_path: Path) -> None:
    killed = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], check=False)
    assert killed.returncode == -9
    assert shown(tmp_path / "out") == list(range(39))


def test_a_disk_that_is_full_in_the_middle_of_a_frame_costs_none(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)

    def noise(index: int) -> FrameResult:
        image = rng.integers(0, 255, (48, 64, 3), np.uint8)
        return replace(made_result(index), image=image)

    sink = VideoSinkConfig(path="out").open(tmp_path)
    for index in range(5):
        sink.write(noise(index))
    size = os.path.getsize(tmp_path / "out" / "000001.mp4")
    for more in (0, 1, 500):
        with full_disk(size + more), pytest.raises(SinkLostError, match="cannot be written"):
            sink.write(noise(5))
        assert os.path.getsize(tmp_path / "out" / "000001.mp4") == size
    for index in range(5, 8):
        sink.write(noise(index))
    sink.close()
    assert shown(tmp_path / "out") == list(range(8))


def test_videos_of_somebody_else_are_never_deleted(tmp_path: Path) -> None:
    (tmp_path / "000001.mp4").write_text("mine")
    sink = VideoSinkConfig(path=".", keep_bytes=1000).open(tmp_path)
    with pytest.raises(RunFailedError, match="name a new or empty folder"):
        sink.write(made_result(0))
    other = VideoSinkConfig(path=".").open(tmp_path)
    other.write(made_result(0))
    other.close()
    assert (tmp_path / "000001.mp4").read_text() == "mine"
    assert len(times(tmp_path / "000002.mp4")) == 1
