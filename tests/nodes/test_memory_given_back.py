"""After undeploying, an agent holds what it held before, whatever ran on it.

A real agent process, by the kernel's count: resident memory, and the part of it that no file backs.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from csdf_edge.testing import executor_models as models
from nodes.protocol.messages import Bye, Deployed, Failed, Start
from tests.arm64.marks import not_in_qemu
from tests.nodes.deploying import Host, Launcher, Line, line
from tests.nodes.speaker import AgentProcess

MOST_OF_IDLE = 1.2
SOON_S = 10.0
ROUNDS = 3
SIDE = 512
PLANE_BYTES = 4 * SIDE * SIDE
MEGABYTE = 10**6


def widening(size_bytes: int, y: str = "y") -> onnx.ModelProto:
    """x → size_bytes of activations → y, of which the first is the first large tensor of all."""
    width = size_bytes // PLANE_BYTES
    plane = (TensorProto.FLOAT, [1, 1, SIDE, SIDE])
    return models.model(
        "widening",
        [
            helper.make_node("Conv", ["x", "w"], ["a"]),
            helper.make_node("Relu", ["a"], ["b"]),
            helper.make_node("Conv", ["b", "v"], [y]),
        ],
        [("x", *plane)],
        [(y, *plane)],
        {"w": np.ones((width, 1, 1, 1), np.float32), "v": np.ones((1, width, 1, 1), np.float32)},
    )


def passing(size_bytes: int) -> onnx.ModelProto:
    """A tensor of this size comes and goes."""
    tensor = (TensorProto.FLOAT, [size_bytes // 4])
    return models.model(
        "passing", [helper.make_node("Neg", ["x"], ["y"])], [("x", *tensor)], [("y", *tensor)]
    )


def heavy(size_bytes: int) -> onnx.ModelProto:
    """Weights of this size."""
    rows = size_bytes // (4 * 1000)
    return models.model(
        "heavy",
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        [("x", TensorProto.FLOAT, [1, rows])],
        [("y", TensorProto.FLOAT, [1, 1000])],
        {"w": np.ones((rows, 1000), np.float32)},
    )


def bursting(size_bytes: int, x: str = "x") -> onnx.ModelProto:
    """A small file that asks for so many bytes while it runs."""
    shape = np.array([size_bytes // 4_000_000, 1000, 1000], np.int64)
    return models.model(
        "bursting",
        [
            helper.make_node("ReduceMax", [x], ["least"], keepdims=0),
            helper.make_node("Expand", ["least", "shape"], ["a"]),
            helper.make_node("ReduceMax", ["a"], ["y"], keepdims=0),
        ],
        [(x, TensorProto.FLOAT, [1, 1, SIDE, SIDE])],
        [("y", TensorProto.FLOAT, [])],
        {"shape": shape},
    )


def link(number: int) -> onnx.ModelProto:
    """One of many small networks in a line, with its own weights."""
    tensor = (TensorProto.FLOAT, [1, 16, 32, 32])
    x, y = f"t{number}", f"t{number + 1}"
    return models.model(
        f"link{number}",
        [helper.make_node("Conv", [x, "w"], [y], pads=[1] * 4)],
        [(x, *tensor)],
        [(y, *tensor)],
        {"w": models.normal(number, 16, 16, 3, 3)},
    )


def claiming(size_bytes: int) -> tuple[onnx.ModelProto, onnx.ModelProto]:
    """A tensor of so many bytes between two phases."""
    large = [size_bytes // 4_000_000, 1000, 1000]
    return (
        models.model(
            "claiming",
            [helper.make_node("Expand", ["x", "shape"], ["a"])],
            [("x", TensorProto.FLOAT, [1])],
            [("a", TensorProto.FLOAT, large)],
            {"shape": np.array(large, np.int64)},
        ),
        models.model(
            "taking",
            [helper.make_node("ReduceMax", ["a"], ["y"], keepdims=0)],
            [("a", TensorProto.FLOAT, large)],
            [("y", TensorProto.FLOAT, [])],
        ),
    )


@pytest.fixture
def agent(start: Callable[..., AgentProcess]) -> AgentProcess:
    return start("--name", "a")


@pytest.fixture
def launcher(agent: AgentProcess, dial: Callable[..., Launcher]) -> Launcher:
    launcher = dial(agent.control)
    launcher.open_session(lease_s=600.0)
    return launcher


def held(launcher: Launcher) -> tuple[int, int]:
    """Bytes that the agent holds, without program pages, and those of them that no file backs."""
    stats = launcher.stats()
    return stats.rss_bytes, stats.anonymous_bytes


def is_more(now: tuple[int, int], idle: tuple[int, int]) -> list[bool]:
    """Which of both is more than it may be."""
    return [size > MOST_OF_IDLE * before for size, before in zip(now, idle, strict=True)]


def assert_given_back(launcher: Launcher, run: Callable[[int], None], least_bytes: int = 0) -> None:
    """`run(epoch)` deploys something, which shall hold `least_bytes` at its peak; three times."""
    idle = held(launcher)
    for epoch in range(1, ROUNDS + 1):
        run(epoch)
        launcher.stop(epoch)
        assert launcher.stats().rss_peak_bytes > least_bytes
        until_s = time.monotonic() + SOON_S
        while any(is_more(now := held(launcher), idle)) and time.monotonic() < until_s:
            pass
        assert not any(is_more(now, idle)), (
            f"round {epoch}: {[size / 1e6 for size in now]} MB resident and anonymous, "
            f"idle {[size / 1e6 for size in idle]} MB"
        )
    launcher.say(Bye())


SLOW = pytest.mark.slow
FURTHER = (pytest.mark.slow, pytest.mark.further)


def widened(megabytes: int) -> Callable[[], list[onnx.ModelProto]]:
    return lambda: [widening(megabytes * MEGABYTE)]


@not_in_qemu
@pytest.mark.parametrize(
    ("make", "threads", "least_megabytes"),
    [
        *(
            pytest.param(widened(size), 1, size, marks=marks, id=f"{size} MB")
            for size, marks in ((2, ()), (40, ()), (20, FURTHER), (200, SLOW), (600, FURTHER))
        ),
        pytest.param(
            lambda: list(map(link, range(40))), 2, 0, marks=SLOW, id="many phases, two threads"
        ),
        pytest.param(lambda: [heavy(100 * MEGABYTE)], 1, 100, marks=SLOW, id="weights"),
    ],
)
def test_of_a_network(
    launcher: Launcher,
    tmp_path: Path,
    make: Callable[[], list[onnx.ModelProto]],
    threads: int,
    least_megabytes: int,
) -> None:
    """Of activations whose first is large, of many phases, and of weights."""
    network = line(tmp_path / "model", *make())
    launcher.upload(network.blobs)

    def run(epoch: int) -> None:
        deployment = dataclasses.replace(network.deployment(epoch), threads=threads)
        assert isinstance(launcher.deploy(deployment), Deployed)

    assert_given_back(launcher, run, least_megabytes * MEGABYTE)


@not_in_qemu
def test_the_peak_is_that_of_the_present_deployment(launcher: Launcher, tmp_path: Path) -> None:
    """In an agent that has given up its files, too."""
    large = line(tmp_path / "large", widening(150 * MEGABYTE))
    small = line(tmp_path / "small", link(0))
    peaks = []
    for epoch, network in enumerate((large, small, large), start=1):
        launcher.upload(network.blobs)
        assert isinstance(launcher.deploy(network.deployment(epoch)), Deployed)
        peaks.append(launcher.stats().rss_peak_bytes)
        launcher.stop(epoch)
    assert peaks[0] > 150 * MEGABYTE
    assert peaks[1] < 75 * MEGABYTE
    assert peaks[2] > 150 * MEGABYTE


@pytest.mark.slow
@pytest.mark.parametrize(("megabytes", "frames"), [(4, 40), (48, 6)])
def test_of_frames_that_stream(
    agent: AgentProcess,
    launcher: Launcher,
    dial: Callable[..., Host],
    tmp_path: Path,
    megabytes: int,
    frames: int,
) -> None:
    """In the heap and, larger than what that takes, beside it."""
    network = line(tmp_path / "model", passing(megabytes * MEGABYTE))
    launcher.upload(network.blobs)

    def run(epoch: int) -> None:
        assert isinstance(launcher.deploy(network.deployment(epoch)), Deployed)
        launcher.say(Start(epoch))
        host = dial(agent.data, Host)
        host.stream(network, epoch, frames)
        host.close()

    assert_given_back(launcher, run, 2 * megabytes * MEGABYTE)


def refused(launcher: Launcher, network: Line, epoch: int) -> str:
    answer = launcher.deploy(network.deployment(epoch))
    assert isinstance(answer, Failed)
    return answer.reason


@pytest.mark.parametrize(
    "before", [pytest.param([widening(200 * MEGABYTE, y="m")], marks=SLOW), []]
)
def test_of_a_deployment_of_which_a_tensor_is_too_large(
    launcher: Launcher, tmp_path: Path, before: list[onnx.ModelProto]
) -> None:
    """A later one or the first."""
    network = line(tmp_path / "model", *before, bursting(10**14, x="m"))
    launcher.upload(network.blobs)

    def run(epoch: int) -> None:
        assert "subnet bursting: " in refused(launcher, network, epoch)

    assert_given_back(launcher, run)


def test_of_a_plan_with_a_tensor_that_nobody_has_room_for(
    launcher: Launcher, tmp_path: Path
) -> None:
    """Refused before any is made up to warm up with."""
    network = line(tmp_path / "model", *claiming(10**11))
    launcher.upload(network.blobs)

    def run(epoch: int) -> None:
        before = launcher.stats().rss_peak_bytes
        assert "has frames of 100000000000 bytes" in refused(launcher, network, epoch)
        assert launcher.stats().rss_peak_bytes < before + 20 * MEGABYTE

    assert_given_back(launcher, run)
