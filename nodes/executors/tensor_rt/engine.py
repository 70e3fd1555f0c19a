"""TensorRT or TensorRT-RTX as an engine: whether it can be used here, and by which interface."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from nodes.cache.room import Room
from nodes.executors.base import Executor
from nodes.executors.cuda import cuda_devices
from nodes.executors.onnx.engine import has_provider
from nodes.protocol.messages import DeviceOffer


class TensorRtEngine:
    """TensorRT on the first GPU, by its Python API or as ONNX Runtime's execution provider.

    Where TensorRT is not installed, TensorRT-RTX takes its place.
    """

    options: tuple[str, ...] = ("workspace_bytes",)

    def missing(self) -> str | None:
        """Return what to install, or None."""
        why = tensorrt_missing()
        is_provider = has_provider("tensorrt") and bool(cuda_devices())
        return None if is_provider else why

    def devices(self) -> tuple[DeviceOffer, ...]:
        """Return the first GPU, the only one that the executor can open.

        TensorRT-RTX computes in the precisions of the model only.
        """
        is_rtx = tensorrt_missing() is None and find_spec("tensorrt") is None
        return (DeviceOffer("gpu", ("fp32",) if is_rtx else ("fp32", "fp16")),)

    def open(self, cache: Path, device: str, room: Room | None) -> Executor:
        """Open TensorRT by its Python API where that is installed, else ONNX Runtime's provider."""
        if tensorrt_missing() is None:
            from nodes.executors.tensor_rt.executor import TensorRtExecutor  # noqa: PLC0415

            return TensorRtExecutor(cache, room)
        from nodes.executors.onnx.runtime import OnnxRuntimeExecutor  # noqa: PLC0415

        return OnnxRuntimeExecutor(cache, device=device, tensorrt=True, room=room)


def tensorrt_missing() -> str | None:
    """Return why neither TensorRT nor TensorRT-RTX can be used, and what to do; None if one can."""
    if find_spec("tensorrt") is None and find_spec("tensorrt_rtx") is None:
        return (
            "it is not installed: `pip install tensorrt cuda-python`, or on a PC with an RTX GPU "
            "`pip install tensorrt-rtx-cu12 cuda-python`; on a Jetson it comes with JetPack, make "
            "it visible with `python -m venv --system-site-packages`"
        )
    if find_spec("cuda") is None or find_spec("cuda.bindings") is None:
        return "its memory needs cuda-python: `pip install cuda-python`"
    if not cuda_devices():
        return "this machine has no GPU that CUDA can use"
    return None
