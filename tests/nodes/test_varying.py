"""Results whose shape is another in every frame, from the engine to the wire."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from nodes.core import events as ev
from nodes.core.actions import Fire, SendData
from nodes.core.dataplane import DataPlane
from nodes.core.deployment import MAX_VARYING_BYTES, DeploymentError, check
from nodes.execution.worker import Worker
from nodes.executors.base import LoadedSubnet, LoadOptions
from nodes.executors.onnx.runtime import OnnxRuntimeExecutor
from nodes.protocol.messages import (
    HOST,
    Attach,
    BlobInfo,
    ChannelSpec,
    Credit,
    Deployed,
    Deployment,
    PeerSpec,
    PhaseSpec,
    Progress,
    TensorHeader,
)

WAIT_S = 60.0
BLOB = BlobInfo("a" * 64, 1)
INWARD = ChannelSpec(0, "x", "float32", (2, 3), HOST, None, "n", (0,), 2)
OUTWARD = ChannelSpec(1, "z", "int64", (2, 6), "n", 0, HOST, (), 2, varies=True)
DEPLOYMENT = Deployment(
    7, "n", "pipelined", (PhaseSpec("p", BLOB, None, ("x",), ("z",)),), (INWARD, OUTWARD), ()
)


def places(folder: Path, *more: onnx.NodeProto) -> Path:
    """A subnet that gives the places of what is not zero; the second output is static."""
    nodes = [helper.make_node("NonZero", ["x"], ["z"]), helper.make_node("Neg", ["x"], ["y"])]
    made = [
        helper.make_tensor_value_info("z", TensorProto.INT64, None),
        helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 3]),
    ]
    graph = helper.make_graph(
        [*nodes, *more], "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3])], made
    )
    opset = [helper.make_opsetid("", 17)]
    path = folder / "graph"
    path.write_bytes(
        helper.make_model(graph, opset_imports=opset, ir_version=8).SerializeToString()
    )
    return path


def some(count: int) -> np.ndarray:
    array = np.zeros(6, np.float32)
    array[:count] = 1
    return array.reshape(2, 3)


@pytest.fixture
def executor(tmp_path: Path) -> Iterator[OnnxRuntimeExecutor]:
    made = OnnxRuntimeExecutor(tmp_path / "cache")
    yield made
    made.close()


def test_each_run_gives_as_much_as_it_finds_and_no_later_one_changes_it(
    executor: OnnxRuntimeExecutor, tmp_path: Path
) -> None:
    subnet: LoadedSubnet = executor.load(places(tmp_path), LoadOptions())
    assert list(subnet.outputs) == ["z", "y"]
    assert [spec.varies for spec in subnet.outputs.values()] == [True, False]
    found = [subnet.run({"x": some(count)}) for count in (0, 6, 2)]
    subnet.close()
    for count, outputs in zip((0, 6, 2), found, strict=True):
        np.testing.assert_array_equal(outputs["z"], np.nonzero(some(count)))
        assert outputs["z"].flags.c_contiguous
        np.testing.assert_array_equal(outputs["y"], -some(count))


def fired(worker: Worker, reported: SimpleQueue[ev.Event], frame: int, array: np.ndarray):
    worker.fire(Fire(7, 0, frame, {"x": array.tobytes()}))
    return reported.get(timeout=WAIT_S)


def test_a_worker_tells_the_shape_that_a_result_has(
    executor: OnnxRuntimeExecutor, tmp_path: Path
) -> None:
    reported: SimpleQueue[ev.Event] = SimpleQueue()
    worker = Worker(executor, reported.put)
    worker.load(DEPLOYMENT, (places(tmp_path),))
    while isinstance(event := reported.get(timeout=WAIT_S), Progress):
        pass
    assert isinstance(event, Deployed)
    for frame, count in enumerate((0, 1, 6)):
        ended = fired(worker, reported, frame, some(count))
        assert ended.shapes == {"z": (2, count)}
        assert bytes(ended.outputs["z"]) == np.array(np.nonzero(some(count))).tobytes()
    assert worker.stop(WAIT_S)


class Much:
    """A subnet that makes more than may be sent, or numbers in another byte order."""

    def __init__(self, subnet: LoadedSubnet) -> None:
        self.inputs, self.outputs, self.close = subnet.inputs, subnet.outputs, subnet.close
        self.is_much, self.dtype = False, "int64"

    def run(self, inputs):
        return {"z": np.zeros((2, MAX_VARYING_BYTES // 16 + self.is_much), self.dtype)}


@pytest.mark.parametrize(
    ("is_much", "dtype", "why"),
    [
        (True, "int64", "at most 64 MiB: make the network select fewer"),
        (False, np.dtype("int64").newbyteorder("S"), "instead of int64"),
    ],
)
def test_a_result_that_does_not_fit_ends_its_firing_in_a_sentence(
    executor: OnnxRuntimeExecutor,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    is_much: bool,
    dtype: str,
    why: str,
) -> None:
    much = Much(executor.load(places(tmp_path), LoadOptions()))
    monkeypatch.setattr(executor, "load", lambda *_: much)
    reported: SimpleQueue[ev.Event] = SimpleQueue()
    worker = Worker(executor, reported.put)
    worker.load(DEPLOYMENT, (places(tmp_path),))
    while isinstance(event := reported.get(timeout=WAIT_S), Progress):
        pass
    assert isinstance(event, Deployed)
    much.is_much, much.dtype = is_much, dtype
    failed = fired(worker, reported, 0, some(1))
    assert isinstance(failed, ev.FiringFailed)
    assert why in failed.reason
    assert worker.stop(WAIT_S)


def test_each_frame_is_sent_with_its_own_shape() -> None:
    plane = DataPlane(DEPLOYMENT)
    plane.start()
    plane.attach(b"host", Attach(7, HOST))
    plane.credit(b"host", Credit(7, 1, 2))
    for frame, count in enumerate((0, 5)):
        plane.tensor(b"host", TensorHeader(7, 0, frame, "float32", (2, 3)), b"x" * 24, 24)
        payload = bytes(16 * count)
        actions = plane.ended(
            ev.FiringEnded(7, 0, frame, {"z": payload}, 0.1, shapes={"z": (2, count)})
        )
        headers = [x.message for x in actions if isinstance(x, SendData)]
        assert TensorHeader(7, 1, frame, "int64", (2, count)) in headers
    assert plane.sent_bytes == 16 * 5


@pytest.mark.parametrize(
    "channel",
    [
        replace(OUTWARD, target_node="m", target_phases=(0,)),
        replace(INWARD, varies=True),
    ],
)
def test_a_tensor_whose_shape_varies_goes_to_the_launcher_only(channel: ChannelSpec) -> None:
    others = tuple(c for c in DEPLOYMENT.channels if c.number != channel.number)
    peers = (PeerSpec("m", "tcp://m:1"),)
    with pytest.raises(DeploymentError, match="only the launcher can receive such a tensor"):
        check(replace(DEPLOYMENT, channels=(*others, channel), dial=peers))
