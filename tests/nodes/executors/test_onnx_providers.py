"""ONNX Runtime's execution providers: the contract, what is offered, and what is refused by name.

`make test-providers` installs the wheel with OpenVINO's provider, which computes on the CPU. The
usual wheel has Azure's, which takes no layer, so with it the executor itself can be tested
everywhere. `make test-cuda` installs the wheel with CUDA's, for a machine with an NVIDIA GPU. No
other provider has been run.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import ClassVar

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import numpy_helper

from csdf_edge.testing import executor_models as models
from csdf_edge.testing.executor_contract import OPTIONS, EngineContract, ExecutorContract
from nodes.executors.base import ExecutorError, LoadOptions
from nodes.executors.engines import Engines
from nodes.executors.onnx.engine import OnnxRuntimeEngine, ProviderEngine
from nodes.executors.onnx.providers import probe, probing
from nodes.executors.onnx.providers.executor import ProviderExecutor
from nodes.executors.onnx.providers.probing import devices_of, is_in_wheel
from nodes.executors.onnx.providers.session import open_session
from nodes.executors.onnx.providers.table import (
    BY_WORD,
    CUDA,
    OPENVINO,
    PROVIDERS,
    TENSORRT,
    Provider,
    arguments,
)
from nodes.executors.onnx.sessions import import_onnxruntime
from nodes.executors.preparing.entries import PreparedFiles
from nodes.executors.registry import offers, open_executor
from nodes.protocol.messages import DeviceOffer, EngineChoice, EngineMemory
from tests.nodes.test_sandbox import is_offered

AVAILABLE = onnxruntime.get_available_providers()
AZURE = BY_WORD["azure"]

with_openvino = pytest.mark.skipif(
    OPENVINO.full_name not in AVAILABLE, reason="no OpenVINO in this wheel: `make test-providers`"
)
with_azure = pytest.mark.skipif(AZURE.full_name not in AVAILABLE, reason="no Azure in this wheel")
without_openvino = pytest.mark.skipif(
    OPENVINO.full_name in AVAILABLE, reason="this wheel has OpenVINO"
)


# ------------------------------------------------------------------------------ contract


class TestOpenVinoOnTheCpu(EngineContract):
    device = "cpu"
    wrong_options: ClassVar = {"allow_spinning": "perhaps"}

    def engine(self) -> ProviderEngine:
        return ProviderEngine(OPENVINO)


class TestCudaOnTheFirstGpu(EngineContract):
    device = "gpu"
    wrong_options: ClassVar = {"allow_spinning": "perhaps"}

    def engine(self) -> OnnxRuntimeEngine:
        return OnnxRuntimeEngine()


@with_azure
class TestTheExecutorOfProviders(ExecutorContract):
    """With a provider that leaves every layer to the CPU."""

    @pytest.fixture
    def executor(self, tmp_path: Path) -> Iterator[ProviderExecutor]:
        executor = ProviderExecutor(tmp_path / "derived", "cpu", (AZURE,))
        yield executor
        executor.close()


@with_openvino
@pytest.mark.skipif(not is_offered(), reason="this kernel offers no Landlock")
def test_a_restricted_agent_computes_with_openvinos_provider(
    compute_in_a_restricted_agent: Callable[[str, str], None],
) -> None:
    compute_in_a_restricted_agent("onnxruntime-openvino", "ONNX Runtime")


# ------------------------------------------------------------------------------ what is offered


@with_openvino
def test_openvinos_provider_is_offered_where_it_computes_and_not_elsewhere(tmp_path: Path) -> None:
    (offer,) = offers("onnxruntime-openvino")
    assert DeviceOffer("cpu", ("fp32",)) in offer.devices
    assert "onnxruntime-openvino" in [each.engine for each in offers()], "it is found by its file"
    engines = Engines("auto", "cpu", tmp_path)
    executor, choice = engines.executor_for(EngineChoice("onnxruntime-openvino"))
    assert choice.device == "cpu"
    assert executor.describe().endswith("(OpenVINO on cpu)")
    assert "(CPU)" in engines.executor.describe(), "the usual engine stays the first choice"
    engines.close()


@with_openvino
def test_a_test_of_a_device_is_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    notes = PreparedFiles(tmp_path)
    found = devices_of(OPENVINO, notes)
    monkeypatch.setattr(probing, "_test", lambda *_: probing.Tested(why="again"))
    assert devices_of(OPENVINO, PreparedFiles(tmp_path))[0] == found[0]
    assert devices_of(OPENVINO)[0] == ()


@with_azure
def test_a_provider_that_takes_no_layer_fails_its_test() -> None:
    assert probe.probe(onnxruntime, AZURE, "cpu", ("fp32",)) == (
        [],
        "it left a convolution to the CPU",
    )


@with_azure
def test_a_test_of_a_device_measures_the_memory_of_its_process() -> None:
    tested = probing._test("azure", "cpu", ("fp32",))
    assert tested.why == "it left a convolution to the CPU"
    assert 20e6 < tested.memory_bytes < 200e6


def test_planners_count_on_the_memory_that_a_devices_test_took(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    measured = probing.Tested(("fp32",), memory_bytes=400_000_000)
    monkeypatch.setattr(probing, "_test", lambda *_: measured)
    engine = ProviderEngine(BY_WORD["xnnpack"])
    assert engine.memory_on("cpu").idle_bytes == 400_000_000
    assert engine.memory_on("gpu") == EngineMemory(), "it has no such device"


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", r"crashed \(SIGSEGV\)"),
        ("raise ImportError('libcudnn.so.9: no such file')", r"ended unexpectedly \(exit code 1\)"),
    ],
    ids=["crashes", "cannot be imported"],
)
def test_a_crash_while_a_provider_is_tested_costs_only_its_offer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str, why: str
) -> None:
    (tmp_path / "onnxruntime.py").write_text(content)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    probing._test.cache_clear()
    assert offers("onnxruntime-xnnpack")[0].devices == ()
    assert re.search(why, offers("onnxruntime-xnnpack")[0].missing)
    probing._test.cache_clear()


def test_the_test_network_is_exact_in_float32_only() -> None:
    proto = onnx.load_from_string(probe.CONVOLUTION)
    onnx.checker.check_model(proto)
    (weights,) = proto.graph.initializer
    x = np.full((1, 4, 2, 2), probe.VALUE, np.float32)
    assert numpy_helper.to_array(weights).dtype == np.float32
    np.testing.assert_array_equal(models.evaluate(proto, {"x": x})["y"], x)
    assert abs(float(np.float16(probe.VALUE)) - probe.VALUE) > 10 * probe.LARGEST_ERROR["fp32"]


# ------------------------------------------------------------------------------ what is refused


def test_every_provider_that_onnx_runtime_knows_has_a_name_here() -> None:
    """Where this fails, a new ONNX Runtime has new ones: add each, or say why it is not used."""
    known = {provider.full_name for provider in PROVIDERS} | {"CPUExecutionProvider"}
    assert set(onnxruntime.get_all_providers()) <= known
    assert all(provider.refused or provider.kinds for provider in PROVIDERS)
    assert all(provider.refused or "install" in provider.remedy for provider in PROVIDERS)


@pytest.mark.parametrize(
    "provider", [each for each in PROVIDERS if each.refused], ids=lambda each: each.word
)
def test_a_provider_that_is_not_used_is_refused_by_name(provider: Provider, tmp_path: Path) -> None:
    name = f"onnxruntime-{provider.word}"
    with pytest.raises(ExecutorError, match=f"cannot use the engine {name}: csdf-edge does not"):
        open_executor(name, tmp_path)
    assert name not in [offer.engine for offer in offers()], "nobody has asked for it"


@without_openvino
@pytest.mark.parametrize(
    ("word", "says"),
    [
        ("openvino", r"the installed ONNX Runtime does not have it: .*install onnxruntime-openv"),
        ("migraphx", r"the installed ONNX Runtime does not have it: .*install onnxruntime-migra"),
        ("xnnpack", r"has no provider Xnnpack: build ONNX Runtime with --use_xnnpack"),
    ],
)
def test_a_provider_that_is_not_installed_is_refused_with_what_to_install(
    tmp_path: Path, word: str, says: str
) -> None:
    with pytest.raises(ExecutorError, match=f"engine onnxruntime-{word}: .*{says}"):
        open_executor(f"onnxruntime-{word}", tmp_path)


@pytest.mark.skipif(CUDA.full_name in AVAILABLE, reason="this wheel has CUDA")
def test_an_executor_without_its_provider_says_what_to_install(tmp_path: Path) -> None:
    with pytest.raises(ExecutorError, match=r"has no provider CUDA: .*install onnxruntime-gpu"):
        ProviderExecutor(tmp_path, "gpu", (CUDA,))


@with_openvino
@pytest.mark.skipif(Path("/dev/dri").exists(), reason="this machine may have an Intel GPU")
def test_a_provider_that_cannot_be_opened_is_an_error_and_not_the_cpu(tmp_path: Path) -> None:
    """ONNX Runtime itself would compute on the CPU."""
    graph = models.save(models.residual(), tmp_path)
    ort = import_onnxruntime()
    with pytest.raises(ExecutorError, match=r"subnet residual0: .*OpenVINO.* on gpu"):
        open_session(ort, "residual0", graph, OPTIONS, (OPENVINO,), "gpu", tmp_path)
    tested = probing._test("openvino", "gpu", ("fp32", "fp16"))
    assert tested.precisions == ()
    assert re.fullmatch(
        r"ONNX Runtime \S+ cannot open it; .*Device GPU is not available\)", tested.why
    )


@pytest.mark.parametrize("name", ["onnxruntime-abacus", "onnxruntime-cuda", "onnxruntime-tensorrt"])
def test_what_is_no_provider_of_its_own_is_no_engine(name: str) -> None:
    with pytest.raises(ExecutorError, match=f"there is no engine '{name}'"):
        offers(name)


# ------------------------------------------------------------------------------ settings


def test_a_gpu_computes_in_full_precision_unless_asked(tmp_path: Path) -> None:
    (trt, trt_settings), (cuda, cuda_settings), last = arguments(
        (TENSORRT, CUDA), "gpu:1", LoadOptions(), tmp_path
    )
    assert (trt, cuda) == ("TensorrtExecutionProvider", "CUDAExecutionProvider")
    assert last == "CPUExecutionProvider"
    assert (trt_settings["trt_fp16_enable"], trt_settings["device_id"]) == ("0", "1")
    assert trt_settings["trt_engine_cache_path"] == str(tmp_path)
    assert (cuda_settings["use_tf32"], cuda_settings["device_id"]) == ("0", "1")


@pytest.mark.parametrize(
    ("word", "device", "setting", "full", "half"),
    [
        ("tensorrt", "gpu", "trt_fp16_enable", "0", "1"),
        ("openvino", "gpu", "precision", "FP32", "FP16"),
        ("migraphx", "gpu", "migraphx_fp16_enable", "0", "1"),
        ("cann", "npu", "precision_mode", "force_fp32", "force_fp16"),
    ],
)
def test_a_precision_reaches_the_provider(
    tmp_path: Path, word: str, device: str, setting: str, full: str, half: str
) -> None:
    for precision, value in (("fp32", full), ("fp16", half)):
        options = LoadOptions(precision=precision)
        (_, settings), _ = arguments((BY_WORD[word],), device, options, tmp_path)
        assert settings[setting] == value


@pytest.mark.parametrize(
    ("word", "device", "setting", "value"),
    [
        ("openvino", "cpu", "device_type", "CPU"),
        ("openvino", "gpu", "device_type", "GPU"),
        ("openvino", "gpu:1", "device_type", "GPU.1"),
        ("openvino", "npu", "device_type", "NPU"),
        ("openvino", "cpu", "num_of_threads", "3"),
        ("xnnpack", "cpu", "intra_op_num_threads", "3"),
        ("qnn", "npu", "backend_path", "libQnnHtp.so"),
        ("qnn", "gpu", "backend_path", "libQnnGpu.so"),
        ("rocm", "gpu:2", "device_id", "2"),
    ],
)
def test_device_and_threads_reach_the_provider(
    tmp_path: Path, word: str, device: str, setting: str, value: str
) -> None:
    (_, settings), _ = arguments((BY_WORD[word],), device, LoadOptions(threads=3), tmp_path)
    assert settings[setting] == value


def test_a_wheel_without_providers_tests_no_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """So an agent with the usual wheel starts as fast as before."""
    if any(map(is_in_wheel, PROVIDERS)):
        pytest.skip("this wheel has providers")

    def refuse(*_: object) -> None:
        raise AssertionError("tested a device")

    monkeypatch.setattr(probing, "_test", refuse)
    assert "onnxruntime" in [offer.engine for offer in offers() if not offer.missing]
