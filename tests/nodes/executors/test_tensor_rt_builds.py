"""Engines that TensorRT-RTX builds on a machine without a GPU. None of them is ever run here."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from onnx import TensorProto, helper

from csdf_edge.testing import executor_models as models
from nodes.executors.base import ExecutorError, LoadOptions, TensorSpec
from nodes.executors.cuda import Gpu
from nodes.executors.preparing import process as preparing
from nodes.executors.preparing.entries import Job, PreparedFiles
from nodes.executors.tensor_rt import executor
from nodes.executors.tensor_rt.build import ENGINE, BuiltEngine, build_engine
from nodes.executors.tensor_rt.engine import rtx_refuses
from nodes.executors.tensor_rt.engine_cache import EngineCache
from nodes.executors.tensor_rt.library import Library, import_tensorrt_rtx
from tests.networks import small_models
from tests.nodes.executors.test_bounds import LOOKS_AROUND
from tests.nodes.test_sandbox import is_offered

pytest.importorskip("tensorrt_rtx", reason="TensorRT-RTX is not here; see `make test-tensorrt`")

OPTIONS = LoadOptions()
AMPERE = (8, 6)


@pytest.fixture(scope="module")
def library() -> Library:
    return import_tensorrt_rtx()


def built(library: Library, proto: onnx.ModelProto, folder: Path) -> BuiltEngine:
    job = Job(models.save(proto, folder), proto.graph.name, "key", target="8.6")
    return build_engine(library, job, OPTIONS, AMPERE)


def test_a_gpu_that_tensorrt_rtx_does_not_support_is_told_apart() -> None:
    assert rtx_refuses(AMPERE) is None
    for capability in ((8, 7), (9, 0)):
        shown = ".".join(map(str, capability))
        assert f"cannot build engines for compute capability {shown}" in (
            rtx_refuses(capability) or ""
        )


def refused(library: Library, proto: onnx.ModelProto, folder: Path) -> str:
    with pytest.raises(ExecutorError) as error:
        built(library, proto, folder)
    return str(error.value)


def declared(values: list[onnx.ValueInfoProto]) -> dict[str, TensorSpec]:
    specs = {}
    for value in values:
        kind = value.type.tensor_type
        dtype = np.dtype(helper.tensor_dtype_to_np_dtype(kind.elem_type)).name
        specs[value.name] = TensorSpec(dtype, tuple(d.dim_value for d in kind.shape.dim))
    return specs


def one_layer(
    operator: str,
    kind: int = TensorProto.FLOAT,
    made: int | None = None,
    name: str = "layer",
    outputs: tuple[int | str, ...] = (1, 3),
    **attributes: object,
) -> onnx.ModelProto:
    node = helper.make_node(operator, ["x"], ["y"], name, **attributes)
    result = ("y", kind if made is None else made, outputs)
    return models.model("one", [node], [("x", kind, (1, 3))], [result])


# ------------------------------------------------------------------------------ tensors


@pytest.mark.parametrize(
    "proto",
    [models.residual(), models.classifier(), models.two_in_two_out(), models.mean_of_all(),
     models.passes_through()],
    ids=lambda proto: proto.graph.name,
)  # fmt: skip
def test_an_engine_has_the_models_tensors(
    library: Library, tmp_path: Path, proto: onnx.ModelProto
) -> None:
    engine = built(library, proto, tmp_path)
    assert engine.content.nbytes > 1000
    for found, wanted in (
        (engine.inputs, declared(list(proto.graph.input))),
        (engine.outputs, declared(list(proto.graph.output))),
    ):
        assert list(found.items()) == list(wanted.items())


@settings(max_examples=25)
@given(proto=small_models())
def test_so_has_that_of_any_small_network(
    library: Library, tmp_path: Path, proto: onnx.ModelProto
) -> None:
    engine = built(library, proto, tmp_path)
    assert list(engine.inputs.items()) == list(declared(list(proto.graph.input)).items())
    assert list(engine.outputs.items()) == list(declared(list(proto.graph.output)).items())


@pytest.mark.parametrize(
    ("kind", "dtype"),
    [
        (TensorProto.FLOAT, "float32"), (TensorProto.FLOAT16, "float16"),
        (TensorProto.INT8, "int8"), (TensorProto.INT32, "int32"), (TensorProto.INT64, "int64"),
        (TensorProto.UINT8, "uint8"), (TensorProto.BOOL, "bool"),
    ],
)  # fmt: skip
def test_dtypes_are_kept(library: Library, tmp_path: Path, kind: int, dtype: str) -> None:
    engine = built(library, one_layer("Identity", kind), tmp_path)
    assert engine.inputs == {"x": TensorSpec(dtype, (1, 3))}
    assert engine.outputs == {"y": TensorSpec(dtype, (1, 3))}


# ------------------------------------------------------------------------------ refused


ELSEWHERE = "pin the layer to a node that runs ONNX Runtime, or use the executor `onnxruntime`"
DOUBLE, INT16, INT64 = TensorProto.DOUBLE, TensorProto.INT16, TensorProto.INT64


@pytest.mark.parametrize(
    ("proto", "words"),
    [
        (one_layer("Det", name="a/b", outputs=(1,)), "layer 'a/b' (Det);"),
        (one_layer("Det", name="", outputs=(1,)), "layer 'y' (Det);"),
        (one_layer("NonZero", made=INT64, outputs=(2, "n")), "layer 'layer' (NonZero):"),
        (one_layer("LpPool", kernel_shape=[2], p=3), "layer 'layer' (LpPool): Only L1 and L2"),
        (one_layer("Relu", DOUBLE), '"x" is float64, which TensorRT-RTX'),
        (one_layer("Cast", made=DOUBLE, to=DOUBLE), '"y" is float64, which TensorRT-RTX'),
        (one_layer("Identity", INT16), '"x" is int16, which TensorRT-RTX'),
    ],
    ids=["operator", "unnamed", "size of its own", "attribute", "float64", "to float64", "int16"],
)
def test_what_tensorrt_cannot_build_is_refused_by_name(
    library: Library, tmp_path: Path, proto: onnx.ModelProto, words: str
) -> None:
    sentence = refused(library, proto, tmp_path)
    assert sentence.startswith("subnet one: ")
    assert words in sentence
    assert ELSEWHERE in sentence
    assert "Error Code" not in sentence
    assert "Assertion" not in sentence


def quantised(dtype: type, zero_point: int) -> onnx.ModelProto:
    """A convolution in QDQ form, whose inputs and outputs are floats."""
    weights = {
        "s": np.array(0.1, np.float32),
        "z": np.array(zero_point, dtype),
        "w": np.ones((4, 3, 3, 3), np.int8),
        "ws": np.full(4, 0.01, np.float32),
        "wz": np.zeros(4, np.int8),
    }
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["xq"], "quantise"),
        helper.make_node("DequantizeLinear", ["xq", "s", "z"], ["xd"], "dequantise"),
        helper.make_node("DequantizeLinear", ["w", "ws", "wz"], ["wd"], "kernel", axis=0),
        helper.make_node("Conv", ["xd", "wd"], ["c"], "conv"),
        helper.make_node("QuantizeLinear", ["c", "s", "z"], ["cq"], "quantise again"),
        helper.make_node("DequantizeLinear", ["cq", "s", "z"], ["y"], "out"),
    ]
    given, made = ("x", TensorProto.FLOAT, (1, 3, 8, 8)), ("y", TensorProto.FLOAT, (1, 4, 6, 6))
    return models.model("qdq", nodes, [given], [made], weights)


def test_a_symmetrically_quantised_network_is_built(library: Library, tmp_path: Path) -> None:
    assert built(library, quantised(np.int8, 0), tmp_path).content.nbytes > 1000


@pytest.mark.parametrize(
    ("dtype", "zero_point", "words"),
    [
        (np.int8, 3, "Non-zero zero point is not supported"),
        (np.uint8, 0, "it quantises to uint8, and TensorRT only to int8; pin"),
        (np.uint8, 128, "it quantises to uint8, and TensorRT only to int8; pin"),
    ],
)
def test_others_are_refused_and_not_changed(
    library: Library, tmp_path: Path, dtype: type, zero_point: int, words: str
) -> None:
    """TensorRT's parser would take uint8 with a zero point of 0 for int8, and clip it."""
    sentence = refused(library, quantised(dtype, zero_point), tmp_path)
    assert "cannot build layer 'quantise' (QuantizeLinear): " in sentence
    assert words in sentence


def test_a_dynamic_input_is_refused_by_name(library: Library, tmp_path: Path) -> None:
    value = ("x", TensorProto.FLOAT, ("n", 3))
    node = helper.make_node("Relu", ["x"], ["y"])
    proto = models.model("one", [node], [value], [("y", TensorProto.FLOAT, ("n", 3))])
    assert "\"x\" has the dynamic shape ['?', 3]; give the" in refused(library, proto, tmp_path)


def convolution_of(size: int) -> onnx.ModelProto:
    kernel = np.ones((4, 3, 3, 3), np.float32)
    node = helper.make_node("Conv", ["x", "w"], ["y"], "conv", pads=[1, 1, 1, 1])
    return models.model(
        "large",
        [node],
        [("x", TensorProto.FLOAT, (1, 3, size, size))],
        [("y", TensorProto.FLOAT, (1, 4, size, size))],
        {"w": kernel},
    )


def transposed() -> onnx.ModelProto:
    kernel = np.ones((3, 4, 2, 2), np.float32)
    attributes = {"strides": [3, 1], "dilations": [2, 1]}
    node = helper.make_node("ConvTranspose", ["x", "w"], ["y"], "up", **attributes)
    shapes = ("x", TensorProto.FLOAT, (1, 3, 4, 4)), ("y", TensorProto.FLOAT, (1, 4, 12, 5))
    return models.model("up", [node], [shapes[0]], [shapes[1]], {"w": kernel})


def test_each_refusal_has_its_own_reason(library: Library, tmp_path: Path) -> None:
    """TensorRT ignores a second logger while anything uses the first."""
    for folder in ("first", "second"):
        large = refused(library, convolution_of(80_000), tmp_path / folder)
        assert "cannot build an engine from it: OutOfMemory (Requested size was" in large
        up = refused(library, transposed(), tmp_path / folder)
        assert "from it: Strided & Dilated Deconv are currently not supported; raise" in up


def test_half_precision_must_be_in_the_model(library: Library, tmp_path: Path) -> None:
    job = Job(models.save(models.residual(), tmp_path), "s", "key")
    with pytest.raises(ExecutorError, match="takes its precision from the model; convert the mod"):
        build_engine(library, job, LoadOptions(precision="fp16"), AMPERE)


@pytest.mark.parametrize("capability", [(5, 3), (8, 7), (9, 0)], ids=["Nano", "Orin", "H100"])
def test_gpus_that_tensorrt_rtx_does_not_support_are_refused(
    library: Library, tmp_path: Path, capability: tuple[int, int]
) -> None:
    shown = r"only for 7\.5, 8\.0, 8\.6, 8\.9, 12\.0, .*install TensorRT"
    with pytest.raises(ExecutorError, match=shown):
        EngineCache(library, Gpu("GPU", capability), PreparedFiles(tmp_path))


# ------------------------------------------------------------------------------ not run here


@pytest.mark.parametrize(
    "name",
    [
        "Runtime.deserialize_cuda_engine",
        "ICudaEngine.get_tensor_dtype",
        "ICudaEngine.get_tensor_shape",
        "ICudaEngine.device_memory_size_v2",
        "ICudaEngine.create_execution_context",
        "ExecutionContextAllocationStrategy.USER_MANAGED",
        "IExecutionContext.set_tensor_address",
        "IExecutionContext.set_device_memory",
        "IExecutionContext.execute_async_v3",
    ],
)
def test_what_loads_and_runs_engines_uses_names_that_are_there(library: Library, name: str) -> None:
    owner, _, member = name.partition(".")
    assert hasattr(getattr(library.api, owner), member)
    assert f".{member}" in Path(executor.__file__).read_text("utf-8")


# ------------------------------------------------------------------------------ the cache


@pytest.fixture
def cache(tmp_path: Path) -> PreparedFiles:
    return PreparedFiles(tmp_path / "cache")


CARD = Gpu("RTX", AMPERE)


def test_engines_are_built_in_order_and_kept(
    library: Library, tmp_path: Path, cache: PreparedFiles
) -> None:
    engines = EngineCache(library, CARD, cache)
    graphs = [
        models.save(proto, tmp_path / proto.graph.name)
        for proto in (models.residual(), models.classifier())
    ]
    done: list[Path] = []
    engines.prepare([*graphs, graphs[0]], OPTIONS, done.append)
    assert done == [*graphs, graphs[0]]
    found = [engines.find(engines.job(graph, OPTIONS)) for graph in graphs]
    assert all(path is not None and path.stat().st_size > 1000 for path in found)
    assert sorted(path.name for path in cache.root.iterdir()) == sorted(
        path.parent.name for path in found if path is not None
    )
    engines.interrupt()  # a child would be refused from now on
    engines.prepare(graphs, OPTIONS)
    with pytest.raises(ExecutorError, match="the process that prepares it was stopped"):
        engines.build_anew(engines.job(graphs[0], OPTIONS), OPTIONS)
    engines.resume()
    engines.prepare(graphs, OPTIONS)
    assert engines.find(engines.job(graphs[0], OPTIONS)) is not None
    engines.close()
    engines.resume()
    with pytest.raises(ExecutorError, match="was stopped"):
        engines.build_anew(engines.job(graphs[0], OPTIONS), OPTIONS)


@pytest.mark.skipif(not is_offered(), reason="this kernel offers no Landlock")
def test_the_process_that_builds_is_confined_and_bounded(
    library: Library, cache: PreparedFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It builds for the GPU that it is told of, without a driver."""
    monkeypatch.setattr(preparing, "CHILD", (sys.executable, "-c", LOOKS_AROUND))
    graph = models.save(models.residual(), tmp_path)
    with pytest.raises(ExecutorError, match="its own files, bounded=True"):
        EngineCache(library, CARD, cache).prepare([graph], OPTIONS)


def test_an_engine_is_found_for_the_same_kind_of_gpu_only(
    library: Library, tmp_path: Path, cache: PreparedFiles
) -> None:
    graph = models.save(models.residual(), tmp_path)
    here = EngineCache(library, CARD, cache)
    here.prepare([graph], OPTIONS)
    same, other = (
        EngineCache(library, CARD, cache),
        EngineCache(library, Gpu("RTX", (12, 0)), cache),
    )
    assert same.find(same.job(graph, OPTIONS))
    assert other.find(other.job(graph, OPTIONS)) is None


def test_a_damaged_engine_is_built_again(
    library: Library, tmp_path: Path, cache: PreparedFiles
) -> None:
    graph = models.save(models.residual(), tmp_path)
    engines = EngineCache(library, CARD, cache)
    engines.prepare([graph], OPTIONS)
    job = engines.job(graph, OPTIONS)
    path = cache.root / job.key / ENGINE
    size = path.stat().st_size
    path.write_bytes(bytes(size))
    assert engines.find(job) is None
    engines.prepare([graph], OPTIONS)
    assert engines.find(job) == path
    assert any(path.read_bytes())


def test_of_several_subnets_those_before_the_refused_one_stay_built(
    library: Library, tmp_path: Path, cache: PreparedFiles
) -> None:
    good = models.save(models.residual(), tmp_path / "good")
    bad = models.save(one_layer("Det", name="det", outputs=(1,)), tmp_path / "bad")
    engines, done = EngineCache(library, CARD, cache), []
    with pytest.raises(ExecutorError, match=r"subnet one: TensorRT-RTX .* layer 'det' \(Det\)"):
        engines.prepare([good, bad], OPTIONS, done.append)
    assert done == [good]
    assert engines.find(engines.job(good, OPTIONS)) is not None
