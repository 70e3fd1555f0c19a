"""`launch` on a source, as users run it: videos, standard input, signals, lost agents."""

from __future__ import annotations

import io
import json
import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.csdf_edge.test_live import agents_of
from tests.launcher.test_end_to_end import MARK, Launcher
from tests.sources.media import free_port, serving

pytestmark = pytest.mark.slow

WAIT_S = 60.0
FRAMES = 40
RATE = 12
SIZE = 16


def write_brightness(path: Path) -> None:
    """A network of three layers whose output is three times the mean of an image's channels."""
    kernel = numpy_helper.from_array(np.eye(3, dtype=np.float32).reshape(3, 3, 1, 1), "kernel")
    three = numpy_helper.from_array(np.array([3.0], np.float32), "three")
    nodes = [
        helper.make_node("Conv", ["image", "kernel"], ["copied"], "copy"),
        helper.make_node("Mul", ["copied", "three"], ["scaled"], "scale"),
        helper.make_node("GlobalAveragePool", ["scaled"], ["mean"], "pool"),
    ]
    image = helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, 3, SIZE, SIZE])
    mean = helper.make_tensor_value_info("mean", TensorProto.FLOAT, [1, 3, 1, 1])
    graph = helper.make_graph(nodes, "brightness", [image], [mean], [kernel, three])
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), path
    )


def brightness(number: int) -> int:
    return 40 + 5 * (number % FRAMES)


def write_video(path: Path) -> None:
    """A video whose frames are uniform and ever brighter."""
    with av.open(path, "w") as container:
        stream = container.add_stream("ffv1", rate=Fraction(RATE))
        stream.width, stream.height, stream.pix_fmt = 64, 48, "yuv420p"
        for number in range(FRAMES):
            picture = np.full((48, 64, 3), brightness(number), np.uint8)
            container.mux(stream.encode(av.VideoFrame.from_ndarray(picture, "rgb24")))
        container.mux(stream.encode(None))


@pytest.fixture
def launcher(tmp_path: Path) -> Iterator[Launcher]:
    write_brightness(tmp_path / "brightness.onnx")
    write_video(tmp_path / "video.mkv")
    (tmp_path / "cluster.yaml").write_text(
        "model: brightness.onnx\ntask: none\nstrategy: sequential\nnodes: [{name: a}, {name: b}]\n"
        "input: {source: video.mkv, scale: 1, mean: 0, std: 1}\n"
        "sinks:\n  - {kind: json-lines, path: results.jsonl}\n"
    )
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    found = Launcher(
        tmp_path,
        {
            **os.environ,
            MARK: secrets.token_hex(8),
            "PYTHONPATH": str(Path(__file__).parents[2]),
            "TMPDIR": str(temporary),
        },
    )
    yield found
    assert found.left_behind() == []


def change(launcher: Launcher, old: str, new: str) -> None:
    path = launcher.folder / "cluster.yaml"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def check(results: list[dict[str, Any]], *, is_video: bool = True) -> None:
    """Raises unless these are the results of the first frames, in order."""
    assert [result["index"] for result in results] == list(range(len(results)))
    for result in results:
        number = result["index"]
        if is_video:
            assert result["media_s"] == pytest.approx(number / RATE, abs=1e-3)
        mean = np.array(result["outputs"]["mean"]["data"])
        assert mean * 255 / 3 == pytest.approx([brightness(number)] * 3, abs=3)


def test_every_frame_of_a_video_becomes_a_line_with_its_time(launcher: Launcher) -> None:
    report = launcher.json("cluster.yaml")
    results = lines((launcher.folder / "results.jsonl").read_text())
    assert len(results) == FRAMES
    check(results)
    assert (report["read"], report["dropped"], report["results"]) == (FRAMES, 0, FRAMES)
    (sink,) = report["sinks"]
    assert (sink["given"], sink["delivered"], sink["not_delivered"]) == (FRAMES, FRAMES, 0)
    assert "video.mkv" in report["input"]
    assert report["signal"] is None
    assert 0 < report["latency"]["median_s"] <= report["latency"]["percentile_99_s"]


def test_a_video_continues_where_it_was_and_its_results_are_compared(launcher: Launcher) -> None:
    change(launcher, "task: none\n", "task: none\njournal: {folder: kept, keep: 10MB}\n")
    launcher.json("cluster.yaml", "--frames", "10")
    change(launcher, "task: none\n", "task: none\nverify_every: 7\n")
    report = launcher.json("cluster.yaml", "--resume", "--output", "out")
    check(lines((launcher.folder / "results.jsonl").read_text()))
    assert (report["read"], report["frames"], report["journal"]["resumed"]) == (30, 30, 10)
    assert (report["agrees"], report["compared"]) == (True, 4)
    assert len(list((launcher.folder / "out").glob("*.npy"))) == FRAMES


def test_results_go_to_standard_output_and_the_report_does_not(launcher: Launcher) -> None:
    change(launcher, "{kind: json-lines, path: results.jsonl}", "{kind: stdout}")
    code, out, err = launcher.run("cluster.yaml", "--frames", "10")
    assert code == 0, err
    assert len(lines(out)) == 10
    check(lines(out))
    assert "10 frames in" in err
    assert "standard output: 10 of 10 results delivered" in err
    code, out, err = launcher.run("cluster.yaml", "--json")
    assert code == 2
    assert "--json" in err


def test_a_node_that_is_killed_costs_no_result_of_a_stream_from_a_pipe(launcher: Launcher) -> None:
    change(launcher, "{source: video.mkv, scale: 1, mean: 0, std: 1}", "'-'")
    change(launcher, "{kind: json-lines, path: results.jsonl}", "{kind: stdout}")
    results = []
    with started(launcher) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for number in range(120):
            process.stdin.write(array(number))
            process.stdin.flush()
            if number == 60:
                os.kill(agents_of(process.pid)[0], signal.SIGKILL)
            if number % 2:
                results.append(json.loads(process.stdout.readline()))
        process.stdin.close()
        results += lines(process.stdout.read().decode())
        assert process.wait(WAIT_S) == 0
    assert len(results) == 120
    check(results, is_video=False)


def test_what_was_read_before_an_error_of_the_source_is_delivered(launcher: Launcher) -> None:
    change(launcher, "{source: video.mkv, scale: 1, mean: 0, std: 1}", "'-'")
    with started(launcher) as process:
        assert process.stdin is not None
        for index in range(10):
            process.stdin.write(array(index))
        process.stdin.write(b"garbage")
        process.stdin.close()
        assert process.wait(WAIT_S) == 1
    results = lines((launcher.folder / "results.jsonl").read_text())
    assert len(results) == 10
    check(results, is_video=False)


def test_ctrl_c_ends_an_endless_stream_in_good_order(launcher: Launcher) -> None:
    change(launcher, "{source: video.mkv, scale: 1, mean: 0, std: 1}", "'-'")
    path = launcher.folder / "results.jsonl"
    with started(launcher, "--json") as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for index in range(20):
            process.stdin.write(array(index))
        process.stdin.flush()
        while not path.exists() or len(path.read_text().splitlines()) < 20:
            os.sched_yield()
        process.send_signal(signal.SIGINT)
        report = json.loads(process.stdout.read())
        assert process.wait(WAIT_S) == 0
    assert report["signal"] == signal.SIGINT
    assert report["results"] == 20
    check(lines(path.read_text()), is_video=False)


def test_a_reader_that_leaves_standard_output_ends_the_stream(launcher: Launcher) -> None:
    change(launcher, "{source: video.mkv, scale: 1, mean: 0, std: 1}", "'-'")
    change(launcher, "{kind: json-lines, path: results.jsonl}", "{kind: stdout}")
    with started(launcher) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(array(0))
        process.stdin.flush()
        assert process.stdout.readline()
        process.stdout.close()
        process.stdin.write(array(1))
        process.stdin.flush()
        assert process.wait(WAIT_S) == 1


def test_a_source_that_is_killed_and_comes_back_is_streamed_on_and_its_gap_is_counted(
    launcher: Launcher,
) -> None:
    port = free_port()
    change(launcher, "video.mkv", f"'tcp://127.0.0.1:{port}'")
    change(launcher, "{kind: json-lines, path: results.jsonl}", "{kind: stdout}")
    with serving(port):
        process = started(launcher, stderr=subprocess.PIPE)
        assert process.stdout is not None
        before = [json.loads(process.stdout.readline()) for _ in range(10)]
    with process, serving(port):
        # What was under way when the connection broke comes first.
        after = [json.loads(process.stdout.readline()) for _ in range(100)]
        process.send_signal(signal.SIGINT)
        rest, said = process.communicate(timeout=WAIT_S)
        assert process.returncode == 0
    indices = [result["index"] for result in (*before, *after, *lines(rest.decode()))]
    assert indices == sorted(set(indices))
    assert "connecting again" in said.decode()
    assert "the source was lost once, for " in said.decode()


def test_a_video_that_is_none_is_the_user_s_mistake(launcher: Launcher) -> None:
    (launcher.folder / "video.mkv").write_bytes(b"not a video" * 100)
    code, out, err = launcher.run("cluster.yaml", "--json")
    assert code == 2
    assert "video.mkv" in json.loads(out)["error"]
    assert err.splitlines()[-1].startswith("launch: ")


def started(
    launcher: Launcher, *arguments: str, stderr: int = subprocess.DEVNULL
) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "launcher.commands.launch", "cluster.yaml", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=stderr,
        cwd=launcher.folder,
        env=launcher.environment,
    )


def array(number: int) -> bytes:
    """A frame as standard input carries it."""
    file = io.BytesIO()
    np.save(file, np.full((1, 3, SIZE, SIZE), brightness(number) / 255, np.float32))
    return file.getvalue()
