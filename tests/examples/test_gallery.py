"""The gallery: each example runs as its text says, and gives what its picture shows."""

from __future__ import annotations

import csv
import io
import re
import shutil
import subprocess
import sys
from collections import Counter
from itertools import pairwise
from pathlib import Path

import av
import numpy as np
import onnx
import pytest
from PIL import Image

from benchmarks.serving.server import Serving
from tests.examples.gallery import ALLOWED, BALLS, EXAMPLES, difference, launched, ran, script
from tests.sinks.brokers import PurePythonBroker, Subscriber

MAKE = script(BALLS / "make.py")
SHOWN = ("camera/seen.jpg", "count/counted.jpg", "csv/found.jpg", "notebook/predicted.jpg",
         "triton/found.jpg")  # fmt: skip


def test_the_files_of_the_balls_are_what_their_script_makes() -> None:
    assert onnx.load(BALLS / "balls.onnx") == MAKE.network()
    with av.open(BALLS / "balls.mp4") as container:
        frames = [frame.to_image() for frame in container.decode(video=0)]
    assert len(frames) == MAKE.FRAMES
    for number, frame in enumerate(frames):
        assert difference(frame, MAKE.scene(MAKE.rolling(number))) < ALLOWED
    pictures = sorted((BALLS / "pictures").iterdir())
    assert len(pictures) == 4
    for number, path in enumerate(pictures):
        assert difference(path, MAKE.scene(*MAKE.still(number))) < ALLOWED


def test_a_picture_of_other_balls_is_told_apart() -> None:
    assert difference(MAKE.scene(MAKE.rolling(25)), MAKE.scene(MAKE.rolling(35))) > ALLOWED


def test_the_gallery_shows_a_small_picture_of_each_example() -> None:
    page = (EXAMPLES / "README.md").read_text("utf-8")
    assert sorted(re.findall(r"!\[[^\]]+\]\(([^)]+)\)", page)) == sorted(SHOWN)
    for name in SHOWN:
        assert (EXAMPLES / name).stat().st_size < 100_000
        with Image.open(EXAMPLES / name) as picture:
            assert picture.format == "JPEG"


@pytest.mark.slow
def test_a_camera_to_home_assistant(tmp_path: Path) -> None:
    """Only the broker's port is another one, since tests run next to each other."""
    shutil.copytree(BALLS, tmp_path / "balls")
    (tmp_path / "camera").mkdir()
    broker = PurePythonBroker()
    broker.start()
    subscriber = Subscriber(broker.port)
    text = (EXAMPLES / "camera" / "cluster.yaml").read_text("utf-8")
    text, replaced = re.subn(
        r"host: localhost.*", f"host: 127.0.0.1\n    port: {broker.port}", text
    )
    assert replaced == 1
    (tmp_path / "camera" / "cluster.yaml").write_text(text)
    launched(["camera", "--input", "balls/balls.mp4"], tmp_path)
    subscriber.catch_up()
    messages = list(zip(subscriber.topics, subscriber.results, strict=True))
    subscriber.end()
    broker.stop()

    entities = [content for topic, content in messages if topic.endswith("/config")]
    assert Counter(topic.split("/")[1] for topic, _ in messages if topic.endswith("/config")) == {
        "sensor": 3,
        "binary_sensor": 3,
    }
    assert {entity["device"]["name"] for entity in entities} == {"Camera"}
    assert {entity["state_topic"] for entity in entities} == {"csdf-edge/camera"}

    results = [content for topic, content in messages if topic == "csdf-edge/camera"]
    assert 10 < len(results) < MAKE.FRAMES, "only changes are published"
    seen = [
        Counter(each["name"] for each in result["predictions"]["objects"]) for result in results
    ]
    assert all(one != next_one for one, next_one in pairwise(seen))
    last = {result["index"]: counts for result, counts in zip(results, seen, strict=True)}
    assert min(last) == 0
    checked, shown = 0, last[0]
    for frame in range(MAKE.FRAMES):
        shown = last.get(frame, shown)  # what Home Assistant shows then
        balls = MAKE.rolling(frame)
        inside = Counter(ball[0] for ball in balls if 20 < ball[1] < MAKE.WIDTH - 20)
        outside = [ball for ball in balls if not -20 < ball[1] < MAKE.WIDTH + 20]
        if inside.total() + len(outside) == len(balls):  # no ball is at the edge
            assert shown == inside
            checked += 1
    assert checked > 10
    kept = sorted((tmp_path / "camera" / "seen").glob("*.jpg"))
    assert len(kept) == len(results)
    picture = EXAMPLES / "camera" / "seen.jpg"
    assert min(difference(picture, path) for path in kept) < ALLOWED


@pytest.mark.slow
def test_counting_the_objects_of_a_video(tmp_path: Path) -> None:
    printed = ran([str(EXAMPLES / "count" / "count.py")], tmp_path)
    balls = Counter(ball[0] for ball in MAKE.rolling(0))
    assert printed == "".join(f"{name}: {number}\n" for name, number in sorted(balls.items()))
    assert difference(EXAMPLES / "count" / "counted.jpg", tmp_path / "counted.jpg") < ALLOWED


@pytest.mark.slow
def test_a_folder_of_pictures_to_csv(tmp_path: Path) -> None:
    output = tmp_path / "found"
    launched([str(EXAMPLES / "csv"), "--output", str(output), "--annotate"], tmp_path)
    table = ran([str(EXAMPLES / "csv" / "to_csv.py"), str(output / "predictions.jsonl")], tmp_path)
    rows = list(csv.DictReader(io.StringIO(table)))
    for number in range(4):
        balls, _, _ = MAKE.still(number)
        found = [row for row in rows if row["picture"] == f"table-{number}.jpg"]
        assert len(found) == len(balls)
        for colour, x, y, radius in balls:
            edges = np.array([x - radius, y - radius, x + radius, y + radius])
            near = [
                row["object"]
                for row in found
                if np.abs(edges - [float(row[key]) for key in list(row)[3:]]).max() < 4
            ]
            assert near == [colour]
    assert len(list((output / "pictures").iterdir())) == 4
    (drawn,) = (output / "pictures").glob("*table-2.jpg")
    assert difference(EXAMPLES / "csv" / "found.jpg", drawn) < ALLOWED


@pytest.mark.parametrize("given", [[], ["."], ["none.jsonl"]])
def test_the_table_s_script_says_its_usage(given: list[str], tmp_path: Path) -> None:
    command = [sys.executable, str(EXAMPLES / "csv" / "to_csv.py"), *given]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr.startswith("usage: to_csv.py PREDICTIONS.JSONL")


def test_a_picture_without_objects_has_a_row(tmp_path: Path) -> None:
    (tmp_path / "predictions.jsonl").write_text(
        '{"index": 0, "name": "empty.jpg", "predictions": {"kind": "detect", "objects": []}}\n'
    )
    table = ran([str(EXAMPLES / "csv" / "to_csv.py"), "predictions.jsonl"], tmp_path)
    assert table.splitlines()[1:] == ["empty.jpg,,,,,,"]


@pytest.mark.slow
def test_a_client_of_triton(tmp_path: Path) -> None:
    pytest.importorskip("tritonclient.http", reason="needs the extra dev")
    serving = Serving(target=EXAMPLES / "triton")
    client = str(EXAMPLES / "triton" / "client.py")
    printed = ran([client, "--server", serving.http], tmp_path)
    assert serving.end() == 0
    first, *found = printed.splitlines()
    assert re.fullmatch(
        r"tensor \(1, 3, 160, 160\): output \(1, 7, 400\), best score [01]\.\d+", first
    )
    balls, _, _ = MAKE.still(3)
    assert Counter(line.split()[0] for line in found) == Counter(ball[0] for ball in balls)
    assert difference(EXAMPLES / "triton" / "found.jpg", tmp_path / "found.jpg") < ALLOWED
