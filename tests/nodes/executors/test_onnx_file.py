"""Reading the little that a node needs of an ONNX file, held against the `onnx` package."""

from __future__ import annotations

import os
from hashlib import sha256
from pathlib import Path

import onnx
import onnxruntime.capi.onnxruntime_pybind11_state as ort
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper

from cnn.operators import contrib
from csdf_edge.testing import executor_models as models
from nodes.executors.base import ExecutorError
from nodes.executors.onnx.file import (
    CONTRIB_DOMAIN,
    CONTRIB_OPERATORS,
    ML_DOMAIN,
    ML_OPERATORS,
    check_optimised,
    inspect,
)
from nodes.executors.onnx.protobuf import field
from nodes.protocol.fields import printable

names = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=20)


def external(name: str, location: str) -> onnx.TensorProto:
    tensor = TensorProto(name=name, data_type=TensorProto.FLOAT, dims=[1])
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in (("offset", "0"), ("location", location), ("length", "4")):
        tensor.external_data.add(key=key, value=value)
    return tensor


@given(name=names, initialisers=st.integers(0, 4), constants=st.integers(0, 3))
def test_name_and_weight_files_are_found_wherever_a_launcher_puts_them(
    tmp_path_factory, name: str, initialisers: int, constants: int
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
    graph = helper.make_graph(nodes, name, [], [], [make(n) for n in range(initialisers)])
    path = folder / "model"
    path.write_bytes(helper.make_model(graph).SerializeToString())
    found = inspect(path)
    assert found.name == printable(name)
    assert set(found.external) == expected


def place_initialiser(model, tensor):
    model.graph.initializer.append(tensor)


def place_constant(model, tensor):
    model.graph.node.append(helper.make_node("Constant", [], ["c"], value=tensor))


def place_list(model, tensor):
    node = model.graph.node.add(op_type="X")
    node.attribute.add(name="list", type=onnx.AttributeProto.TENSORS).tensors.append(tensor)


PLACES = [place_initialiser, place_constant, place_list]


def saved(folder: Path, place, tensor) -> Path:
    model = helper.make_model(helper.make_graph([], "g", [], []))
    place(model, tensor)
    path = folder / "blobs" / "model"
    path.parent.mkdir()
    path.write_bytes(model.SerializeToString())
    return path


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(
    "location",
    [
        *(
            "../secret",
            "/etc/hostname",
            "x/../../secret",
            "link",
            "folder",
            "folder/w",
            ".",
            "..",
            "",
        ),
        *("pipe", "inside/", "*/_ORT_MEM_ADDR_/*", "a\0b", "inside\0/../../secret"),
    ],
)
def test_no_weights_outside_the_cache_are_read_wherever_they_are_named(
    tmp_path: Path, place, location: str
) -> None:
    """Nor weights at an address in memory, which is what ONNX Runtime takes one name for."""
    (tmp_path / "secret").write_text("of somebody else")
    path = saved(tmp_path, place, external("w", location))
    (path.parent / "inside").write_bytes(b"1234")
    (path.parent / "link").symlink_to(tmp_path / "secret")
    os.mkfifo(path.parent / "pipe")
    (path.parent / "folder").mkdir()
    with pytest.raises(ExecutorError, match="outside its own directory"):
        inspect(path)


@pytest.mark.parametrize("location", ["x" * 5000, "nowhere"])
def test_weights_that_are_missing_are_said_to_be(tmp_path: Path, location: str) -> None:
    with pytest.raises(ExecutorError, match="are missing"):
        inspect(saved(tmp_path, place_initialiser, external("w", location)))


@pytest.mark.parametrize(
    ("entries", "sentence"),
    [
        ({"offset": "2"}, "needs 6 bytes of .*/inside, which has 4"),
        ({"length": "5"}, "needs 5 bytes of .*/inside, which has 4"),
        ({"offset": "-8"}, "at an impossible place in a file"),
        ({"length": "abc"}, "at an impossible place in a file"),
        ({"length": "٣"}, "at an impossible place in a file"),
        ({"length": "9" * 5000}, "at an impossible place in a file"),
        ({"basepath": "/"}, "with the unknown key 'basepath'"),
        ({"prepacked_0": "x"}, "with the unknown key 'prepacked_0'"),
    ],
)
def test_weights_lie_inside_of_their_file(
    tmp_path: Path, entries: dict[str, str], sentence: str
) -> None:
    tensor = external("w", "inside")
    for key, value in entries.items():
        kept = [entry for entry in tensor.external_data if entry.key != key]
        del tensor.external_data[:]
        tensor.external_data.extend(kept)
        tensor.external_data.add(key=key, value=value)
    path = saved(tmp_path, place_initialiser, tensor)
    (path.parent / "inside").write_bytes(b"1234")
    with pytest.raises(ExecutorError, match=sentence):
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


def test_a_name_with_control_characters_steers_no_terminal(tmp_path: Path) -> None:
    path = tmp_path / "model"
    path.write_bytes(
        helper.make_model(helper.make_graph([], "a\n\x1b[2J", [], [])).SerializeToString()
    )
    assert inspect(path).name.isprintable()


def test_a_location_that_a_tensor_gives_twice_is_refused(tmp_path: Path) -> None:
    """ONNX Runtime 1.23 takes the last, others may take the first."""
    tensor = external("w", "inside")
    tensor.external_data.add(key="location", value="inside")
    with pytest.raises(ExecutorError, match="'location' twice"):
        inspect(saved(tmp_path, place_initialiser, tensor))


def body(*nodes: onnx.NodeProto) -> onnx.GraphProto:
    return helper.make_graph(list(nodes), "body", [], [], [external("w", "../secret")])


def with_function(model: onnx.ModelProto) -> None:
    """What had an agent read any file: a default value that is used by its name."""
    taken = helper.make_node("Constant", [], ["o"], name="taken")
    taken.attribute.add(name="value", ref_attr_name="v", type=onnx.AttributeProto.TENSOR)
    default = onnx.AttributeProto(name="v", type=onnx.AttributeProto.TENSOR)
    default.t.CopyFrom(external("w", "../../../../etc/passwd"))
    opset = helper.make_opsetid("", 17)
    model.functions.append(
        helper.make_function("f", "F", [], ["o"], [taken], [opset], attribute_protos=[default])
    )
    model.graph.node.append(helper.make_node("F", [], ["y"], domain="f"))


def with_training(model: onnx.ModelProto) -> None:
    model.training_info.add().initialization.initializer.append(external("w", "../secret"))


def with_body(model: onnx.ModelProto) -> None:
    node = model.graph.node.add(op_type="Relu")
    node.attribute.add(name="body", type=onnx.AttributeProto.GRAPH).g.CopyFrom(body())


def with_bodies(model: onnx.ModelProto) -> None:
    model.graph.node.add(op_type="Relu").attribute.add(name="list").graphs.append(body())


def with_sparse_weights(model: onnx.ModelProto) -> None:
    model.graph.sparse_initializer.add().values.CopyFrom(external("w", "../secret"))


def with_sparse_constant(model: onnx.ModelProto) -> None:
    node = helper.make_node("Constant", [], ["c"])
    node.attribute.add(name="sparse_value").sparse_tensor.indices.CopyFrom(external("w", "../x"))
    model.graph.node.append(node)


def with_compiled_program(model: onnx.ModelProto) -> None:
    model.graph.node.append(
        helper.make_node("EPContext", [], ["y"], domain="com.microsoft", ep_cache_context="/x")
    )


def with_own_operator(model: onnx.ModelProto) -> None:
    model.graph.node.append(helper.make_node("Swirl", ["x"], ["y"], "odd", domain="my.ops"))


def with_an_engines_operator(model: onnx.ModelProto) -> None:
    model.graph.node.append(helper.make_node("BeamSearch", [], ["y"], "b", domain="com.microsoft"))


def with_an_operator_of_one_machines_layout(model: onnx.ModelProto) -> None:
    node = helper.make_node("Conv", [], ["y"], "c", domain="com.microsoft.nchwc")
    model.graph.node.append(node)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (with_function, "it has functions|layer 'y' .* of the domain 'f'"),
        (with_training, "training steps"),
        (with_body, "in another file that belong to a graph inside an operator"),
        (with_bodies, "in another file that belong to a graph inside an operator"),
        (with_sparse_weights, "sparse tensors"),
        (with_sparse_constant, "sparse tensors"),
        (with_compiled_program, "EPContext is a compiled program"),
        (with_own_operator, r"layer 'odd' \(Swirl\) of the domain 'my.ops'"),
        (with_an_engines_operator, r"layer 'b' \(BeamSearch\) of the domain 'com.microsoft'"),
        (with_an_operator_of_one_machines_layout, r"layer 'c' \(Conv\) of the domain"),
    ],
)
def test_what_no_launcher_sends_is_refused(tmp_path: Path, change, sentence: str) -> None:
    model = helper.make_model(helper.make_graph([], "g", [], []))
    change(model)
    path = tmp_path / "model"
    path.write_bytes(model.SerializeToString())
    with pytest.raises(ExecutorError, match=sentence):
        inspect(path)


@pytest.mark.parametrize(
    "nested",
    [
        [(100, b"x")],
        [(7, field(99, b"x"))],
        [(7, field(1, field(5, field(24, b"x"))))],
        [(7, field(5, field(15, b"x")))],
    ],
)
def test_a_field_that_nobody_knows_is_refused(tmp_path: Path, nested) -> None:
    """It may be one of a newer version of ONNX, which the engine knows."""
    path = tmp_path / "model"
    path.write_bytes(b"".join(field(number, content) for number, content in nested))
    with pytest.raises(ExecutorError, match=r"the field \d+ of \w+, which this version"):
        inspect(path)


def test_operators_of_onnx_runtimes_quantizer_may_be_sent_and_are_named(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Relu", ["x"], ["r"], "r"),
        helper.make_node("QLinearAdd", ["r"], ["a"], "a", domain="com.microsoft"),
        helper.make_node("QLinearMul", ["a"], ["y"], "m", domain="com.microsoft"),
    ]
    path = tmp_path / "model"
    path.write_bytes(helper.make_model(helper.make_graph(nodes, "g", [], [])).SerializeToString())
    assert inspect(path).contrib_layer == "'a' (QLinearAdd)"


def test_a_node_runs_the_same_operators_of_onnx_runtimes_as_networks_may_have() -> None:
    assert contrib.RULES.keys() == CONTRIB_OPERATORS
    assert CONTRIB_DOMAIN == contrib.DOMAIN
    assert contrib.ML_RULES.keys() == ML_OPERATORS
    assert ML_DOMAIN == contrib.ML_DOMAIN


def test_no_operator_that_a_launcher_may_send_runs_a_graph_or_is_a_compiled_program() -> None:
    known = CONTRIB_OPERATORS | ML_OPERATORS
    domains = (CONTRIB_DOMAIN, ML_DOMAIN)
    schemas = [x for x in ort.get_all_operator_schema() if x.domain in domains]
    assert {x.name for x in schemas} >= known
    for schema in schemas:
        if schema.name in known:
            kinds = {str(attribute.type) for attribute in schema.attributes.values()}
            assert not any("GRAPH" in kind for kind in kinds), schema.name


def test_what_the_optimiser_has_written_may_have_its_operators_and_no_others_files(
    tmp_path: Path,
) -> None:
    node = helper.make_node("FusedConv", ["x"], ["y"], domain="com.microsoft")
    path = tmp_path / "model.onnx"
    for location, entry in (("w", "prepacked_0"), ("../w", "length")):
        tensor = external("w", location)
        tensor.external_data[2].key = entry
        graph = helper.make_graph([node], "g", [], [], [tensor])
        path.write_bytes(helper.make_model(graph).SerializeToString())
        (tmp_path / "w").write_bytes(b"1234")
        if location == "w":
            check_optimised(path)
            continue
        with pytest.raises(ExecutorError, match="outside its own directory"):
            check_optimised(path)


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
