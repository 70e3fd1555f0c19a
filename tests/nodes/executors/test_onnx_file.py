"""Reading the little that a node needs of an ONNX file, held against the `onnx` package."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper

from nodes.executors.base import ExecutorError
from nodes.executors.onnx_file import inspect
from tests.nodes.executors import models

names = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=20)


def external(name: str, location: str) -> onnx.TensorProto:
    tensor = TensorProto(name=name, data_type=TensorProto.FLOAT, dims=[1])
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in (("offset", "0"), ("location", location), ("length", "4")):
        tensor.external_data.add(key=key, value=value)
    return tensor


@given(name=names, initialisers=st.integers(0, 4), constants=st.integers(0, 3), inner=st.booleans())
def test_name_and_weight_files_are_found_wherever_onnx_allows_them(
    tmp_path_factory, name: str, initialisers: int, constants: int, inner: bool
) -> None:
    folder = tmp_path_factory.mktemp("model")
    expected = set()

    def make(number: int) -> onnx.TensorProto:
        path = folder / f"w{number}"
        path.write_bytes(b"\0" * 4)
        expected.add(path)
        return external(f"t{number}", path.name)

    nodes = [
        helper.make_node("Constant", [], [f"c{n}"], value=make(10 + n)) for n in range(constants)
    ]
    if inner:
        body = helper.make_graph([], "body", [], [], [make(20)])
        nodes.append(helper.make_node("If", ["x"], ["y"], then_branch=body, else_branch=body))
    graph = helper.make_graph(nodes, name, [], [], [make(n) for n in range(initialisers)])
    path = folder / "model"
    path.write_bytes(helper.make_model(graph).SerializeToString())
    found = inspect(path)
    assert found.name == name
    assert set(found.external) == expected


def place_initialiser(model, tensor):
    model.graph.initializer.append(tensor)


def place_constant(model, tensor):
    model.graph.node.append(helper.make_node("Constant", [], ["c"], value=tensor))


def place_list(model, tensor):
    node = model.graph.node.add(op_type="X")
    node.attribute.add(name="list", type=onnx.AttributeProto.TENSORS).tensors.append(tensor)


def place_graphs(model, tensor):
    node = model.graph.node.add(op_type="X")
    graphs = node.attribute.add(name="list", type=onnx.AttributeProto.GRAPHS).graphs
    graphs.append(helper.make_graph([], "inner", [], [], [tensor]))


def place_sparse(model, tensor):
    model.graph.sparse_initializer.add().values.CopyFrom(tensor)


def place_sparse_attribute(model, tensor):
    node = model.graph.node.add(op_type="Constant")
    node.attribute.add(name="sparse_value").sparse_tensor.indices.CopyFrom(tensor)


def place_function(model, tensor):
    node = helper.make_node("Constant", [], ["c"], value=tensor)
    model.functions.append(helper.make_function("d", "f", [], ["c"], [node], []))


PLACES = [place_initialiser, place_constant, place_list, place_graphs, place_sparse,
          place_sparse_attribute, place_function]  # fmt: skip


def saved(folder: Path, place, tensor) -> Path:
    model = helper.make_model(helper.make_graph([], "g", [], []))
    place(model, tensor)
    path = folder / "blobs" / "model"
    path.parent.mkdir()
    path.write_bytes(model.SerializeToString())
    return path


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("location", ["../secret", "/etc/hostname", "x/../../secret", "link"])
def test_no_weights_outside_the_cache_are_read_wherever_they_are_named(
    tmp_path: Path, place, location: str
) -> None:
    (tmp_path / "secret").write_text("of somebody else")
    path = saved(tmp_path, place, external("w", location))
    (path.parent / "link").symlink_to(tmp_path / "secret")
    with pytest.raises(ExecutorError, match="outside its own directory"):
        inspect(path)


@pytest.mark.parametrize("location", ["a\0b", "x" * 5000, "circle"])
def test_a_location_that_is_no_name_of_a_file_is_refused(tmp_path: Path, location: str) -> None:
    path = saved(tmp_path, place_initialiser, external("w", location))
    (path.parent / "circle").symlink_to("circle")
    with pytest.raises(ExecutorError, match=r"no name of a file|are missing"):
        inspect(path)


def test_a_location_that_is_given_twice_is_the_last_one(tmp_path: Path) -> None:
    """Readers of protocol buffers take the last; a check of the first would be no check."""
    path = saved(tmp_path, place_initialiser, external("w", "inside"))
    (path.parent / "inside").write_bytes(b"1234")
    assert inspect(path).external == (path.parent / "inside",)
    last = b"\x12\x09../secret"
    entry = b"\x0a\x08location\x12\x06inside"
    tensor = b"\x6a" + bytes([len(entry + last)]) + entry + last
    graph = b"\x2a" + bytes([len(tensor)]) + tensor
    path.write_bytes(b"\x3a" + bytes([len(graph)]) + graph)
    parsed = onnx.load(path, load_external_data=False).graph.initializer[0].external_data[0]
    assert parsed.value == "../secret"
    with pytest.raises(ExecutorError, match="outside its own directory"):
        inspect(path)


@pytest.mark.parametrize("inner", [False, True])
def test_a_compiled_program_is_no_network(tmp_path: Path, inner: bool) -> None:
    node = helper.make_node("EPContext", [], ["y"], domain="com.microsoft", ep_cache_context="/x")
    if inner:
        body = helper.make_graph([node], "body", [], [])
        node = helper.make_node("If", ["x"], ["y"], then_branch=body, else_branch=body)
    path = tmp_path / "model"
    graph = helper.make_graph([node], "g", [], [])
    path.write_bytes(helper.make_model(graph).SerializeToString())
    with pytest.raises(ExecutorError, match="EPContext is a compiled program"):
        inspect(path)


def test_the_digest_covers_graph_and_weights_but_trusts_a_digests_name(tmp_path: Path) -> None:
    graph = models.save(models.residual(), tmp_path / "blobs")
    assert inspect(graph).digest == sha256(graph.read_bytes()).hexdigest()
    named = tmp_path / "model"
    weights = tmp_path / "weights.bin"
    named.write_bytes(
        helper.make_model(
            helper.make_graph([], "g", [], [], [external("w", weights.name)])
        ).SerializeToString()
    )
    digests = set()
    for content in (b"1234", b"5678"):
        weights.write_bytes(content)
        digests.add(inspect(named).digest)
    assert len(digests) == 2


@given(content=st.binary(max_size=200))
def test_no_bytes_whatsoever_do_more_than_fail_in_a_sentence(
    tmp_path_factory, content: bytes
) -> None:
    path = tmp_path_factory.mktemp("model") / "model"
    path.write_bytes(content)
    try:
        inspect(path)
    except ExecutorError as error:
        assert str(path) in str(error)  # noqa: PT017 - most bytes are refused, some are a model


@given(data=st.data())
def test_a_truncated_model_is_refused(tmp_path_factory, data: st.DataObject) -> None:
    whole = models.classifier().SerializeToString()
    graph_field = whole.index(b"\x3a")
    path = tmp_path_factory.mktemp("model") / "model"
    path.write_bytes(whole[: data.draw(st.integers(graph_field + 1, len(whole) - 10))])
    with pytest.raises(ExecutorError, match="not an ONNX file or is truncated"):
        inspect(path)
