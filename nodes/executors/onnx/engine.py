"""ONNX Runtime as an engine: whether it is installed, and its devices."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from nodes.cache.room import Room
from nodes.executors.base import Executor
from nodes.executors.cuda import cuda_devices, gpu_name
from nodes.protocol.messages import DeviceOffer


class OnnxRuntimeEngine:
    """ONNX Runtime on the CPU, and on GPUs where its wheel has the CUDA provider."""

    options: tuple[str, ...] = ("allow_spinning",)

    def missing(self) -> str | None:
        """Return what to install, or None."""
        if find_spec("onnxruntime") is None:
            return (
                "it is not installed: `pip install onnxruntime`, on a GPU `pip install "
                "onnxruntime-gpu`, on a Jetson the onnxruntime-gpu wheel of its JetPack"
            )
        return None

    def devices(self) -> tuple[DeviceOffer, ...]:
        """Return the GPU where there is one, then the CPU."""
        gpus = cuda_devices() if has_provider("cuda") else 0
        found = [DeviceOffer(gpu_name(number)) for number in range(gpus)]
        return (*found, DeviceOffer("cpu"))

    def open(self, cache: Path, device: str, room: Room | None) -> Executor:
        """Open ONNX Runtime on a device."""
        from nodes.executors.onnx.runtime import OnnxRuntimeExecutor  # noqa: PLC0415 - it is large

        return OnnxRuntimeExecutor(cache, device=device, room=room)


def has_provider(name: str) -> bool:
    """Whether ONNX Runtime's wheel has an execution provider, such as `cuda`, without importing
    it."""
    spec = find_spec("onnxruntime")
    if spec is None or spec.origin is None:
        return False
    library = f"libonnxruntime_providers_{name}.so"
    return Path(spec.origin).with_name("capi").joinpath(library).exists()
