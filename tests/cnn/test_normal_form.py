"""What a file may write in several ways is read in one, and computes the same."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

import cnn
from cnn.reading.normal_form import normalise
from nodes.executors.onnx.faulty_optimizers import faulty_optimizers
from tests.cnn.models import convolution, node, save
from tests.cnn.test_bad_models import refused

FIXTURES = Path(__file__).parents[1] / "fixtures" / "written_otherwise"


def agrees(path: Path, folder: Path, frames: int = 2, like: Path | None = None) -> None:
    """Our subnet and the original that we write compute what the file does, or what `like` does."""
    model = cnn.read(path)
    network = model.network
    cut = model.cut(network.layer, network.inputs, network.outputs, folder / "cut").graph
    ours = [cut, model.write_original(folder / "original")]
    numbers = np.random.default_rng(0)

    def session(file: Path) -> onnxruntime.InferenceSession:
        return onnxruntime.InferenceSession(file, disabled_optimizers=faulty_optimizers(file))

    for _ in range(frames):
        frame = {
            name: numbers.standard_normal(network.tensors[name].shape).astype(np.float32)
            for name in network.inputs
        }
        wanted = session(like or path).run(list(network.outputs), frame)
        for file in ours:
            found = session(file).run(list(network.outputs), frame)
            for one, right in zip(found, wanted, strict=True):
                np.testing.assert_allclose(one, right, atol=1e-4 * max(1.0, np.abs(right).max()))


@pytest.mark.parametrize("path", sorted(FIXTURES.glob("*.onnx")), ids=lambda path: path.stem)
def test_small_networks_compute_what_their_files_do(path: Path, tmp_path: Path) -> None:
    if path.stem == "ir_version_14":  # ONNX Runtime refuses the file by its number
        proto = onnx.load(path)
        proto.ir_version = 8
        path = save(proto, tmp_path)
    agrees(path, tmp_path)


# ------------------------------------------------------------------------------ domains


def test_the_domain_is_spelt_out_everywhere(tmp_path: Path) -> None:
    shape = (1, 4, 8, 8)
    made = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in "tu"]
    then = helper.make_graph([node("Relu", ["y"], ["t"], domain="ai.onnx")], "a", [], made[:1])
    other = helper.make_graph([node("Neg", ["y"], ["u"])], "b", [], made[1:])
    proto = convolution(
        (1, 3, 8, 8),
        node("ReduceSum", ["y"], ["s"], domain="ai.onnx", keepdims=0),
        node("Cast", ["s"], ["c"], domain="ai.onnx", to=TensorProto.BOOL),
        node("If", ["c"], ["v"], domain="ai.onnx", then_branch=then, else_branch=other),
        node("F", ["v"], ["z"], domain="lib"),
    )
    imports = [helper.make_opsetid("ai.onnx", 17)]
    nodes = [node("Relu", ["a"], ["b"], domain="ai.onnx")]
    proto.functions.append(helper.make_function("lib", "F", ["a"], ["b"], nodes, imports))
    proto.graph.node[0].domain = "ai.onnx"
    del proto.opset_import[:]
    proto.opset_import.extend([*imports, helper.make_opsetid("lib", 1)])
    spelt = save(proto, tmp_path)
    normalise(proto, {}, "model")
    (tmp_path / "like").mkdir()
    agrees(spelt, tmp_path, like=save(proto, tmp_path / "like"))  # not all of it is ONNX Runtime's


def test_two_spellings_of_one_domain_count_as_one(tmp_path: Path) -> None:
    proto = convolution((1, 3, 8, 8), node("Relu", ["y"], ["z"], domain="ai.onnx"))
    proto.opset_import.append(helper.make_opsetid("ai.onnx", 17))
    normalise(proto, {}, "model")
    assert [(x.domain, x.version) for x in proto.opset_import] == [("", 17)]


# ------------------------------------------------------------------------- sparse tensors


def sparse(name: str, shape: tuple[int, ...], *, linear: bool) -> onnx.SparseTensorProto:
    """Two numbers that are not zero: the first one and the last one."""
    places = np.array([0, int(np.prod(shape)) - 1])
    if not linear:
        places = np.stack(np.unravel_index(places, shape), axis=1)
    return helper.make_sparse_tensor(
        numpy_helper.from_array(np.array([1.5, -2.5], np.float32), name),
        numpy_helper.from_array(places.astype(np.int64), f"{name} places"),
        shape,
    )


def as_initialiser(proto: onnx.ModelProto, kept: onnx.SparseTensorProto) -> None:
    proto.graph.sparse_initializer.append(kept)


def as_constant(proto: onnx.ModelProto, kept: onnx.SparseTensorProto) -> None:
    proto.graph.node.insert(0, node("Constant", [], ["k"], sparse_value=kept))


@pytest.mark.parametrize("linear", [True, False])
@pytest.mark.parametrize("place", [as_initialiser, as_constant])
def test_sparse_tensors_become_dense(
    tmp_path: Path,
    place: Callable[[onnx.ModelProto, onnx.SparseTensorProto], None],
    linear: bool,
) -> None:
    proto = convolution((1, 3, 8, 8), node("Add", ["y", "k"], ["z"]))
    place(proto, sparse("k", (4, 8, 8), linear=linear))
    agrees(save(proto, tmp_path), tmp_path)


def test_sparse_constants_are_read_in_bodies_and_functions(tmp_path: Path) -> None:
    made = helper.make_tensor_value_info("t", TensorProto.FLOAT, (1, 4, 8, 8))
    add = [node("Constant", [], ["k"], sparse_value=sparse("", (4, 8, 8), linear=True)),
           node("Add", ["y", "k"], ["t"])]  # fmt: skip
    body = helper.make_graph(add, "body", [], [made])
    own = helper.make_graph(add[1:], "own", [], [made])
    own.sparse_initializer.append(sparse("k", (4, 8, 8), linear=False))
    function = [add[0], node("Mul", ["a", "k"], ["b"])]
    imports = [helper.make_opsetid("", 17)]
    proto = convolution(
        (1, 3, 8, 8),
        node("ReduceSum", ["y"], ["s"], keepdims=0),
        node("Cast", ["s"], ["c"], to=TensorProto.BOOL),
        node("If", ["c"], ["v"], then_branch=body, else_branch=own),
        node("F", ["v"], ["z"], domain="lib"),
    )
    proto.functions.append(helper.make_function("lib", "F", ["a"], ["b"], function, imports))
    proto.opset_import.append(helper.make_opsetid("lib", 1))
    path = save(proto, tmp_path)
    model = cnn.read(path)
    text = str(onnx.load(model.write_original(tmp_path / "original")))
    assert "sparse" not in text
    (sub,) = (x for x in model.network.layers if x.operator == "If")
    assert sub.name


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda x: x.dims.__setitem__(slice(None), [2**30, 2**10]), "take more than 1073741824"),
        (lambda x: x.dims.__setitem__(slice(None), [-4, 8, 8]), "do not fit its shape"),
        (lambda x: x.dims.__setitem__(slice(None), [1] * 70), "do not fit its shape"),
        (lambda x: x.dims.__setitem__(slice(None), [3]), "do not fit its shape"),
        (lambda x: x.indices.ClearField("raw_data"), "do not fit its shape"),
        (lambda x: x.values.ClearField("raw_data"), "do not fit its shape"),
        (lambda x: x.indices.CopyFrom(numpy_helper.from_array(np.array([-1, 5]))), "do not fit"),
        (lambda x: x.indices.CopyFrom(numpy_helper.from_array(np.array([3]))), "do not fit"),
        (lambda x: x.indices.CopyFrom(numpy_helper.from_array(np.ones((2, 2), int))), "do not"),
    ],
)
def test_a_damaged_sparse_tensor_is_refused(
    tmp_path: Path, change: Callable[[onnx.SparseTensorProto], None], sentence: str
) -> None:
    proto = convolution((1, 3, 8, 8), node("Add", ["y", "k"], ["z"]))
    kept = sparse("k", (4, 8, 8), linear=True)
    change(kept)
    proto.graph.sparse_initializer.append(kept)
    refused(save(proto, tmp_path), sentence)


@given(
    dims=st.lists(st.sampled_from([-1, 0, 1, 3, 8, 2**31, 2**62]), max_size=5),
    places=st.lists(st.integers(-3, 300), max_size=6),
    columns=st.integers(0, 4),
    values=st.integers(0, 6),
)
def test_no_sparse_tensor_whatsoever_ends_otherwise_than_in_a_sentence(
    dims: list[int], places: list[int], columns: int, values: int
) -> None:
    kept = onnx.SparseTensorProto(dims=dims)
    kept.values.CopyFrom(numpy_helper.from_array(np.ones(values, np.float32), "k"))
    array = np.array(places, np.int64)
    if columns and len(places) % columns == 0:
        array = array.reshape(-1, columns)
    kept.indices.CopyFrom(numpy_helper.from_array(array))
    proto = convolution()
    proto.graph.sparse_initializer.append(kept)
    try:
        normalise(proto, {}, "model")
    except cnn.ModelError:
        return
    assert list(proto.graph.initializer[-1].dims) == dims


# --------------------------------------------------------------------- integers of few bits


def quantised(kind: int, *, block: int = 0, activations: bool = False) -> onnx.ModelProto:
    """A product whose matrix, and perhaps whose activations, have few bits."""
    numbers = np.random.default_rng(3)
    least, most = {TensorProto.INT4: (-8, 7), TensorProto.UINT4: (0, 15)}[kind]
    values = numbers.integers(least, most + 1, (16, 8))
    rows = 16 // block if block else 1
    scale = numbers.random((rows, 8) if block else (8,)).astype(np.float32) + 0.1
    zero = numbers.integers(least, most + 1, scale.shape)
    weights = [
        helper.make_tensor("q", kind, values.shape, values.reshape(-1)),
        numpy_helper.from_array(scale, "scale"),
        helper.make_tensor("zero", kind, zero.shape, zero.reshape(-1)),
        numpy_helper.from_array(np.array(0.3, np.float32), "step"),
        helper.make_tensor("nought", kind, [], [most // 2]),
    ]
    given = {"axis": 0, "block_size": block} if block else {"axis": 1}
    nodes = [
        node("Transpose", ["q"], ["turned"], perm=[1, 0]),
        node("Transpose", ["turned"], ["back"], perm=[1, 0]),
        node("DequantizeLinear", ["back", "scale", "zero"], ["w"], **given),
    ]
    read = "x"
    if activations:
        nodes += [
            node("QuantizeLinear", ["x", "step", "nought"], ["xq"]),
            node("DequantizeLinear", ["xq", "step", "nought"], ["xd"]),
        ]
        read = "xd"
    nodes.append(node("MatMul", [read, "w"], ["y"]))
    graph = helper.make_graph(
        nodes, "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (4, 16))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, (4, 8))],
        weights,
    )  # fmt: skip
    return helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 21)])


@pytest.mark.parametrize("activations", [False, True])
@pytest.mark.parametrize("block", [0, 4])
@pytest.mark.parametrize("kind", [TensorProto.INT4, TensorProto.UINT4])
def test_integers_of_four_bits_compute_the_same_in_eight(
    tmp_path: Path, kind: int, block: int, activations: bool
) -> None:
    """The activations lie far outside of four bits, so that they are saturated."""
    path = save(quantised(kind, block=block, activations=activations), tmp_path)
    agrees(path, tmp_path, frames=4)
    types = {x.dtype for x in cnn.read(path).network.tensors.values()}
    assert types <= {"float32", "int8", "uint8"}


def test_weights_of_four_bits_lie_in_another_file(tmp_path: Path) -> None:
    onnx.save(
        quantised(TensorProto.INT4), tmp_path / "model.onnx",
        save_as_external_data=True, location="w.bin", size_threshold=0,
    )  # fmt: skip
    agrees(tmp_path / "model.onnx", tmp_path)


@pytest.mark.parametrize("end", ["x", "y"])
def test_few_bits_do_not_travel_between_devices(tmp_path: Path, end: str) -> None:
    proto = quantised(TensorProto.INT4)
    value = proto.graph.input[0] if end == "x" else proto.graph.output[0]
    value.type.tensor_type.elem_type = TensorProto.INT4
    refused(save(proto, tmp_path), f"'{end}' holds int4 values, which NumPy does not have")


def test_an_operator_that_computes_with_few_bits_is_refused_by_name(tmp_path: Path) -> None:
    proto = quantised(TensorProto.INT4)
    proto.graph.node.insert(0, node("Cast", ["x"], ["few"], to=TensorProto.INT4))
    proto.graph.node.append(node("Cast", ["few"], ["z"], to=TensorProto.FLOAT))
    proto.graph.output[0].name = "z"
    refused(save(proto, tmp_path), r"layer .*few.* \(Cast\) computes with int4 values")
