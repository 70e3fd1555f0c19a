"""OpenVINO: the contract, where its wheel is installed (`make test-openvino`)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from nodes.executors.base import Executor
from nodes.executors.openvino.executor import OpenVinoExecutor
from csdf_edge.testing.executor_contract import ExecutorContract

pytest.importorskip("openvino", reason="OpenVINO is not installed: `make test-openvino`")
pytestmark = pytest.mark.alone


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[OpenVinoExecutor]:
    executor = OpenVinoExecutor(tmp_path / "derived")
    yield executor
    executor.close()


class TestOnTheCpu(ExecutorContract):
    dtypes = ("float16", "float32", "int8", "int16", "int32", "int64", "uint8", "uint16", "bool")

    @pytest.fixture
    def executor(self, engine: OpenVinoExecutor) -> Executor:
        return engine
