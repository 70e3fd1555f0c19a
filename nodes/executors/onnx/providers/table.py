"""Lists ONNX Runtime's execution providers, with the settings by which they compute as asked.

An execution provider computes the layers that it takes, and ONNX Runtime's own CPU kernels compute
the others. Which providers there are is decided when a wheel is built. Each is a separate engine
(`nodes.executors.onnx.engine`), `onnxruntime-WORD`, except CUDA and TensorRT, which belong to the
engines `onnxruntime` and `tensorrt`.

**What has been run**: OpenVINO on the CPU (`onnxruntime-openvino` 1.24), and CUDA on an NVIDIA H200
(`onnxruntime-gpu` 1.31, decision 064). **What has not**: all others, for want of a device or a
wheel. Their settings follow the documentation of ONNX Runtime. In any case, a device is offered
only after it has computed a test network within the tolerance of its precision
(`nodes.executors.onnx.providers.probe`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from nodes.executors.base import LoadOptions

Arguments: TypeAlias = list[str | tuple[str, dict[str, str]]]
"""Providers with their settings, as `InferenceSession` takes them."""

COUNTED_BY_CUDA = "CUDA"


@dataclass(frozen=True, slots=True)
class DeviceKind:
    """A kind of device that a provider can compute on.

    `precisions` are those to try there. `files` is a pattern for the files by which the kernel
    offers such devices, one for each; "" if there is always one, `COUNTED_BY_CUDA` if CUDA says how
    many there are.
    """

    device: str
    precisions: tuple[str, ...] = ("fp32",)
    files: str = ""


@dataclass(frozen=True, slots=True)
class Provider:
    """An execution provider.

    `name` is ONNX Runtime's, without `ExecutionProvider`. `remedy` says what to install where it is
    missing. `is_library`: it lies in a separate file in the wheel. `optimises`: it takes graphs as
    they are and optimises them itself. A provider with `refused`, which says why, is not used.
    """

    word: str
    name: str
    kinds: tuple[DeviceKind, ...] = ()
    remedy: str = ""
    is_library: bool = True
    optimises: bool = False
    refused: str = ""

    @property
    def full_name(self) -> str:
        """Return the name by which ONNX Runtime knows it."""
        return f"{self.name}ExecutionProvider"


_GPU_FILES = "/dev/dri/renderD*"
_CPU, _GPU = DeviceKind("cpu"), DeviceKind("gpu", files=_GPU_FILES)
_GPU_WITH_HALF = DeviceKind("gpu", ("fp32", "fp16"), _GPU_FILES)


def _wheel(name: str) -> str:
    return f"`pip uninstall onnxruntime` and `pip install {name}`"


def _build(option: str) -> str:
    return f"build ONNX Runtime with {option}, for which PyPI has no wheel, and install that"


CUDA = Provider(
    "cuda", "CUDA", (DeviceKind("gpu", files=COUNTED_BY_CUDA),), _wheel("onnxruntime-gpu")
)
TENSORRT = Provider(
    "tensorrt",
    "Tensorrt",
    (DeviceKind("gpu", ("fp32", "fp16"), COUNTED_BY_CUDA),),
    _wheel("onnxruntime-gpu"),
)
OPENVINO = Provider(
    "openvino",
    "OpenVINO",
    (_CPU, _GPU_WITH_HALF, DeviceKind("npu", ("fp16",), "/dev/accel/accel*")),
    _wheel("onnxruntime-openvino"),
    optimises=True,
)
"""It refuses a graph in which ONNX Runtime's optimisers have made an output a constant."""

PROVIDERS = (
    CUDA,
    TENSORRT,
    OPENVINO,
    Provider("migraphx", "MIGraphX", (_GPU_WITH_HALF,), _wheel("onnxruntime-migraphx")),
    Provider("rocm", "ROCM", (_GPU,), _wheel("onnxruntime-rocm")),
    Provider("webgpu", "WebGpu", (_GPU,), _wheel("onnxruntime-webgpu"), is_library=False),
    Provider(
        "qnn",
        "QNN",
        (
            DeviceKind("npu", ("fp16",), "/dev/fastrpc-cdsp*"),
            DeviceKind("gpu", files="/dev/kgsl-3d*"),
        ),
        _build("--use_qnn"),
    ),
    Provider(
        "cann",
        "CANN",
        (DeviceKind("npu", ("fp32", "fp16"), "/dev/davinci[0-9]*"),),
        _wheel("onnxruntime-cann"),
    ),
    Provider("dnnl", "Dnnl", (_CPU,), _build("--use_dnnl")),
    Provider("xnnpack", "Xnnpack", (_CPU,), _build("--use_xnnpack"), is_library=False),
    Provider("acl", "ACL", (_CPU,), _build("--use_acl"), is_library=False),
    Provider("azure", "Azure", refused="it sends tensors to a web service"),
    Provider("coreml", "CoreML", refused="it needs macOS, and agents run on Linux"),
    Provider("dml", "Dml", refused="DirectML needs Windows, and agents run on Linux"),
    Provider("nnapi", "Nnapi", refused="it needs Android, and agents run on Linux"),
    Provider("js", "Js", refused="it is for browsers"),
    Provider("webnn", "WebNN", refused="it is for browsers"),
    Provider(
        "nvtensorrtrtx",
        "NvTensorRTRTX",
        refused="the engine `tensorrt` takes TensorRT-RTX itself: `pip install "
        "tensorrt-rtx-cu12 cuda-python`",
    ),
    *(
        Provider(name.lower(), name, refused="this version does not know how to set it up")
        for name in ("ArmNN", "Rknpu", "VitisAI", "VSINPU")
    ),
)

BY_WORD = {provider.word: provider for provider in PROVIDERS}


def split(device: str) -> tuple[str, int]:
    """Return the kind of a device and its number among those of its kind.

    >>> split("gpu"), split("gpu:1")
    (('gpu', 0), ('gpu', 1))
    """
    kind, _, number = device.partition(":")
    return kind, int(number or 0)


def arguments(
    providers: Sequence[Provider], device: str, options: LoadOptions, cache: Path
) -> Arguments:
    """Return `providers` with their settings in order of preference, and the CPU last.

    `cache` is where TensorRT keeps its engines.
    """
    found: Arguments = [
        (each.full_name, _settings(each, device, options, cache)) for each in providers
    ]
    return [*found, "CPUExecutionProvider"]


def _settings(provider: Provider, device: str, options: LoadOptions, cache: Path) -> dict[str, str]:
    """Return the settings by which a provider computes on a device in the precision asked for.

    In fp32 it must agree with the model to 1e-4; TF32, for example, does to 1e-3 only.
    """
    kind, number = split(device)
    index = {"device_id": str(number)}
    half = "1" if options.fp16 else "0"
    match provider.word:
        case "cuda":
            return {
                **index,
                "arena_extend_strategy": "kSameAsRequested",
                "cudnn_conv_algo_search": "HEURISTIC",
                "use_tf32": "0",
            }
        case "tensorrt":
            return {
                **index,
                "trt_engine_cache_enable": "1",
                "trt_engine_cache_path": str(cache),
                "trt_timing_cache_enable": "1",
                "trt_timing_cache_path": str(cache),
                "trt_max_workspace_size": str(options.workspace_bytes),
                "trt_fp16_enable": half,
            }
        case "openvino":
            return {
                "device_type": kind.upper() + (f".{number}" if number else ""),
                "precision": "FP16" if options.fp16 else "FP32",
                "num_of_threads": str(options.threads),
                "num_streams": "1",
            }
        case "migraphx":
            return {**index, "migraphx_fp16_enable": half}
        case "rocm":
            return index
        case "qnn" if kind == "npu":
            return {"backend_path": "libQnnHtp.so", "enable_htp_fp16_precision": "1"}
        case "qnn":
            return {"backend_path": "libQnnGpu.so"}
        case "cann":
            return {**index, "precision_mode": "force_fp16" if options.fp16 else "force_fp32"}
        case "xnnpack":
            return {"intra_op_num_threads": str(options.threads)}
        case _:
            return {}
