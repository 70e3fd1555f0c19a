"""Which engine a node opens, and the error if there is none."""

from __future__ import annotations

import builtins
import importlib.util
import sys
from pathlib import Path

import onnxruntime
import pytest

from nodes.executors import registry
from nodes.executors.base import ExecutorError
from nodes.executors.onnx.runtime import OnnxRuntimeExecutor
from nodes.executors.registry import open_executor


@pytest.fixture
def without(monkeypatch: pytest.MonkeyPatch):
    """Makes packages look as if they were not installed."""
    real_spec, real_import = importlib.util.find_spec, builtins.__import__

    def hide(*names: str) -> None:
        def import_(name: str, *rest, **options):
            if name.partition(".")[0] in names:
                raise ImportError(f"No module named {name!r}")
            return real_import(name, *rest, **options)

        monkeypatch.setattr(
            registry, "find_spec", lambda name: None if name in names else real_spec(name)
        )
        monkeypatch.setattr(builtins, "__import__", import_)
        for name in names:
            monkeypatch.delitem(sys.modules, name, raising=False)

    return hide


@pytest.mark.parametrize("name", ["auto", "onnxruntime"])
def test_without_tensorrt_it_is_onnx_runtime(name: str, tmp_path: Path, without) -> None:
    without("tensorrt")
    executor = open_executor(name, tmp_path)
    assert isinstance(executor, OnnxRuntimeExecutor)
    assert executor.describe().startswith(f"ONNX Runtime {onnxruntime.__version__} (")


def test_without_any_engine_it_says_which_to_install(tmp_path: Path, without) -> None:
    without("tensorrt", "onnxruntime")
    with pytest.raises(ExecutorError, match=r"no engine is installed.*install onnxruntime.*Jetson"):
        open_executor("auto", tmp_path)
    with pytest.raises(ExecutorError, match=r"ONNX Runtime is not installed.*install onnxruntime"):
        open_executor("onnxruntime", tmp_path)


def test_tensorrt_asked_for_and_missing_says_what_to_do(tmp_path: Path, without) -> None:
    without("tensorrt")
    if "Tensorrt" in OnnxRuntimeExecutor(tmp_path, tensorrt=True).describe():
        pytest.skip("ONNX Runtime has it as an execution provider here")
    with pytest.raises(ExecutorError, match=r"TensorRT cannot be used: .*pip install tensorrt"):
        open_executor("tensorrt", tmp_path)


def test_an_unknown_name_is_refused_with_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(ExecutorError, match="'tvm'; there are auto, onnxruntime, tensorrt"):
        open_executor("tvm", tmp_path)
