"""What every strategy that rewrites the network must do besides; its networks are real models."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import cnn
from cnn.network import Network
from partition.devices import Device
from partition.errors import PartitionError
from partition.strategies.base import Problem
from tests.agreement.comparison import LIMIT, agreements, random_frame
from tests.partition import networks
from tests.partition.strategy_contract import MB, StrategyContract, equal

HEAVY_MACS = 10**6


class RewritingContract(StrategyContract):
    """As `StrategyContract`, with models instead of layer graphs."""

    def chain(self, *macs: int) -> Network:
        return chain_model(len(macs), is_heavy=max(macs) >= HEAVY_MACS).network

    def residual(self, blocks: int) -> Network:
        return residual_model(blocks).network

    def model(self, network: Network) -> cnn.Model:
        return next(model for model in _MADE if model.network is network)

    def test_devices_compute_what_the_network_computes(self, tmp_path: Path) -> None:
        model = read(residual_proto(2), tmp_path)
        solution = self.strategy.solve(Problem(model.network, equal(3), model=model))
        rewritten = model.rewritten(solution.rewrites)
        (found,) = agreements(rewritten, [solution.assignment], random_frame(model.network, 0))
        assert found.crossing <= LIMIT

    def test_pinned_layers_stay_whole(self) -> None:
        network = self.chain(*[10**9] * 4)
        solution = self.solve(network, equal(3), {"l1": "d2"})
        assert solution.assignment["l1"] == "d2"

    def test_without_a_model_there_is_nothing_to_rewrite(self) -> None:
        with pytest.raises(PartitionError, match="needs the model"):
            self.strategy.solve(Problem(networks.chain(1, 1), equal(2)))

    def test_memory_limits_are_respected_where_they_can_be(self) -> None:
        network = chain_model(3, channels=384).network
        # 16 MB of weights; beside the engine, the small device has room for less than half.
        self.solve(network, (Device("small", 71 * MB), Device("roomy", 300 * MB)))


_MADE: list[cnn.Model] = []


@cache
def chain_model(layers: int, *, is_heavy: bool = False, channels: int = 0) -> cnn.Model:
    """l0 → l1 → …: convolutions."""
    width = channels or (48 if is_heavy else 8)
    size = 28 if is_heavy else 4
    nodes = [
        helper.make_node("Conv", [f"t{i}", f"w{i}"], [f"t{i + 1}"], f"l{i}", pads=[1] * 4)
        for i in range(layers)
    ]
    weights = {f"w{i}": (width, width, 3, 3) for i in range(layers)}
    return _made(_proto(nodes, weights, (1, width, size, size), "t0", f"t{layers}"))


@cache
def residual_model(blocks: int) -> cnn.Model:
    """See `residual_proto`."""
    return _made(residual_proto(blocks))


def residual_proto(blocks: int) -> onnx.ModelProto:
    """Per block two convolutions, each with a rectifier, and a sum; a classifier at the end."""
    nodes: list[onnx.NodeProto] = []
    weights: dict[str, Sequence[int]] = {}

    def add(operator: str, reads: list[str], **attributes: object) -> str:
        made = f"t{len(nodes)}"
        nodes.append(helper.make_node(operator, reads, [made], f"l{len(nodes)}", **attributes))
        return made

    def convolution(source: str) -> str:
        name = f"w{len(nodes)}"
        weights[name] = (16, 16, 3, 3)
        return add("Conv", [source, name], pads=[1] * 4)

    source = "x"
    for _ in range(blocks):
        inner = convolution(add("Relu", [convolution(source)]))
        source = add("Relu", [add("Add", [inner, source])])
    weights["classes"] = (16, 10)
    flat = add("Flatten", [add("GlobalAveragePool", [source])])
    return _proto(nodes, weights, (1, 16, 14, 14), "x", add("Gemm", [flat, "classes"]))


def read(proto: onnx.ModelProto, folder: Path) -> cnn.Model:
    """The model of `proto`, whose file stays in `folder`."""
    path = folder / "model.onnx"
    path.write_bytes(proto.SerializeToString())
    return cnn.read(path)


def _made(proto: onnx.ModelProto) -> cnn.Model:
    with tempfile.TemporaryDirectory() as folder:
        _MADE.append(read(proto, Path(folder)))
    return _MADE[-1]


def _proto(
    nodes: Sequence[onnx.NodeProto],
    weights: dict[str, Sequence[int]],
    shape: Sequence[int],
    source: str,
    result: str,
) -> onnx.ModelProto:
    rng = np.random.default_rng(0)
    graph = helper.make_graph(
        nodes,
        "example",
        [helper.make_tensor_value_info(source, onnx.TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info(result, onnx.TensorProto.FLOAT, None)],
        [
            numpy_helper.from_array(
                rng.standard_normal(size, np.float32) * np.float32(np.prod(size[1:]) ** -0.5), name
            )
            for name, size in weights.items()
        ],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
