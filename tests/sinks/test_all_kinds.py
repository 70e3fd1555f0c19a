"""One `launch` on a video that delivers its results to every kind of sink at once."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import numpy as np
import pytest

from tests.launcher.test_terminal import command
from tests.sinks.brokers import PurePythonBroker, Subscriber
from tests.sinks.test_video_sink import first_frame, times
from tests.sinks.web_server import WebServer
from tests.streaming.test_launch import FRAMES, RATE, write_brightness, write_video

CLUSTER = """\
model: brightness.onnx
task: none
nodes: [{name: a}]
input: {source: video.mkv, scale: 1, mean: 0, std: 1}
sinks:
  - {kind: json-lines, path: out/results.jsonl}
  - {kind: stdout}
  - {kind: npy, path: out/npy, keep_frames: 5}
  - {kind: images, path: out/images}
  - {kind: video, path: out/video}
"""


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # of amqtt
def test_every_kind_of_sink_gets_every_result_in_order(tmp_path: Path) -> None:
    write_brightness(tmp_path / "brightness.onnx")
    write_video(tmp_path / "video.mkv")
    server, broker = WebServer(), PurePythonBroker()
    broker.start()
    subscriber = Subscriber(broker.port)
    (tmp_path / "cluster.yaml").write_text(
        f"{CLUSTER}  - {{kind: webhook, url: '{server.url}'}}\n"
        f"  - {{kind: mqtt, host: 127.0.0.1, port: {broker.port}, topic: t}}\n"
    )
    launch = command("launcher.commands.launch", "cluster.yaml", "--verbose")
    ran = subprocess.run(launch, cwd=tmp_path, capture_output=True, timeout=120, check=True)
    subscriber.catch_up()
    subscriber.end()
    broker.stop()
    server.end()
    out = tmp_path / "out"
    lines = [json.loads(line) for line in ran.stdout.splitlines()]
    assert [result["index"] for result in lines] == list(range(FRAMES))
    assert [result["media_s"] for result in lines] == pytest.approx(
        [index / RATE for index in range(FRAMES)], abs=1e-3
    )
    assert subscriber.results == server.posted == lines
    assert ran.stdout == (out / "results.jsonl").read_bytes()
    assert sorted(path.name for path in (out / "npy").glob("*.npy")) == [
        f"{index:06d}.npy" for index in range(FRAMES - 5, FRAMES)
    ]
    last = np.load(out / "npy" / f"{FRAMES - 1:06d}.npy")
    assert last.reshape(-1).tolist() == pytest.approx(lines[-1]["outputs"]["mean"]["data"])
    assert len(list((out / "images").iterdir())) == FRAMES
    assert first_frame(out / "video" / "000001.mp4")["index"] == 0
    assert len(times(out / "video" / "000001.mp4")) == FRAMES
    assert b"webhook" in ran.stderr, "the report"
