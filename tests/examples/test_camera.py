"""The example that publishes what a camera sees, with a video in place of the camera."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import pytest

from tests.sinks.brokers import PurePythonBroker, Subscriber

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "camera" / "cluster.yaml"
DIGITS = ROOT / "examples" / "digits"
FRAMES, RATE = 20, 10


def write_clip(path: Path) -> None:
    """A video that shows one of the held-out digits after the other."""
    with av.open(path, "w") as container:
        stream = container.add_stream("mpeg4", rate=Fraction(RATE))
        stream.width = stream.height = 128
        stream.pix_fmt, stream.bit_rate = "yuv420p", 4_000_000
        for image in np.load(DIGITS / "test_images.npy")[:FRAMES]:
            grey = np.kron((image[0] * 255).astype(np.uint8), np.ones((16, 16), np.uint8))
            picture = av.VideoFrame.from_ndarray(np.stack([grey] * 3, -1), "rgb24")
            container.mux(stream.encode(picture))
        container.mux(stream.encode(None))


@pytest.mark.slow
def test_the_digits_of_a_video_are_published(tmp_path: Path) -> None:
    """Only the broker's port is another one, since tests run beside each other."""
    shutil.copytree(DIGITS, tmp_path / "digits")
    broker = PurePythonBroker()
    broker.start()
    subscriber = Subscriber(broker.port)
    (tmp_path / "camera").mkdir()
    text = EXAMPLE.read_text("utf-8")
    (tmp_path / "camera" / "cluster.yaml").write_text(
        text.replace("host: localhost", f"host: 127.0.0.1\n    port: {broker.port}")
    )
    write_clip(tmp_path / "clip.mp4")
    command = [sys.executable, "-m", "launcher.commands.launch", str(tmp_path / "camera")]
    ran = subprocess.run(
        [*command, "--input", str(tmp_path / "clip.mp4")],
        cwd=ROOT,
        env={**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    subscriber.wait_for(FRAMES)
    subscriber.end()
    broker.stop()
    assert set(subscriber.topics) == {"camera/digits"}
    labels = [int(line) for line in (DIGITS / "test_labels.txt").read_text().split()]
    seen = [result["predictions"]["classes"][0]["class"] for result in subscriber.results]
    assert sum(np.equal(seen, labels[:FRAMES])) >= FRAMES - 2, "a video is compressed"
    assert [result["index"] for result in subscriber.results] == list(range(FRAMES))
    times = [result["media_s"] for result in subscriber.results]
    np.testing.assert_allclose(times, np.arange(FRAMES) / RATE, atol=1e-3)
