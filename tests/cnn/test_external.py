"""Weights in other files are read from the model's folder; all else ends in one sentence."""

from __future__ import annotations

import gc
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import given
from hypothesis import strategies as st

import cnn
from cnn.reading import normal_form
from cnn.reading.source import model_files
from cnn.reading.weights import detach, external_contents, external_tensors, file_of
from tests.cnn.models import convolution, node, save
from tests.cnn.test_bad_models import refused

WEIGHT = np.arange(108, dtype=np.float32).reshape(4, 3, 3, 3)


def with_weight(
    entries: dict[str, str],
    dims: tuple[int, ...] = WEIGHT.shape,
    kind: int = onnx.TensorProto.FLOAT,
) -> onnx.ModelProto:
    """A convolution whose weight is said to lie in another file."""
    proto = convolution()
    weight = proto.graph.initializer[0]
    weight.ClearField("raw_data")
    weight.data_location = onnx.TensorProto.EXTERNAL
    weight.data_type = kind
    weight.dims[:] = dims
    for key, value in entries.items():
        weight.external_data.add(key=key, value=value)
    return proto


def model_folder(place: Path) -> Path:
    """A model's folder, with `w.bin` in it, beside a file that is none of the model's affair."""
    folder = place / "model"
    (folder / "parts").mkdir(parents=True)
    for path in (folder / "w.bin", folder / "parts" / "w.bin", place / "secret"):
        path.write_bytes(WEIGHT.tobytes())
    (folder / "inside").symlink_to("parts/w.bin")
    (folder / "outside").symlink_to("../secret")
    (folder / "far").symlink_to("/dev/zero")
    (folder / "up").symlink_to("..")
    (folder / "circle").symlink_to("circle")
    os.mkfifo(folder / "pipe")
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return model_folder(tmp_path)


@pytest.mark.parametrize("location", ["w.bin", "./w.bin", "parts/w.bin", "inside"])
@pytest.mark.parametrize("more", [{}, {"offset": "0", "length": "432"}, {"checksum": "whatever"}])
def test_weights_lie_anywhere_in_the_models_folder(
    folder: Path, location: str, more: dict[str, str]
) -> None:
    model = cnn.read(save(with_weight({"location": location, **more}), folder))
    np.testing.assert_array_equal(next(iter(model.weights.values())), WEIGHT)


@pytest.mark.parametrize(
    ("location", "sentence"),
    [
        ("../secret", "which is not in the model's folder; move it there"),
        ("parts/../../secret", "which is not in the model's folder; move it there"),
        ("/dev/zero", "which is not in the model's folder; move it there"),
        (
            "outside",
            "a link to .*/secret outside the model's folder; replace the link by a copy of that "
            "file",
        ),
        (
            "up/secret",
            "a link to .*/secret outside the model's folder; replace the link by a copy of that "
            "file",
        ),
        ("far", "a link to /dev/zero outside the model's folder"),
        ("pipe", "not a regular file"),
        ("parts", "not a regular file"),
        (".", "not a regular file"),
        ("circle", "cannot be read"),
        ("w.bin/x", "cannot be read"),
        (
            "absent",
            "is stored in .*absent, which cannot be read.*put that file into the model's folder",
        ),
        ("x" * 5000, "cannot be read"),
        ("", "which it does not name"),
        ("w\0.bin", "which it does not name"),
        ("w\n.bin", "which it does not name"),
    ],
)
def test_no_other_file_is_opened(folder: Path, location: str, sentence: str) -> None:
    """A pipe would wait for ever, and /dev/zero has no end."""
    refused(save(with_weight({"location": location}), folder), sentence)


@pytest.mark.parametrize(
    ("entries", "dims", "kind", "sentence"),
    [
        ({"offset": "abc"}, None, 1, "offset 'abc', which is not a number of bytes"),
        ({"offset": "-8"}, None, 1, "offset '-8', which is not a number of bytes"),
        ({"offset": "1_0"}, None, 1, "not a number of bytes"),
        ({"offset": "9" * 5000}, None, 1, "not a number of bytes"),
        ({"offset": "4"}, None, 1, "weight 'w' needs 436 bytes of .*w.bin, which has 432"),
        ({"length": "-1"}, None, 1, "length '-1', which is not a number of bytes"),
        ({"length": "4"}, None, 1, "takes 432 bytes, but the model states a length of 4 in w.bin"),
        ({}, (-4, -3, 3, 3), 1, "an impossible shape"),
        ({}, (4, 3, 3, -1), 1, "an impossible shape"),
        ({}, (1,) * 70, 1, "an impossible shape"),
        ({}, (2**62, 0), 1, "does not contain the 0 values"),
        ({}, (2**62, 2**62, 2**62), 1, "needs .* bytes of .*w.bin, which has 432"),
        ({}, None, 11, "needs 864 bytes of .*w.bin, which has 432"),
        ({}, None, 8, "holds text"),
        ({}, None, 0, "has no element type"),
    ],
)
def test_a_place_that_the_file_does_not_have_is_refused_before_it_is_read(
    folder: Path, entries: dict[str, str], dims: tuple[int, ...] | None, kind: int, sentence: str
) -> None:
    place = {"location": "w.bin", **entries}
    proto = with_weight(place, WEIGHT.shape if dims is None else dims, kind)
    refused(save(proto, folder), sentence)


def test_a_weight_that_names_no_file_or_two_is_refused(folder: Path) -> None:
    refused(save(with_weight({}), folder), "which it does not name")
    proto = with_weight({"location": "w.bin"})
    proto.graph.initializer[0].external_data.add(key="location", value="parts/w.bin")
    refused(save(proto, folder), "in another file, with a duplicate key location")


@pytest.mark.parametrize("dims", [(4, 3, 3, -1), (-1,), (5, 3, 3, 3), (2**62, 0), (1,) * 70])
def test_a_weight_inside_of_the_model_has_a_possible_shape(
    tmp_path: Path, dims: tuple[int, ...]
) -> None:
    proto = convolution()
    proto.graph.initializer[0].dims[:] = dims
    refused(save(proto, tmp_path), "an impossible shape|does not contain the")


# ------------------------------------------------------------- tensors that are no weights


def elsewhere() -> onnx.TensorProto:
    tensor = onnx.TensorProto(name="k", data_type=onnx.TensorProto.FLOAT, dims=[4, 1, 1])
    tensor.data_location = onnx.TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="../secret")
    tensor.external_data.add(key="length", value="16")
    return tensor


def in_a_constant(proto: onnx.ModelProto) -> None:
    proto.graph.node.insert(0, node("Constant", [], ["k"], value=elsewhere()))


def in_a_sparse_weight(proto: onnx.ModelProto) -> None:
    proto.graph.sparse_initializer.add().values.CopyFrom(elsewhere())


def in_a_body(proto: onnx.ModelProto) -> None:
    body = onnx.helper.make_graph([], "b", [], [], [elsewhere()])
    proto.graph.node.append(node("If", ["c"], ["z"], then_branch=body, else_branch=body))


def in_a_function(proto: onnx.ModelProto) -> None:
    constant = node("Constant", [], ["b"], value=elsewhere())
    proto.functions.append(onnx.helper.make_function("f", "F", [], ["b"], [constant], []))


def in_what_a_function_takes_for_granted(proto: onnx.ModelProto) -> None:
    default = onnx.AttributeProto(name="v", type=onnx.AttributeProto.TENSOR, t=elsewhere())
    proto.functions.append(
        onnx.helper.make_function("f", "F", [], ["b"], [], [], attribute_protos=[default])
    )


def in_training(proto: onnx.ModelProto) -> None:
    proto.training_info.add().initialization.initializer.append(elsewhere())


PLACES = pytest.mark.parametrize(
    "place",
    [in_a_constant, in_a_sparse_weight, in_a_body, in_a_function,
     in_what_a_function_takes_for_granted, in_training],
)  # fmt: skip


@PLACES
def test_no_tensor_lies_outside_of_the_models_folder(
    tmp_path: Path, place: Callable[[onnx.ModelProto], None]
) -> None:
    """Whoever is handed the model later would open what it names."""
    (tmp_path / "secret").write_bytes(bytes(16))
    folder = tmp_path / "model"
    folder.mkdir()
    proto = convolution()
    place(proto)
    refused(save(proto, folder), "is stored in ../secret, which is not in the model's folder")


def everywhere(location: str) -> onnx.ModelProto:
    """A network that reads a constant, a weight of a body and a constant of a function from a file.

    Each of the three adds the first four numbers of `WEIGHT` to the channels.
    """
    kept = elsewhere()
    kept.external_data[0].value = location

    def adding(name: str) -> tuple[onnx.TensorProto, onnx.NodeProto]:
        tensor = onnx.TensorProto()
        tensor.CopyFrom(kept)
        tensor.name = name
        return tensor, node("Constant", [], [name], value=tensor)

    (_, constant), (own, _), (_, of_function) = (adding(name) for name in "kbf")
    shape = (1, 4, 8, 8)
    made = onnx.helper.make_tensor_value_info("t", onnx.TensorProto.FLOAT, shape)
    then = onnx.helper.make_graph([node("Add", ["u", "b"], ["t"])], "then", [], [made], [own])
    other = onnx.helper.make_graph([node("Neg", ["u"], ["t"])], "else", [], [made])
    proto = convolution(
        (1, 3, 8, 8),
        constant,
        node("Add", ["y", "k"], ["u"]),
        node("ReduceSum", ["u"], ["sum"], keepdims=0),
        node("Cast", ["sum"], ["c"], to=onnx.TensorProto.BOOL),
        node("If", ["c"], ["v"], then_branch=then, else_branch=other),
        node("F", ["v"], ["z"], domain="lib"),
    )
    opsets = [onnx.helper.make_opsetid("", 17), onnx.helper.make_opsetid("lib", 1)]
    add = [of_function, node("Add", ["a", "f"], ["r"])]
    proto.functions.append(onnx.helper.make_function("lib", "F", ["a"], ["r"], add, opsets))
    proto.opset_import.append(opsets[1])
    return proto


def computed(path: Path, x: np.ndarray) -> np.ndarray:
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    return session.run(["z"], {"x": x})[0]


def test_constants_and_bodies_lie_in_other_files_of_the_models_folder(folder: Path) -> None:
    path = save(everywhere("w.bin"), folder)
    model = cnn.read(path)
    cut = model.cut(model.network.layer, ["x"], ["z"], folder / "cut")
    x = np.random.default_rng(0).standard_normal((1, 3, 8, 8)).astype(np.float32)
    wanted = computed(path, x)
    np.testing.assert_allclose(computed(cut.graph, x), wanted, atol=1e-5)
    np.testing.assert_allclose(computed(model.write_original(folder / "o"), x), wanted, atol=1e-5)
    assert model_files(path).keys() == {"model.onnx", "w.bin"}


def test_places_that_are_read_again_and_again_do_not_fill_the_memory(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hole as large as the limit, of which a few constants would take many times as much."""
    limit = 1 << 22
    assert limit < normal_form._MOST_BYTES == 1 << 30
    monkeypatch.setattr(normal_form, "_MOST_BYTES", limit)
    os.truncate(folder / "w.bin", limit)
    proto = everywhere("w.bin")
    for each in external_tensors(proto):
        each.dims[:] = [limit // 4]
        del each.external_data[1:]
    refused(save(proto, folder), f"such tensors take more than {limit} bytes")


# ------------------------------------------------------------------ caches of Hugging Face

HASH, OTHER = "ab" * 32, "0c" * 20


def cached(place: Path, repository: str = "models--org--net") -> Path:
    """A snapshot as `huggingface_hub` keeps it, with weights; returns its folder."""
    repo = place / "hub" / repository
    folder = repo / "snapshots" / "1f" / "onnx"
    folder.mkdir(parents=True)
    (repo / "blobs").mkdir()
    (repo / "blobs" / HASH).write_bytes(WEIGHT.tobytes())
    (folder / "model.onnx_data").symlink_to(f"../../../blobs/{HASH}")
    save(with_weight({"location": "model.onnx_data"}), repo / "blobs")
    (repo / "blobs" / "model.onnx").rename(repo / "blobs" / OTHER)
    (folder / "model.onnx").symlink_to(f"../../../blobs/{OTHER}")
    return folder


def test_a_model_of_a_hugging_face_cache_is_read_where_it_is(tmp_path: Path) -> None:
    path = cached(tmp_path) / "model.onnx"
    (tmp_path / "link").symlink_to(path.parent)
    for found in (path, tmp_path / "link" / "model.onnx"):
        np.testing.assert_array_equal(next(iter(cnn.read(found).weights.values())), WEIGHT)
    blob = tmp_path.resolve() / "hub" / "models--org--net" / "blobs" / HASH
    assert model_files(path)["model.onnx_data"] == blob


def of_another_repository(folder: Path) -> None:
    cached(folder.parents[5] / "other", "models--org--secret")
    theirs = folder.parents[5] / "other" / "hub" / "models--org--secret" / "blobs" / HASH
    (folder / "model.onnx_data").unlink()
    (folder / "model.onnx_data").symlink_to(theirs)


def beside_the_blobs(folder: Path) -> None:
    (folder.parents[2] / "token").write_bytes(WEIGHT.tobytes())
    (folder / "model.onnx_data").unlink()
    (folder / "model.onnx_data").symlink_to("../../../token")


def no_hash(folder: Path) -> None:
    blobs = folder.parents[2] / "blobs"
    (blobs / HASH).rename(blobs / "id_rsa")
    (folder / "model.onnx_data").unlink()
    (folder / "model.onnx_data").symlink_to("../../../blobs/id_rsa")


def blobs_that_are_a_link(folder: Path) -> None:
    blobs = folder.parents[2] / "blobs"
    blobs.rename(folder.parents[5] / "elsewhere")
    blobs.symlink_to(folder.parents[5] / "elsewhere")


def a_blob_that_is_a_link(folder: Path) -> None:
    blob = folder.parents[2] / "blobs" / HASH
    blob.rename(folder.parents[5] / HASH)
    blob.symlink_to(folder.parents[5] / HASH)


def a_blob_that_is_a_pipe(folder: Path) -> None:
    blob = folder.parents[2] / "blobs" / HASH
    blob.unlink()
    os.mkfifo(blob)


def below_the_blobs(folder: Path) -> None:
    blobs = folder.parents[2] / "blobs"
    (blobs / "more").mkdir()
    (blobs / HASH).rename(blobs / "more" / HASH)
    (folder / "model.onnx_data").unlink()
    (folder / "model.onnx_data").symlink_to(f"../../../blobs/more/{HASH}")


def of_another_shape(folder: Path) -> None:
    folder.parents[2].rename(folder.parents[3] / "net")


@pytest.mark.parametrize(
    "change",
    [of_another_repository, beside_the_blobs, no_hash, blobs_that_are_a_link,
     a_blob_that_is_a_link, a_blob_that_is_a_pipe, below_the_blobs, of_another_shape],
)  # fmt: skip
def test_no_other_link_of_a_hugging_face_cache_is_followed(
    tmp_path: Path, change: Callable[[Path], None]
) -> None:
    folder = cached(tmp_path / "a" / "b")
    change(folder)
    if not folder.exists():
        folder = tmp_path / "a" / "b" / "hub" / "net" / "snapshots" / "1f" / "onnx"
    refused(folder / "model.onnx", "a link to .* outside the model's folder|not a regular file")


# --------------------------------------------------------------------------- any path at all

PARTS = st.sampled_from(
    ["..", ".", "", "/", "w.bin", "parts", "inside", "outside", "far", "up", "circle", "pipe",
     "etc", "passwd", "~", "\0", "\\", "//", "…", "x" * 300]
)  # fmt: skip
LOCATIONS = st.one_of(
    st.lists(PARTS, max_size=8).map("/".join),
    st.lists(PARTS, max_size=4).map("".join),
    st.text(max_size=20),
)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return model_folder(tmp_path_factory.mktemp("any"))


@given(location=LOCATIONS)
def test_no_location_whatsoever_leads_out_of_the_models_folder(shared: Path, location: str) -> None:
    weight = with_weight({"location": location}).graph.initializer[0]
    try:
        file = file_of(weight, shared, "weight 'w'")
    except cnn.ModelError:
        return
    assert not file.is_symlink()
    assert file.is_file()
    assert file.is_relative_to(shared.resolve())


@given(
    entries=st.dictionaries(
        st.sampled_from(["location", "offset", "length", "checksum", "basepath"]),
        st.sampled_from(["w.bin", "0", "432", "433", "-8", "abc", "", "../secret", "9" * 30]),
    ),
    dims=st.lists(st.sampled_from([-1, 0, 1, 3, 4, 2**31, 2**62]), max_size=6),
    kind=st.integers(-1, 30),
)
def test_no_weight_whatsoever_takes_more_than_its_file_has(
    shared: Path, entries: dict[str, str], dims: list[int], kind: int
) -> None:
    try:
        proto = with_weight(entries, tuple(dims), kind)
        external = external_contents(external_tensors(proto), shared, "model.onnx")
        _, weights = detach(proto, external, "model.onnx")
    except cnn.ModelError:
        return
    bits = {onnx.TensorProto.INT4: 4, onnx.TensorProto.UINT4: 4, 25: 2, 26: 2}  # 2 bits: recent
    narrower = 8 // bits.get(kind, 8)
    assert weights["w"].nbytes <= WEIGHT.nbytes * narrower
    assert weights["w"].shape == tuple(dims)


# --------------------------------------------------- files that change while they are in use


@pytest.mark.parametrize("change", ["truncated", "overwritten"])
def test_a_weight_file_that_changes_after_it_was_read_changes_nothing(
    folder: Path, change: str
) -> None:
    """A mapped file that is truncated would end the process by SIGBUS, hence its own process.
    What is cut later is what the digest was taken of."""
    path = save(with_weight({"location": "w.bin"}), folder)
    code = f"""
import os, sys
from pathlib import Path
import cnn
model = cnn.read({str(path)!r})
with open({str(folder / "w.bin")!r}, "r+b") as file:
    file.truncate(0) if {change!r} == "truncated" else file.write(bytes(432))
layers = [layer.name for layer in model.network.layers]
subnet = model.cut(layers, model.network.inputs, model.network.outputs, Path({str(folder)!r}))
value, = model.weights.values()
sys.stdout.write(value.tobytes().hex())
"""
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, timeout=60)
    assert bytes.fromhex(done.stdout.decode()) == WEIGHT.tobytes()


def test_a_weight_file_that_the_disk_has_no_room_for_is_a_sentence_and_not_a_full_disk(
    folder: Path,
) -> None:
    """All of it is a hole, so it takes no room itself."""
    path = save(with_weight({"location": "w.bin"}), folder)
    free_bytes = shutil.disk_usage(tempfile.gettempdir()).free
    os.truncate(folder / "w.bin", free_bytes * 4)
    with pytest.raises(cnn.ModelError, match=r"w\.bin have to be copied to .*; set TMPDIR to"):
        cnn.read(path)


def test_no_copy_of_a_weight_file_stays(
    folder: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary = tmp_path_factory.mktemp("temporary")
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    model = cnn.read(save(with_weight({"location": "w.bin"}), folder))
    assert list(temporary.iterdir()) == []
    np.testing.assert_array_equal(next(iter(model.weights.values())), WEIGHT)


def test_weights_in_one_file_take_one_descriptor(folder: Path) -> None:
    gc.collect()  # else what earlier tests have left is closed meanwhile
    before = len(os.listdir("/proc/self/fd"))
    proto = with_weight({"location": "w.bin"})
    for number, location in enumerate(["w.bin", "./w.bin"] * 30):
        more = proto.graph.initializer.add()
        more.CopyFrom(proto.graph.initializer[0])
        more.name = f"w{number}"
        more.external_data[0].value = location
    external = external_contents(external_tensors(proto), folder, "model.onnx")
    _, weights = detach(proto, external, "model.onnx")
    assert len(weights) == 61
    assert len(os.listdir("/proc/self/fd")) == before + 1


@pytest.mark.parametrize("kind", ["pipe", "folder", "/dev/zero"])
def test_a_model_is_a_regular_file(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "model.onnx"
    match kind:
        case "pipe":
            os.mkfifo(path)
        case "folder":
            path.mkdir()
        case _:
            path.symlink_to(kind)
    with pytest.raises(cnn.ModelError, match=r"it is not a regular file|Is a directory"):
        cnn.read(path)


def test_a_model_may_be_a_link(folder: Path) -> None:
    save(with_weight({"location": "w.bin"}), folder)
    (folder / "link.onnx").symlink_to("model.onnx")
    assert cnn.read(folder / "link.onnx").network.name == "link"
