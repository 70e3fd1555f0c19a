"""Units: what can be shared between devices, by channels or by rows."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given, settings

import cnn
from cnn.rewrite.rewrites import Bands, Channels, Slices
from partition.strategies.base import Problem
from partition.strategies.units import Unit, block_of, find_units
from tests.networks import save, small_models
from tests.partition.rewriting_contract import chain_model, residual_model
from tests.partition.strategy_contract import equal


def units(model: cnn.Model, pins: dict[str, str] | None = None) -> tuple[Unit, ...]:
    problem = Problem(model.network, equal(2), pins or {}, model=model)
    return find_units(problem, model, None)


def by_rows(model: cnn.Model, fused_bytes: float) -> tuple[Unit, ...]:
    return find_units(Problem(model.network, equal(2), model=model), model, fused_bytes)


def test_layers_that_work_channel_by_channel_go_with_the_one_before() -> None:
    found = units(residual_model(1))
    # l0 Conv, l1 Relu, l2 Conv, l3 Add, l4 Relu, l5 GlobalAveragePool, l6 Flatten, l7 Gemm
    assert [unit.layers for unit in found] == [
        ("l0", "l1"),
        ("l2", "l3", "l4", "l5"),
        ("l6",),
        ("l7",),
    ]


def test_a_tensor_with_two_readers_ends_a_unit() -> None:
    found = units(residual_model(2))
    assert ("l2", "l3", "l4") in [unit.layers for unit in found]


def check_order(model: cnn.Model, found: tuple[Unit, ...]) -> None:
    """Every layer is in one unit, and no unit reads what one behind it makes."""
    unit_of = {layer: number for number, unit in enumerate(found) for layer in unit.layers}
    assert sum(len(unit.layers) for unit in found) == len(unit_of)
    assert unit_of.keys() == model.network.layer.keys()
    for maker, reader, _ in model.network.edges:
        assert unit_of[maker] <= unit_of[reader]


def test_a_sum_of_two_branches_is_in_one_unit_only(tmp_path: Path) -> None:
    nodes = [
        onnx.helper.make_node("Conv", [source, f"w_{made}"], [made], made, pads=[1] * 4)
        for source, made in (("x", "stem"), ("stem", "left"), ("stem", "right"))
    ]
    nodes += [
        onnx.helper.make_node("Add", ["left", "right"], ["sum"], "sum"),
        onnx.helper.make_node("Relu", ["sum"], ["y"], "relu"),
    ]
    shape = onnx.TensorProto.FLOAT, [1, 8, 4, 4]
    weights = [
        onnx.numpy_helper.from_array(np.full((8, 8, 3, 3), value, np.float32), f"w_{name}")
        for name, value in (("stem", 1.0), ("left", 2.0), ("right", 3.0))
    ]
    graph = onnx.helper.make_graph(
        nodes,
        "branches",
        [onnx.helper.make_tensor_value_info("x", *shape)],
        [onnx.helper.make_tensor_value_info("y", *shape)],
        weights,
    )
    opset = onnx.helper.make_opsetid("", 13)
    proto = onnx.helper.make_model(graph, opset_imports=[opset], ir_version=8)
    model = cnn.read(save(proto, tmp_path))
    found = units(model)
    check_order(model, found)
    assert [unit.layers for unit in found] == [("stem",), ("right",), ("left", "sum", "relu")]


@given(small_models())
@settings(max_examples=12)
def test_every_layer_is_in_one_unit_in_topological_order(proto: onnx.ModelProto) -> None:
    with tempfile.TemporaryDirectory() as folder:
        model = cnn.read(save(proto, Path(folder)))
    for found in (units(model), by_rows(model, 0.0)):
        check_order(model, found)


def test_pinned_layers_are_units_of_their_own_that_cannot_be_split() -> None:
    found = {unit.layers: unit for unit in units(residual_model(1), {"l3": "d0"})}
    assert found[("l3",)].grains == 1
    assert ("l2",) in found


def test_units_with_few_weights_are_split_by_rows_and_fused_where_tensors_are_large() -> None:
    model = chain_model(3, is_heavy=True)  # tensors of 151 kB, kernels of 83 kB
    assert [unit.layers for unit in by_rows(model, 2e5)] == [("l0",), ("l1",), ("l2",)]
    (fused,) = by_rows(model, 1e5)
    assert fused.layers == ("l0", "l1", "l2")
    assert fused.rewrites((20, 8)) == (Bands(("l0", "l1", "l2"), (20, 8)),)


def test_units_with_many_weights_are_split_by_channels() -> None:
    (unit, *_) = by_rows(chain_model(3), 0.0)  # tensors of 512 bytes, kernels of 2304
    assert unit.rewrites((3, 5)) == (Slices("l0", (3, 5)),)
    assert unit.divide([1.0, 3.0]) == (2, 6)


@pytest.mark.parametrize(
    ("channels", "block"),
    [
        (Channels(64), 16),
        (Channels(1000), 8),
        (Channels(24), 1),  # fewer than two blocks
        (Channels(96, group=48), 1),  # its groups decide
    ],
)
def test_parts_are_whole_blocks_where_there_are_enough(channels: Channels, block: int) -> None:
    unit = Unit(("l0",), channels, block=block_of(channels))
    assert unit.block == block
    assert unit.grains == channels.count // block
    sizes = unit.divide([0.3, 0.7])
    assert sum(sizes) == channels.count
    assert not any(size % max(block, channels.group) for size in sizes)
