"""TVM: its pure parts everywhere, the contract where it is installed (`make test-tvm`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib.metadata import version as distribution_version
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

from csdf_edge.testing import executor_models as models
from csdf_edge.testing.executor_contract import (
    OPTIONS,
    EngineContract,
    largest_error,
    some_inputs,
)
from nodes.executors.base import Executor, ExecutorError, LoadOptions, TensorSpec
from nodes.executors.preparing.entries import Job
from nodes.executors.tvm.compiled import (
    ALIGNMENT_BYTES,
    LIBRARY,
    CompiledTensors,
    aligned_array,
    lay_out,
    library_key,
    tuning_s,
)
from nodes.executors.tvm.engine import TvmEngine
from nodes.executors.tvm.executor import TvmExecutor

MISSING = TvmEngine().missing()
needs_tvm = pytest.mark.skipif(MISSING is not None, reason=f"TVM: {MISSING}; `make test-tvm`")


@pytest.fixture
def tvm(tmp_path: Path) -> Iterator[Executor]:
    executor = TvmExecutor(tmp_path / "derived")
    yield executor
    executor.close()


@needs_tvm
class TestOnThisCpu(EngineContract):
    wrong_options: ClassVar = {"tuning_s": "soon"}

    def engine(self) -> TvmEngine:
        return TvmEngine()


@needs_tvm
def test_the_version_is_that_of_the_installed_package(tvm: Executor) -> None:
    assert f"TVM {distribution_version('apache-tvm')} " in tvm.describe()


@needs_tvm
def test_a_restricted_agent_computes_with_it(
    compute_in_a_restricted_agent: Callable[[str, str], None],
) -> None:
    """It may load the library that its child has compiled."""
    compute_in_a_restricted_agent("tvm", "TVM")


# ------------------------------------------------------------------------------ the cache


@needs_tvm
def test_a_second_executor_loads_without_compiling(tvm: Executor, tmp_path: Path) -> None:
    graph = models.save(models.residual(), tmp_path / "graph")
    tvm.prepare([graph], OPTIONS)
    second = TvmExecutor(tmp_path / "derived")
    second.interrupt()  # no child can start
    subnet = second.load(graph, OPTIONS)
    second.resume()
    assert set(subnet.run(some_inputs(subnet))) == {"y"}


@needs_tvm
@pytest.mark.parametrize("content", [b"", b"no library", None], ids=["empty", "text", "truncated"])
def test_a_damaged_library_is_compiled_again(
    tvm: Executor, tmp_path: Path, content: bytes | None
) -> None:
    graph = models.save(models.residual(), tmp_path / "graph")
    tvm.prepare([graph], OPTIONS)
    (library,) = (tmp_path / "derived").glob(f"*/{LIBRARY}")
    library.write_bytes(library.read_bytes()[:999] if content is None else content)
    subnet = tvm.load(graph, OPTIONS)
    inputs = some_inputs(subnet)
    expected = models.evaluate(models.residual(), inputs)["y"]
    assert largest_error(subnet.run(inputs)["y"], expected) <= 1e-4


@needs_tvm
@pytest.mark.parametrize("place", ["folder", "entry", "library"])
def test_a_library_that_others_can_write_is_not_loaded(
    tvm: Executor, tmp_path: Path, place: str
) -> None:
    graph = models.save(models.residual(), tmp_path / "graph")
    tvm.prepare([graph], OPTIONS)
    (library,) = (tmp_path / "derived").glob(f"*/{LIBRARY}")
    path = {"folder": library.parent.parent, "entry": library.parent, "library": library}[place]
    path.chmod(0o777)
    with pytest.raises(ExecutorError, match=f"{path} is not loaded, because other users"):
        tvm.load(graph, OPTIONS)


# ------------------------------------------------------------------------------ other machines


@needs_tvm
@pytest.mark.slow  # `zig cc` builds a C library first
def test_a_library_for_aarch64_is_made_on_any_machine(tmp_path: Path) -> None:
    from nodes.executors.tvm.build import CompileTarget, compile_for, find_linker  # noqa: PLC0415

    machine = CompileTarget("aarch64-linux-gnu", "cortex-a72")
    try:
        find_linker(machine)
    except ExecutorError as error:
        pytest.skip(str(error))
    graph = models.save(models.residual(), tmp_path / "graph")
    folder = tmp_path / "made"
    folder.mkdir()
    compile_for(machine, Job(graph, "residual0", "key"), OPTIONS, folder)
    header = (folder / LIBRARY).read_bytes()[:20]
    assert header[:4] == b"\x7fELF"
    assert int.from_bytes(header[18:20], "little") == 183, "EM_AARCH64"


@needs_tvm
def test_a_machine_without_a_linker_is_reported_what_to_install() -> None:
    from nodes.executors.tvm.build import CompileTarget, find_linker  # noqa: PLC0415

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", "/nonexistent")
        patch.setattr("nodes.executors.tvm.build.find_spec", lambda _: None)
        with pytest.raises(ExecutorError, match=r"needs a linker for riscv64.*ziglang"):
            find_linker(CompileTarget("riscv64-linux-gnu"))


# ------------------------------------------------------------------------------ tuning


@needs_tvm
@pytest.mark.slow
def test_a_tuned_subnet_computes_the_same(tvm: Executor, tmp_path: Path) -> None:
    graph = models.save(models.residual(), tmp_path / "graph")
    subnet = tvm.load(graph, LoadOptions(engine_options={"tuning_s": "5"}))
    inputs = some_inputs(subnet)
    expected = models.evaluate(models.residual(), inputs)["y"]
    assert largest_error(subnet.run(inputs)["y"], expected) <= 1e-4


@pytest.mark.parametrize("text", ["", "x", "-1", "nan", "inf", "1e9"])
def test_a_budget_that_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(ExecutorError, match="tuning_s must be a number from 0 to 604800"):
        tuning_s(LoadOptions(engine_options={"tuning_s": text}))


# ------------------------------------------------------------------------------ keys and layout


def test_a_librarys_key_differs_for_whatever_makes_it_another_library() -> None:
    tuned = {"tuning_s": "60"}
    keys = {
        library_key("d", "0.27", "cpu", LoadOptions()),
        library_key("e", "0.27", "cpu", LoadOptions()),
        library_key("d", "0.28", "cpu", LoadOptions()),
        library_key("d", "0.27", "another", LoadOptions()),
        library_key("d", "0.27", "cpu", LoadOptions(engine_options=tuned)),
        library_key("d", "0.27", "cpu", LoadOptions(engine_options=tuned, threads=2)),
    }
    assert len(keys) == 6
    assert library_key("d", "0.27", "cpu", LoadOptions(threads=2)) in keys


def test_tensors_are_read_as_they_were_written(tmp_path: Path) -> None:
    tensors = CompiledTensors(
        {"x": TensorSpec("float32", (1, 3))},
        {"y": TensorSpec("int64", ())},
        lay_out([np.zeros((3, 5), np.float32), np.zeros(7, np.int8)]),
    )
    tensors.write(tmp_path)
    assert CompiledTensors.read(tmp_path) == tensors
    assert all(weight.offset_bytes % ALIGNMENT_BYTES == 0 for weight in tensors.weights)


@pytest.mark.parametrize("shape", [(), (3,), (1, 3, 7, 5)])
def test_input_buffers_are_aligned_for_vector_loads(shape: tuple[int, ...]) -> None:
    array = aligned_array(TensorSpec("float32", shape))
    assert array.shape == shape
    assert array.ctypes.data % ALIGNMENT_BYTES == 0
