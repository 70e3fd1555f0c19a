"""TensorRT or TensorRT-RTX as an engine: whether it can be used here, and by which interface."""

from __future__ import annotations

import subprocess
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from nodes.cache.room import Room
from nodes.executors.base import WORKSPACE, Executor
from nodes.executors.cuda import cuda_devices, first_capability
from nodes.executors.onnx.engine import open_tensorrt
from nodes.executors.onnx.providers.probing import devices_of, is_in_wheel
from nodes.executors.onnx.providers.table import TENSORRT
from nodes.executors.preparing.entries import PreparedFiles
from nodes.host.process import python_command
from nodes.protocol.messages import DeviceOffer, OptionOffer


class TensorRtEngine:
    """TensorRT on the first GPU, by its Python API or as ONNX Runtime's execution provider.

    Where TensorRT is not installed, TensorRT-RTX takes its place.
    """

    options: tuple[OptionOffer, ...] = (WORKSPACE,)

    def __init__(self, notes: PreparedFiles | None = None) -> None:
        """Keep the results of tests of devices in `notes`."""
        self._notes = notes

    def missing(self) -> str | None:
        """Return what to install, or None."""
        why = tensorrt_missing()
        return None if why is None or self._as_provider() else why

    def devices(self) -> tuple[DeviceOffer, ...]:
        """Return the first GPU, the only one that the executor can open, or those of the provider.

        TensorRT-RTX computes in the precisions of the model only.
        """
        if tensorrt_missing() is not None:
            return self._as_provider()
        is_rtx = find_spec("tensorrt") is None
        return (DeviceOffer("gpu", ("fp32",) if is_rtx else ("fp32", "fp16")),)

    def _as_provider(self) -> tuple[DeviceOffer, ...]:
        return devices_of(TENSORRT, self._notes)[0] if is_in_wheel(TENSORRT) else ()

    def open(self, cache: Path, device: str, room: Room | None) -> Executor:
        """Open TensorRT by its Python API where that is installed, else ONNX Runtime's provider."""
        if tensorrt_missing() is None:
            from nodes.executors.tensor_rt.executor import TensorRtExecutor  # noqa: PLC0415

            return TensorRtExecutor(cache, room)
        return open_tensorrt(cache, device, room)


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
    if find_spec("tensorrt") is None and (capability := first_capability()) is not None:
        return rtx_refuses(capability)
    return None


@cache
def rtx_refuses(capability: tuple[int, int]) -> str | None:
    """Return why TensorRT-RTX cannot build engines for a compute capability; None if it can.

    A child asks it, because an agent that loaded the library (234 MB) would keep it.
    """
    child = subprocess.run(
        python_command("nodes.executors.tensor_rt.library", *map(str, capability)),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if child.returncode:
        return f"TensorRT-RTX cannot be loaded (exit code {child.returncode})"
    return child.stdout.strip() or None
