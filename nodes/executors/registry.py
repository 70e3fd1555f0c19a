"""Opens the executor for the engine that is installed on a node."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Literal, TypeAlias, get_args

from nodes.cache.room import Room
from nodes.executors.base import Executor, ExecutorError
from nodes.executors.cuda import cuda_devices
from nodes.host.heap import keep_one_heap

EngineName: TypeAlias = Literal["auto", "onnxruntime", "tensorrt"]


def open_executor(name: EngineName, cache: Path, *, room: Room | None = None) -> Executor:
    """Open the executor called `name`, which keeps prepared subnets under `cache`.

    `auto` is TensorRT where it is installed and there is a GPU, else ONNX Runtime. `tensorrt` uses
    TensorRT's Python API where that is installed, else ONNX Runtime's TensorRT execution provider.
    `room` bounds the cache if given. Call this before starting threads (`keep_one_heap`). Raises
    ExecutorError with the wheel to install if the engine is missing.
    """
    keep_one_heap()
    if name == "auto":
        name = "tensorrt" if tensorrt_missing() is None else "onnxruntime"
        if name == "onnxruntime" and find_spec("onnxruntime") is None:
            raise ExecutorError(
                "no engine is installed: `pip install onnxruntime`, on a GPU "
                "`pip install onnxruntime-gpu`, on a Jetson the onnxruntime-gpu wheel of its "
                "JetPack, or its TensorRT with `pip install cuda-python`"
            )
    if name == "onnxruntime":
        return _onnx_runtime(cache, room=room)
    if name == "tensorrt":
        missing = tensorrt_missing()
        if missing is None:
            from nodes.executors.tensor_rt.executor import TensorRtExecutor  # noqa: PLC0415

            return TensorRtExecutor(cache, room)
        executor = (
            _onnx_runtime(cache, tensorrt=True, room=room) if find_spec("onnxruntime") else None
        )
        if executor is not None and "Tensorrt" in executor.describe():
            return executor
        raise ExecutorError(f"TensorRT cannot be used: {missing}")
    raise ExecutorError(
        f"no engine is called {name!r}; there are {', '.join(get_args(EngineName))}"
    )


def _onnx_runtime(cache: Path, *, tensorrt: bool = False, room: Room | None = None) -> Executor:
    from nodes.executors.onnx.runtime import OnnxRuntimeExecutor  # noqa: PLC0415

    return OnnxRuntimeExecutor(cache, tensorrt=tensorrt, room=room)


def tensorrt_missing() -> str | None:
    """Return why TensorRT cannot be used here and what to do about it; None if it can."""
    if find_spec("tensorrt") is None:
        return (
            "it is not installed: `pip install tensorrt cuda-python`; on a Jetson it comes with "
            "JetPack, make it visible with `python -m venv --system-site-packages`"
        )
    if find_spec("cuda") is None or find_spec("cuda.bindings") is None:
        return "its memory needs cuda-python: `pip install cuda-python`"
    if not cuda_devices():
        return "this machine has no GPU that CUDA can use"
    return None
