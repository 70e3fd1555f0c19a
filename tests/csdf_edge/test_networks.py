"""Two networks on the same nodes by `csdf_edge.open`: each has its own stream."""

from __future__ import annotations

import itertools
import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

import csdf_edge
from csdf_edge import FullError, LauncherError, LiveCluster
from tests.csdf_edge.test_live import agents_of
from tests.launcher.models import DIGITS, write_branches

pytestmark = pytest.mark.slow

WAIT_S = 60.0

Frame = dict[str, np.ndarray]


@contextmanager
def two(folder: Path, first: str, rest: str, most: int = 64) -> Iterator[LiveCluster]:
    """A cluster of the network in the file `first` and of the digits network, called `numbers`."""
    config = folder / "cluster.yaml"
    config.write_text(
        f"model: [{first}, {{path: {DIGITS / 'digits.onnx'}, name: numbers}}]\n"
        "nodes: [{name: a}, {name: b}, {name: c}]\n" + rest
    )
    with csdf_edge.open(config, most_in_flight=most) as cluster:
        yield cluster


def digits() -> list[tuple[Frame, np.ndarray]]:
    """Frames of the digits network, and what it makes of each."""
    session = ort.InferenceSession(DIGITS / "digits.onnx", providers=["CPUExecutionProvider"])
    frames = [{"image": image[None]} for image in np.load(DIGITS / "test_images.npy")[:60]]
    return [(frame, session.run(None, frame)[0]) for frame in frames]


def branches(file: Path, count: int) -> list[tuple[Frame, np.ndarray]]:
    """Frames of the network of two branches, and what it makes of each."""
    session = ort.InferenceSession(file, providers=["CPUExecutionProvider"])
    generator = np.random.default_rng(3)
    shapes = {one.name: one.shape for one in session.get_inputs()}
    frames = [
        {
            name: generator.standard_normal(shape).astype(np.float32)
            for name, shape in shapes.items()
        }
        for _ in range(count)
    ]
    return [(frame, session.run(["score"], frame)[0]) for frame in frames]


def write(file: Path, nodes: list[onnx.NodeProto], shape: list[int], **weights: np.ndarray) -> None:
    """A network of these nodes from `x` to `y`, both of one shape."""
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in "xy"]
    held = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    graph = helper.make_graph(nodes, "net", ends[:1], ends[1:], held)
    opset = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=8), file)


SLOW_SHAPE = (1, 64, 112, 112)


def write_slow(file: Path) -> None:
    """A network that takes some tenths of a second for a frame of `SLOW_SHAPE`."""
    weights = np.random.default_rng(0).standard_normal((64, 64, 3, 3)).astype(np.float32) / 24
    names = ["x", *(f"t{i}" for i in range(7)), "y"]
    nodes = [
        helper.make_node("Conv", [read, "w"], [made], made, pads=[1, 1, 1, 1])
        for read, made in itertools.pairwise(names)
    ]
    write(file, nodes, list(SLOW_SHAPE), w=weights)


def check(found: np.ndarray, wanted: np.ndarray) -> None:
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("strategy", ["batch-split", "horizontal"])
def test_each_network_gets_its_own_results_however_layers_are_divided(
    tmp_path: Path, strategy: str
) -> None:
    file = tmp_path / "branches.onnx"
    write_branches(file)
    with two(tmp_path, file.name, f"strategy: {strategy}\n") as cluster:
        check_both(cluster, file)


def check_both(cluster: LiveCluster, file: Path) -> None:
    """Raises unless each network has its own results, with and without the other's frames."""
    numbers, other = cluster.model("numbers"), cluster.model("branches")
    for frame, wanted in digits()[:7]:  # no frame of the other network is needed
        check(numbers.infer(frame, timeout_s=WAIT_S)["probabilities"], wanted)

    def ask_numbers() -> None:
        for frame, wanted in digits():
            check(numbers.infer(frame, timeout_s=WAIT_S)["probabilities"], wanted)

    def ask_other() -> None:
        known = branches(file, 40)
        results = other.stream((frame for frame, _ in known), in_flight=6)
        for result, (_, wanted) in zip(results, known, strict=True):
            check(result["score"], wanted)

    with ThreadPoolExecutor(4) as threads:
        for asked in [threads.submit(ask) for ask in (ask_numbers, ask_numbers, ask_other)]:
            asked.result(WAIT_S)


def check_names(cluster: LiveCluster) -> None:
    """Raises unless each network is found by its name, and its tensors by theirs."""
    assert cluster.models == ("branches", "numbers")
    assert list(cluster.model("branches").inputs) == ["image", "shift"]
    with pytest.raises(LauncherError, match=r"2 networks; take one .*: branches, numbers"):
        cluster.infer(digits()[0][0])
    with pytest.raises(LauncherError, match="no network 'digits'; there are branches, numbers"):
        cluster.model("digits")
    with pytest.raises(LauncherError, match="no input 'branches/image'; its inputs are image"):
        cluster.model("branches").infer({"branches/image": 0})


def test_no_network_loses_a_frame_when_a_node_is_killed(tmp_path: Path) -> None:
    file = tmp_path / "branches.onnx"
    write_branches(file)
    numbers, others = digits(), branches(file, 60)
    with two(tmp_path, file.name, "strategy: sequential\n") as cluster:
        check_names(cluster)
        one, other = cluster.model("numbers"), cluster.model("branches")
        first = [one.submit(frame) for frame, _ in numbers]
        os.kill(agents_of(os.getpid())[1], signal.SIGKILL)
        second = [other.submit(frame) for frame, _ in others]
        for future, (_, wanted) in zip(first, numbers, strict=True):
            check(future.result(WAIT_S)["probabilities"], wanted)
        for future, (_, wanted) in zip(second, others, strict=True):
            check(future.result(WAIT_S)["score"], wanted)


def test_a_slow_network_neither_holds_up_another_nor_takes_its_places(tmp_path: Path) -> None:
    write_slow(tmp_path / "slow.onnx")
    pins = "pins: {'slow/*': a, 'numbers/*': b}\nstrategy: sequential\n"
    with two(tmp_path, "slow.onnx", pins, most=4) as cluster:
        slow, numbers = cluster.model("slow"), cluster.model("numbers")
        under_way = [slow.submit({"x": np.zeros(SLOW_SHAPE, np.float32)}) for _ in range(4)]
        with pytest.raises(FullError):
            slow.submit({"x": np.zeros(SLOW_SHAPE, np.float32)}, block=False)
        known = digits()[:8]  # twice as many as there are places
        results = numbers.stream((frame for frame, _ in known), in_flight=4)
        for result, (_, wanted) in zip(results, known, strict=True):
            check(result["probabilities"], wanted)
        assert not under_way[-1].done()


def test_numbers_that_one_network_cannot_compute_give_no_wrong_result_of_another(
    tmp_path: Path,
) -> None:
    """NaN fails a phase, and with it the node; without recovery that ends the cluster."""
    write(tmp_path / "log.onnx", [helper.make_node("Log", ["x"], ["y"], "log")], [1, 4])
    rest = "strategy: sequential\ncheck: phases\nrecovery: false\n"
    known = digits()
    results: list[np.ndarray | None] = []

    def ask_both(cluster: LiveCluster) -> None:
        log, numbers = cluster.model("log"), cluster.model("numbers")
        assert log.infer({"x": np.ones((1, 4), np.float32)})["y"].tolist() == [[0.0] * 4]
        futures = [numbers.submit(frame) for frame, _ in known]
        failed = log.submit({"x": -np.ones((1, 4), np.float32)})
        for future in futures:
            is_there = future.exception(WAIT_S) is None
            results.append(future.result()["probabilities"] if is_there else None)
        failed.result(WAIT_S)

    with pytest.raises(LauncherError, match="NaN"), two(tmp_path, "log.onnx", rest) as cluster:
        ask_both(cluster)
    assert len(results) == len(known)
    for result, (_, wanted) in zip(results, known, strict=True):
        if result is not None:
            check(result, wanted)
