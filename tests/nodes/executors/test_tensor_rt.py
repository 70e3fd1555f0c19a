"""TensorRT: its pure parts everywhere, the contract where there are its libraries and a GPU.

What needs the libraries and no GPU is in `test_tensor_rt_builds.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from csdf_edge.testing.executor_contract import ExecutorContract
from nodes.executors.base import Executor, ExecutorError, LoadOptions, TensorSpec
from nodes.executors.onnx.signature import DeclaredTensor
from nodes.executors.tensor_rt.engine import tensorrt_missing
from nodes.executors.tensor_rt.executor import TensorRtExecutor
from nodes.executors.tensor_rt.layout import (
    ALIGNMENT_BYTES,
    Gpu,
    ParserError,
    builder_failure,
    check_dtype,
    check_operators,
    engine_key,
    lay_out,
    parser_failure,
    tensor_spec,
    timing_key,
    view,
    wants_fp16_flag,
)

ORIN = Gpu("Orin", (8, 7))


class TestOnTheGpu(ExecutorContract):
    dtypes = ("float32", "float16", "int32", "int64", "bool")

    @pytest.fixture
    def executor(self, tmp_path: Path) -> Iterator[Executor]:
        missing = tensorrt_missing()
        if missing:
            pytest.skip(f"TensorRT: {missing}")
        executor = TensorRtExecutor(tmp_path / "derived")
        yield executor
        executor.close()


# ------------------------------------------------------------------------------ keys


def test_an_engines_key_differs_for_whatever_makes_it_another_engine() -> None:
    options = LoadOptions()
    keys = {
        engine_key("d", "TensorRT 10.3.0", ORIN, options),
        engine_key("e", "TensorRT 10.3.0", ORIN, options),
        engine_key("d", "TensorRT 10.4.0", ORIN, options),
        engine_key("d", "TensorRT-RTX 10.3.0", ORIN, options),
        engine_key("d", "TensorRT 10.3.0", replace(ORIN, name="Thor"), options),
        engine_key("d", "TensorRT 10.3.0", replace(ORIN, capability=(8, 6)), options),
        engine_key("d", "TensorRT 10.3.0", ORIN, replace(options, precision="fp16")),
        engine_key(
            "d", "TensorRT 10.3.0", ORIN, replace(options, engine_options={"workspace_bytes": "1"})
        ),
    }
    assert len(keys) == 8
    assert engine_key("d", "TensorRT 10.3.0", ORIN, replace(options, threads=9)) in keys


def test_timings_are_shared_by_the_subnets_of_one_gpu_and_version() -> None:
    assert timing_key("10.3.0", ORIN) == timing_key("10.3.0", Gpu("Orin", (8, 7)))
    assert timing_key("10.3.0", ORIN) != timing_key("10.4.0", ORIN)


# ------------------------------------------------------------------------------ tensors


@pytest.mark.parametrize(
    ("data_type", "dtype"),
    [
        ("FLOAT", "float32"), ("HALF", "float16"), ("INT8", "int8"), ("INT32", "int32"),
        ("INT64", "int64"), ("UINT8", "uint8"), ("BOOL", "bool"),
    ],
)  # fmt: skip
def test_data_types_are_numpys(data_type: str, dtype: str) -> None:
    assert tensor_spec("s", "x", data_type, (1, 3)) == TensorSpec(dtype, (1, 3))


@pytest.mark.parametrize("data_type", ["BF16", "FP8", "INT4", "FP4", "E8M0"])
def test_data_types_that_numpy_lacks_are_refused(data_type: str) -> None:
    with pytest.raises(ExecutorError, match=f'subnet s: "x" is of TensorRT\'s type {data_type}'):
        tensor_spec("s", "x", data_type, (1,))


def test_a_dynamic_dimension_is_refused() -> None:
    with pytest.raises(ExecutorError, match=r'subnet s: "x" has the dynamic shape \[.\?., 3\]'):
        tensor_spec("s", "x", "FLOAT", (-1, 3))


specs = st.builds(
    TensorSpec,
    st.sampled_from(["float32", "float16", "int64", "uint8", "bool"]),
    st.lists(st.integers(0, 7), max_size=4).map(tuple),
)
tensors = st.dictionaries(st.text("abcdef", min_size=1), specs, max_size=6)


@given(tensors=tensors)
def test_tensors_lie_aligned_and_apart_within_the_block(tensors: dict[str, TensorSpec]) -> None:
    bindings, size = lay_out(tensors)
    assert {binding.name: binding.spec for binding in bindings} == tensors
    end = 0
    for binding in bindings:
        assert binding.offset_bytes % ALIGNMENT_BYTES == 0
        assert binding.offset_bytes >= end
        end = binding.offset_bytes + max(binding.spec.size_bytes, 1)
    assert 0 < max(end, 1) <= size


@given(tensors=tensors)
def test_views_of_a_block_write_where_the_layout_says(tensors: dict[str, TensorSpec]) -> None:
    bindings, size = lay_out(tensors)
    block = np.zeros(size, np.uint8)
    for value, binding in enumerate(bindings, start=1):
        array = view(block.ctypes.data, binding)
        assert (array.shape, array.dtype) == (binding.spec.shape, np.dtype(binding.spec.dtype))
        array[...] = value
    for value, binding in enumerate(bindings, start=1):
        start, spec = binding.offset_bytes, binding.spec
        content = block[start : start + spec.size_bytes].tobytes()
        assert content == np.full(spec.shape, value, spec.dtype).tobytes()


# ------------------------------------------------------------------------------ words


def test_half_precision_is_refused_where_there_is_no_flag_for_it() -> None:
    half = LoadOptions(precision="fp16")
    assert wants_fp16_flag("s", "TensorRT 10.16.1.11", half, has_flag=True)
    assert not wants_fp16_flag("s", "TensorRT 10.16.1.11", LoadOptions(), has_flag=True)
    assert not wants_fp16_flag("s", "TensorRT 11.4.0.106", LoadOptions(), has_flag=False)
    with pytest.raises(ExecutorError, match=r"TensorRT 11\.4\.0\.106 takes its precision from"):
        wants_fp16_flag("s", "TensorRT 11.4.0.106", half, has_flag=False)


def test_an_operator_of_onnx_runtimes_own_is_refused_by_its_layers_name() -> None:
    check_operators("s", "TensorRT 10.3.0", "")
    with pytest.raises(ExecutorError, match=r"layer 'a' \(QLinearAdd\) is an operator that ONNX"):
        check_operators("s", "TensorRT 10.3.0", "'a' (QLinearAdd)")


@pytest.mark.parametrize("dtype", ["float64", "int16", "uint32", "uint64", "string", "bfloat16"])
def test_inputs_and_outputs_of_a_dtype_that_tensorrt_lacks_are_refused(dtype: str) -> None:
    with pytest.raises(ExecutorError, match=f'subnet s: "x" is {dtype}, which TensorRT 10 cannot'):
        check_dtype("s", "TensorRT 10", DeclaredTensor("x", dtype))


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8", "int32", "int64", "uint8", "bool"])
def test_others_are_not(dtype: str) -> None:
    check_dtype("s", "TensorRT 10", DeclaredTensor("x", dtype))


ELSEWHERE = "; pin the layer to a node that runs ONNX Runtime, or use the executor `onnxruntime`"


@pytest.mark.parametrize(
    ("description", "because"),
    [
        ("No importer\nregistered for op: Foo.", ": No importer registered for op: Foo"),
        ("false", ""),
        ('Assertion failed: creator && "Plugin not found."', ": Plugin not found"),
        ("Assertion failed: a == b: sizes differ.", ": a == b: sizes differ"),
    ],
)
def test_the_parsers_first_complaint_names_layer_and_operator(
    description: str, because: str
) -> None:
    first = ParserError("n1", "Foo", description)
    start = "subnet s: TensorRT 10.3.0 cannot build layer 'n1' (Foo)"
    alone = parser_failure("s", "TensorRT 10.3.0", [first])
    assert alone.startswith(start + because + ELSEWHERE)
    several = parser_failure("s", "TensorRT 10.3.0", [first, first, first])
    assert several.startswith(start + because + " (and 2 more errors)" + ELSEWHERE)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[a.cpp::f::1] Error Code 2: OutOfMemory (10 bytes.)", "OutOfMemory (10 bytes.)"),
        (
            "I::build: Error Code 4: API Usage Error (No output. In validate at /_src/a.cpp:38)",
            "No output",
        ),
        (
            "I::build: Error Code 1: Myelin ([a.h:1: f] E: b.cpp:2: CHECK(false) failed. Deconv "
            "In compileGraph at /_src/c.cpp:3)",
            "Deconv",
        ),
        ("", "it does not say why"),
    ],
)
def test_the_builders_complaint_is_without_its_source(text: str, words: str) -> None:
    assert f"10.3.0 cannot build an engine from it: {words}; raise the workspace limit" in (
        builder_failure("s", "TensorRT 10.3.0", text)
    )


def test_a_complaint_about_no_layer_is_about_the_model() -> None:
    error = ParserError("", "", "bad")
    assert "10.3.0 cannot build the model: bad;" in parser_failure("s", "TensorRT 10.3.0", [error])
    assert "does not say why" in parser_failure("s", "TensorRT 10.3.0", [])
