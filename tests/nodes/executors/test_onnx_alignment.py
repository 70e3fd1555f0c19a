"""Packed weights begin at whole vectors, whatever lies in front of them, and stay in their file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper

from csdf_edge.testing import executor_models as models
from csdf_edge.testing.executor_contract import OPTIONS, largest_error, some_inputs
from nodes.executors.onnx.packing import ALIGNMENT, realign
from nodes.executors.onnx.runtime import OnnxRuntimeExecutor
from nodes.executors.onnx.sessions import INLINE_BYTES
from nodes.executors.preparing.entries import Job

ROWS, INNER, COLUMNS = 16, 72, 40
"""Several rows, or ONNX Runtime does not pack; sizes that a packed block has to fill up."""


def behind(numbers: int, operator: str = "MatMul") -> onnx.ModelProto:
    """A product whose weights lie in the file behind a weight of so many numbers."""
    generator = np.random.default_rng(numbers)

    def weight(*shape: int) -> np.ndarray:
        return generator.standard_normal(shape).astype(np.float32)

    weights = {"c": weight(numbers), "w": weight(INNER, COLUMNS)}
    if operator == "Gemm":
        weights["b"] = weight(COLUMNS)
    nodes = [
        helper.make_node("Add", ["a", "c"], ["e"]),
        helper.make_node("Relu", ["x"], ["f"]),
        helper.make_node(operator, ["f", "w", "b"][: len(weights)], ["y"]),
    ]
    kind = TensorProto.FLOAT
    inputs = [("a", kind, (numbers,)), ("x", kind, (ROWS, INNER))]
    outputs = [("e", kind, (numbers,)), ("y", kind, (ROWS, COLUMNS))]
    return models.model(f"{operator}-{numbers}", nodes, inputs, outputs, weights)


def external(model: Path) -> dict[str, dict[str, str]]:
    """What a model says of its weights that lie outside."""
    initializer = onnx.load(model, load_external_data=False).graph.initializer
    return {x.name: {y.key: y.value for y in x.external_data} for x in initializer}


def packed_offsets(model: Path) -> list[int]:
    return [
        int(block.split(";")[0])
        for entries in external(model).values()
        for key, value in entries.items()
        if key.startswith("prepacked")
        for block in value.split("|")[1:]
    ]


@pytest.mark.slow
@pytest.mark.parametrize("operator", ["MatMul", "Gemm"])
def test_a_packed_product_after_a_weight_of_any_size(
    operator: str, cpu: OnnxRuntimeExecutor, tmp_path: Path
) -> None:
    """Sizes from 4 to 260 bytes beyond what stays inside the model: any offset modulo 256."""
    fewest = INLINE_BYTES // 4
    protos = [behind(fewest + more, operator) for more in range(1, 66)]
    graphs = [models.save(x, tmp_path / x.graph.name) for x in protos]
    cpu.prepare(graphs, OPTIONS)
    entries = list((tmp_path / "derived").iterdir())
    assert len(entries) == len(graphs)
    assert not any(Job.is_light_key(entry.name) for entry in entries)
    for entry in entries:
        offsets = packed_offsets(entry / "model.onnx")
        assert offsets
        assert not any(offset % ALIGNMENT for offset in offsets)
    for proto, graph in zip(protos, graphs, strict=True):
        subnet = cpu.load(graph, OPTIONS)
        inputs = some_inputs(subnet)
        found = subnet.run(inputs)
        for name, wanted in models.evaluate(proto, inputs).items():
            assert largest_error(found[name], wanted) < 1e-5
        subnet.close()


def moved(tmp_path: Path, prepacked: str) -> tuple[bool, dict[str, dict[str, str]], bytes]:
    """What `realign` makes of two weights of 3 bytes, `abc` and `def`, and a packed `XY`."""
    weights = tmp_path / "weights"
    weights.write_bytes(b"abcdefXYZ")
    proto = onnx.ModelProto()
    for name, offset, more in (("one", 0, {}), ("two", 3, {"prepacked_0": prepacked})):
        tensor = proto.graph.initializer.add(name=name, data_location=TensorProto.EXTERNAL)
        for key, value in {"location": "weights", "offset": offset, "length": 3, **more}.items():
            tensor.external_data.add(key=key, value=str(value))
    model = tmp_path / "model"
    model.write_bytes(proto.SerializeToString())
    done = realign(model, weights)
    return done, external(model), weights.read_bytes()


def test_everything_is_moved_with_the_block_that_lies_badly(tmp_path: Path) -> None:
    done, entries, content = moved(tmp_path, "MatMul+1|6;2;0|8;1;0")
    assert done
    assert entries["one"] == {"location": "weights", "offset": "0", "length": "3"}
    assert entries["two"]["offset"] == "64"
    assert entries["two"]["prepacked_0"] == "MatMul+1|128;2;0|192;1;0"
    assert (content[:3], content[64:67], content[128:130], content[192:]) == (
        b"abc", b"def", b"XY", b"Z",
    )  # fmt: skip


@pytest.mark.parametrize("page_bytes", [4096, 16384, 65536])
def test_large_weights_begin_on_pages_of_this_machine(
    page_bytes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Raspberry Pi OS has pages of 16 KiB, some distributions for servers have 64 KiB."""
    monkeypatch.setattr("os.sysconf", {"SC_PAGE_SIZE": page_bytes}.__getitem__)
    sizes = {"small": 100, "large": 1 << 20, "larger": (1 << 20) + 5}
    proto, content = onnx.ModelProto(), bytearray()
    for name, size in sizes.items():
        tensor = proto.graph.initializer.add(name=name, data_location=TensorProto.EXTERNAL)
        entries = {"location": "weights", "offset": len(content), "length": size}
        for key, value in (entries | {"prepacked_0": f"MatMul+1|{len(content)};{size};0"}).items():
            tensor.external_data.add(key=key, value=str(value))
        content += name[-1:].encode() * size
    (tmp_path / "weights").write_bytes(content)
    (tmp_path / "model").write_bytes(proto.SerializeToString())
    assert realign(tmp_path / "model", tmp_path / "weights")
    content = (tmp_path / "weights").read_bytes()
    for name, entries in external(tmp_path / "model").items():
        unit = ALIGNMENT if name == "small" else page_bytes
        packed = int(entries["prepacked_0"].split("|")[1].split(";")[0])
        for offset in (int(entries["offset"]), packed):
            assert offset % unit == 0
            assert content[offset : offset + sizes[name]] == name[-1:].encode() * sizes[name]


def test_what_lies_well_stays(tmp_path: Path) -> None:
    done, entries, content = moved(tmp_path, "MatMul+1|0;2;0")
    assert done
    assert entries["two"]["offset"] == "3"
    assert content == b"abcdefXYZ"


@pytest.mark.parametrize("packed", ["QLinearConv+1|64;0;0|0;2;0", "QLinearConv+1|6;2;0|7;0;0"])
def test_a_kernel_that_packs_nothing_packs_when_it_is_loaded(packed: str, tmp_path: Path) -> None:
    """ONNX Runtime 1.31 writes empty blocks, and cannot read them again."""
    done, entries, content = moved(tmp_path, packed)
    assert done
    assert entries["two"] == {"location": "weights", "offset": "64", "length": "3"}
    assert (content[:3], content[64:]) == (b"abc", b"def")


@pytest.mark.parametrize("groups", [1, 2, 8, 120])
def test_quantised_convolutions_of_any_groups_load(
    groups: int, cpu: OnnxRuntimeExecutor, tmp_path: Path
) -> None:
    channels = 120
    generator = np.random.default_rng(groups)
    weights = {
        "xs": np.float32(0.1), "xz": np.uint8(3), "ws": np.float32(0.02), "wz": np.int8(0),
        "w": generator.integers(-90, 90, (channels, channels // groups, 5, 5)).astype(np.int8),
    }  # fmt: skip
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "xs", "xz"], ["8"]),
        helper.make_node(
            "QLinearConv", ["8", "xs", "xz", "w", "ws", "wz", "xs", "xz"], ["c"], group=groups
        ),
        helper.make_node("DequantizeLinear", ["c", "xs", "xz"], ["y"]),
    ]
    arrays = {name: np.array(value) for name, value in weights.items()}
    inputs = [("x", TensorProto.FLOAT, (1, channels, 9, 9))]
    outputs = [("y", TensorProto.FLOAT, (1, channels, 5, 5))]
    proto = models.model(f"q{groups}", nodes, inputs, outputs, arrays)
    subnet = cpu.load(models.save(proto, tmp_path / "subnet"), OPTIONS)
    found = subnet.run(given := some_inputs(subnet))
    whole = ort.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    assert np.array_equal(found["y"], whole.run(["y"], given)[0])
    subnet.close()


def test_weights_that_end_too_early_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="end before a tensor does"):
        moved(tmp_path, "MatMul+1|7;9;0")


def test_a_model_with_a_body_is_left_to_be_made_without_packing(tmp_path: Path) -> None:
    proto = onnx.ModelProto()
    body = onnx.GraphProto(name="body")
    proto.graph.node.append(
        helper.make_node("If", ["c"], ["y"], then_branch=body, else_branch=body)
    )
    model = tmp_path / "model"
    model.write_bytes(proto.SerializeToString())
    assert not realign(model, tmp_path / "weights")
