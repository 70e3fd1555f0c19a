"""Every way in takes arrays of any byte order and layout, or refuses them in one sentence.

A result that was computed from the bytes of another byte order looks like any other. ONNX Runtime
alone, with which results are compared, reads such bytes just as wrongly.
"""

from __future__ import annotations

import asyncio
import io
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as some
from onnx import helper

import csdf_edge
from cnn.network import Tensor
from csdf_edge import LiveCluster
from launcher.config.network import InputConfig
from launcher.errors import BadInputError
from launcher.inputs.arrays import LastArchive, open_arrays, read_arrays
from launcher.inputs.fitting import fit, image_format
from launcher.inputs.frames import frames_digest
from launcher.run.tensors import as_tensor
from launcher.serve.tensors import from_bytes, to_bytes
from launcher.sources.stdin import PipeSource
from launcher.streaming.live_model import TensorInfo
from tests.effort import examples
from tests.nodes.executors.whole import run_whole

DTYPES = (
    "bool",
    *("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "float32", "float64"),
)
SHAPE = (2, 3)
WAIT_S = 20.0

Layout = Callable[[np.ndarray], np.ndarray]


class Own(np.ndarray):
    """An array of a program's own class."""


def swapped(array: np.ndarray) -> np.ndarray:
    return array.astype(array.dtype.newbyteorder("S"))


def strided(array: np.ndarray) -> np.ndarray:
    return np.repeat(array, 2, axis=-1)[..., ::2] if array.ndim else array


def backwards(array: np.ndarray) -> np.ndarray:
    return np.flip(np.flip(array).copy())


def read_only(array: np.ndarray) -> np.ndarray:
    array = array.copy()
    array.flags.writeable = False
    return array


def unaligned(array: np.ndarray) -> np.ndarray:
    data = b"\0" + array.tobytes()
    return np.frombuffer(data, array.dtype, array.size, 1).reshape(array.shape)


LAYOUTS: tuple[Layout, ...] = (
    *(swapped, strided, backwards, read_only, unaligned, np.asfortranarray),
    *(np.ma.masked_array, lambda array: array.view(Own), lambda array: array.copy()),
)
"""None of these changes a value."""


@st.composite
def arrays(draw: st.DrawFn, dtype: str, shape: tuple[int, ...] = SHAPE) -> tuple[np.ndarray, ...]:
    """An array, and the same values in another byte order and layout."""
    plain = draw(some.arrays(dtype, shape, elements={"allow_nan": False} if "f" in dtype else None))
    other = plain
    for layout in draw(st.lists(st.sampled_from(LAYOUTS), min_size=1, max_size=4)):
        other = np.asanyarray(layout(other)).reshape(plain.shape)
    return plain, other


@st.composite
def any_arrays(draw: st.DrawFn) -> tuple[np.ndarray, ...]:
    shape = draw(st.sampled_from([(), (1,), SHAPE, (2, 1, 3), (0, 2)]))
    return draw(arrays(draw(st.sampled_from(DTYPES)), shape))


def same(found: np.ndarray, wanted: np.ndarray) -> None:
    assert type(found) is np.ndarray
    assert found.dtype == wanted.dtype
    assert found.dtype.isnative
    assert found.shape == wanted.shape
    assert found.tobytes() == wanted.tobytes()


# ---------------------------------------------------------------- the place that all ways share


@given(any_arrays(), st.booleans())
def test_an_array_of_any_byte_order_and_layout_is_the_same_tensor(
    pair: tuple[np.ndarray, ...], copy: bool
) -> None:
    plain, other = pair
    tensor = as_tensor(other, "x", plain.dtype.name, plain.shape, copy=copy)
    same(tensor, plain)
    assert tensor.flags.c_contiguous
    assert not (copy and tensor.size and np.shares_memory(tensor, other))


@given(any_arrays())
def test_lists_hold_the_same_numbers(pair: tuple[np.ndarray, ...]) -> None:
    plain, _ = pair
    if plain.size:
        same(as_tensor(plain.tolist(), "x", plain.dtype.name, plain.shape), plain)


@given(any_arrays(), st.sampled_from(DTYPES))
def test_an_array_of_another_dtype_is_refused_in_every_byte_order(
    pair: tuple[np.ndarray, ...], dtype: str
) -> None:
    _, other = pair
    if other.dtype.newbyteorder("=") != np.dtype(dtype):
        with pytest.raises(BadInputError, match=f"is {other.dtype.name}.* takes {dtype}"):
            as_tensor(other, "x", dtype, other.shape)


masked = np.ma.masked_array(np.zeros(SHAPE, "f4"), np.eye(2, 3))


@pytest.mark.parametrize(
    ("value", "dtype", "why"),
    [
        (masked, "float32", "has masked values"),
        ([masked[0], masked[1]], "float32", "has masked values"),
        ([[np.ma.masked, 1.0, 2.0]] * 2, "float32", "has masked values"),
        (np.zeros(SHAPE, object), "float32", r"is object\[2, 3\]"),
        (np.zeros(SHAPE, [("a", ">f4")]), "float32", r"is void32\[2, 3\]"),
        (np.zeros(SHAPE, "M8[s]"), "float32", "is datetime64"),
        (np.full(SHAPE, "1"), "float32", "is str"),
        ([["1", "2", "3"]] * 2, "float32", "instead of numbers"),
        ([[None, 1, 2]] * 2, "float32", "holds object instead of numbers"),
        ([[1j, 1, 2]] * 2, "float32", "holds complex128 instead of numbers"),
        ([[1, 2], [3]], "float32", "is not an array of numbers"),
        ("hello", "float32", "holds text instead of numbers"),
        (None, "float32", "instead of numbers"),
        (iter([1.0]), "float32", "instead of numbers"),
        ([[1, 2, 300]] * 2, "uint8", "numbers that uint8 cannot represent"),
        ([[1, 2, -3]] * 2, "uint64", "numbers that uint64 cannot represent"),
        ([[1, 2, 0.5]] * 2, "int64", "numbers that int64 cannot represent"),
        ([[1, 2, float("nan")]] * 2, "int32", "numbers that int32 cannot represent"),
        ([[1, 2, 1e39]] * 2, "float32", "numbers that float32 cannot represent"),
        ([[1, 2, 2]] * 2, "bool", "numbers that bool cannot represent"),
    ],
)
def test_anything_but_a_tensor_is_refused_in_one_sentence(
    value: object, dtype: str, why: str
) -> None:
    with pytest.raises(BadInputError, match=f"^input 'x' .*{why}") as caught:
        as_tensor(value, "x", dtype, SHAPE)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("value", "dtype"),
    [([1, 2**63, 2**64 - 1], "uint64"), ([1.0, 2.0, -3.0], "int16"), ([0, 1, 1.0], "bool")],
)
def test_numbers_in_lists_need_only_their_values(value: list[float], dtype: str) -> None:
    same(as_tensor(value, "x", dtype, (3,)), np.array(value, dtype))


def test_a_list_that_holds_itself_is_refused() -> None:
    endless: list[object] = []
    endless.append(endless)
    with pytest.raises(BadInputError, match="is not an array of numbers"):
        as_tensor(endless, "x", "float32", SHAPE)


def test_an_image_with_masked_pixels_is_refused_and_its_layout_does_not_matter() -> None:
    tensor = Tensor("x", (1, 3, 4, 6), "float32")
    wanted = image_format(tensor, InputConfig(files=("x.png",)), is_classifier=False, where="input")
    image = np.arange(4 * 6 * 3, dtype=np.uint8).reshape(4, 6, 3)
    found, _ = fit(image, wanted)
    for layout in LAYOUTS:
        same(fit(layout(image), wanted)[0], found)
    with pytest.raises(BadInputError, match="masked pixels"):
        fit(np.ma.masked_array(image, image > 9), wanted)


# ---------------------------------------------------------------- files and pipes


@given(st.lists(st.sampled_from(DTYPES).flatmap(arrays), min_size=1, max_size=3))
def test_files_and_pipes_hold_the_same_frames(pairs: list[tuple[np.ndarray, ...]]) -> None:
    inputs = tuple(Tensor(f"x{n}", SHAPE, plain.dtype.name) for n, (plain, _) in enumerate(pairs))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "frame.npz"
        np.savez(path, **{t.name: np.asarray(o) for t, (_, o) in zip(inputs, pairs, strict=True)})
        frame = open_arrays(path, inputs, LastArchive()).frame(0)
        for of_launch, of_folder, (plain, _) in zip(
            frame.values(), read_arrays(path).values(), pairs, strict=True
        ):
            same(of_launch, plain)
            same(of_folder, plain)
        digest = frames_digest([{t.name: p for t, (p, _) in zip(inputs, pairs, strict=True)}])
        assert frames_digest([frame]) == digest
        plain, other = pairs[0]
        np.save(Path(folder) / "frame.npy", np.asarray(other))
        same(read_arrays(Path(folder) / "frame.npy")[""], plain)
        stack = np.stack([other, other]).astype(other.dtype)
        np.save(Path(folder) / "stack.npy", np.asfortranarray(stack))
        opened = open_arrays(Path(folder) / "stack.npy", inputs[:1], LastArchive())
        assert opened.frames == 2
        same(opened.frame(1)["x0"], plain)


@given(st.lists(st.sampled_from(DTYPES).flatmap(arrays), min_size=1, max_size=4))
def test_standard_input_holds_the_same_frames(pairs: list[tuple[np.ndarray, ...]]) -> None:
    written = io.BytesIO()
    for _, other in pairs:
        np.save(written, np.asarray(other))
    reading, writing = os.pipe()
    os.write(writing, written.getvalue())
    os.close(writing)
    try:
        found = [frame.data for frame in PipeSource(reading, "standard input").frames()]
    finally:
        os.close(reading)
    for frame, (plain, _) in zip(found, pairs, strict=True):
        same(frame[""], plain)


@given(any_arrays())
def test_requests_and_answers_are_little_endian(pair: tuple[np.ndarray, ...]) -> None:
    plain, other = pair
    tensor = TensorInfo("x", plain.dtype.name, plain.shape)
    same(from_bytes(tensor, to_bytes(other)), plain)


# ---------------------------------------------------------------- a cluster, and ONNX Runtime alone


def write_twice(path: Path) -> Path:
    """A network that gives each of its inputs, one for every dtype, twice."""
    nodes, inputs, outputs = [], [], []
    for dtype in DTYPES:
        kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        nodes.append(helper.make_node("Concat", [dtype, dtype], [f"{dtype}_2"], axis=0))
        inputs.append(helper.make_tensor_value_info(dtype, kind, list(SHAPE)))
        outputs.append(helper.make_tensor_value_info(f"{dtype}_2", kind, [2 * SHAPE[0], SHAPE[1]]))
    graph = helper.make_graph(nodes, "twice", inputs, outputs)
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), path
    )
    return path


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveCluster]:
    folder = tmp_path_factory.mktemp("twice")
    write_twice(folder / "twice.onnx")
    (folder / "cluster.yaml").write_text("model: twice.onnx\nnodes: [{name: a}, {name: b}]\n")
    with csdf_edge.open(folder / "cluster.yaml", strategy="sequential") as cluster:
        yield cluster


frames = st.fixed_dictionaries({dtype: arrays(dtype) for dtype in DTYPES})

Frame = dict[str, np.ndarray]
Door = Callable[[LiveCluster, Frame], Frame]


def from_stream_async(cluster: LiveCluster, frame: Frame) -> Frame:
    async def first() -> Frame:
        (result,) = [result async for result in cluster.stream_async([frame])]
        return result

    return asyncio.run(first())


DOORS: dict[str, Door] = {
    "infer": lambda cluster, frame: cluster.infer(frame, timeout_s=WAIT_S),
    "submit": lambda cluster, frame: cluster.submit(frame).result(WAIT_S),
    "submit without a copy": lambda c, frame: c.submit(frame, copy=False).result(WAIT_S),
    "stream": lambda cluster, frame: next(iter(list(cluster.stream([frame])))),
    "infer_async": lambda cluster, frame: asyncio.run(cluster.infer_async(frame)),
    "stream_async": from_stream_async,
}


@pytest.mark.slow
@pytest.mark.parametrize("door", DOORS)
@examples(4)  # all layouts of all shapes are tried at `as_tensor`
@given(frame=frames)
def test_a_cluster_computes_the_same_from_any_byte_order_and_layout(
    cluster: LiveCluster, door: str, frame: dict[str, tuple[np.ndarray, ...]]
) -> None:
    result = DOORS[door](cluster, {name: other for name, (_, other) in frame.items()})
    for name, (plain, _) in frame.items():
        assert result[f"{name}_2"].tobytes() == np.concatenate([plain, plain]).tobytes()


@pytest.mark.slow
@pytest.mark.parametrize("door", DOORS)
def test_a_cluster_refuses_masked_values_at_every_door(cluster: LiveCluster, door: str) -> None:
    frame = {dtype: np.zeros(SHAPE, dtype) for dtype in DTYPES}
    with pytest.raises(BadInputError, match="input 'float32' has masked values"):
        DOORS[door](cluster, {**frame, "float32": masked})
    with pytest.raises(BadInputError, match="is object"):
        DOORS[door](cluster, {**frame, "int8": np.zeros(SHAPE, object)})


@settings(
    deadline=None,
    max_examples=10,
    suppress_health_check=[HealthCheck.filter_too_much],  # some draws are longer than it allows
)
@given(frame=frames)
def test_the_reference_computes_the_same_from_any_byte_order(
    tmp_path_factory: pytest.TempPathFactory, frame: dict[str, tuple[np.ndarray, ...]]
) -> None:
    folder = tmp_path_factory.mktemp("reference")
    given = {name: np.asarray(other) for name, (_, other) in frame.items()}
    made = tuple(f"{name}_2" for name in given)
    found = run_whole(write_twice(folder / "twice.onnx"), given, made, folder)
    for name, (plain, _) in frame.items():
        same(found[f"{name}_2"], np.concatenate([plain, plain]))
