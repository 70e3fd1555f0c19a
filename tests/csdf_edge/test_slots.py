"""Two boards, real daemons with two slots each: several clusters stream over them at the same time.

The two clusters have different networks, and each is compared with its own whole model.
"""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np
import onnxruntime as ort
import pytest

import csdf_edge
from csdf_edge import LauncherError, LiveCluster
from tests.launcher_runtime.clusters import SHAPE, write_network
from tests.nodes.speaker import AgentProcess

pytestmark = pytest.mark.slow

DIGITS = Path(__file__).parents[2] / "examples" / "digits"
BOARDS = ("left", "right")

Frame = dict[str, np.ndarray]


@contextmanager
def boards(cache: Path, *arguments: str) -> Iterator[dict[str, AgentProcess]]:
    """`node-agent --slots 2` for each board, on free ports of this machine."""
    with ExitStack() as stack:
        found = {}
        for name in BOARDS:
            found[name] = AgentProcess(cache / name, "--name", name, "--slots", "2", *arguments)
            stack.callback(found[name].end)
        yield found


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("slots")


@pytest.fixture(scope="module")
def running(place: Path) -> Iterator[dict[str, AgentProcess]]:
    with boards(place) as found:
        yield found


def cluster_file(place: Path, name: str, model: Path, running: dict[str, AgentProcess]) -> Path:
    """A cluster over all boards, with what a test of seconds needs."""
    nodes = "".join(
        f"  - {{name: {board}, address: '{agent.control}', slots: 2}}\n"
        for board, agent in running.items()
    )
    file = place / f"{name}.yaml"
    file.write_text(f"model: {model}\nnodes:\n{nodes}strategy: sequential\nseed: 7\n")
    return file


@pytest.fixture(scope="module")
def digits(place: Path, running: dict[str, AgentProcess]) -> Path:
    return cluster_file(place, "digits", DIGITS / "digits.onnx", running)


@pytest.fixture(scope="module")
def small(place: Path, running: dict[str, AgentProcess]) -> Path:
    return cluster_file(place, "small", write_network(place / "small.onnx"), running)


def digit_frames() -> list[Frame]:
    return [{"image": image[None]} for image in np.load(DIGITS / "test_images.npy")[:24]]


def noise(count: int = 24) -> list[Frame]:
    random = np.random.default_rng(3)
    return [{"image": random.standard_normal(SHAPE, np.float32)} for _ in range(count)]


def check(model: Path, frames: list[Frame], results: list[Frame]) -> None:
    """Raises unless these are the whole model's results."""
    session = ort.InferenceSession(model, providers=["CPUExecutionProvider"])
    assert len(results) == len(frames)
    for frame, result in zip(frames, results, strict=True):
        for name, wanted in zip(result, session.run(list(result), frame), strict=True):
            np.testing.assert_allclose(result[name], wanted, rtol=1e-4, atol=1e-5)


def processes(board: AgentProcess) -> dict[int, int]:
    """The process ids of the agents in a board's slots, by slot."""
    children = Path(f"/proc/{board.pid}/task/{board.pid}/children").read_text().split()
    lines = {int(child): Path(f"/proc/{child}/cmdline").read_text() for child in children}
    return {int(re.findall(r"--name\0[a-z]+/(\d)\0", line)[-1]): pid for pid, line in lines.items()}


def check_beside(one: LiveCluster, other: LiveCluster, place: Path) -> None:
    """Stream through both in turn, a frame of each at a time."""
    frames, others = digit_frames(), noise()
    pairs = list(zip(one.stream(frames), other.stream(others), strict=True))
    check(DIGITS / "digits.onnx", frames, [result for result, _ in pairs])
    check(place / "small.onnx", others, [result for _, result in pairs])


def test_two_clusters_stream_at_the_same_time_and_one_continues_when_the_other_closes(
    digits: Path, small: Path, place: Path, running: dict[str, AgentProcess]
) -> None:
    with csdf_edge.open(digits) as one:
        with csdf_edge.open(small) as other:
            assert all(processes(board).keys() == {1, 2} for board in running.values())
            check_beside(one, other, place)
        frames = digit_frames()
        check(DIGITS / "digits.onnx", frames, list(one.stream(frames)))
        with csdf_edge.open(small) as again:  # the slots are free again
            check_beside(one, again, place)


def test_a_third_cluster_is_refused_because_all_slots_are_taken(digits: Path, small: Path) -> None:
    impatient = digits.with_name("impatient.yaml")
    impatient.write_text(digits.read_text() + "run: {start_wait_s: 1}\n")
    with csdf_edge.open(digits), csdf_edge.open(small), pytest.raises(LauncherError) as refused:
        csdf_edge.open(impatient)
    said = str(refused.value)
    assert re.search(r"node '(left|right)' at \S+ refused: all of its 2 slots are taken", said)
    assert "launcher" in said
    assert "--slots" in said


def test_the_end_of_one_process_is_noticed_by_its_own_run_only(
    digits: Path, small: Path, place: Path, running: dict[str, AgentProcess]
) -> None:
    with csdf_edge.open(digits) as one, csdf_edge.open(small) as other:
        before = processes(running["right"])
        frames = noise(200)
        stream = other.stream(frames)
        results = [next(stream)]
        os.kill(before[2], signal.SIGKILL)
        results += list(stream)
        check(place / "small.onnx", frames, results)
        check(DIGITS / "digits.onnx", digit_frames(), list(one.stream(digit_frames())))
        assert processes(running["right"])[1] == before[1]
