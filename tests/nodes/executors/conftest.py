"""Engines that several test files of this folder load subnets with."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from nodes.executors.onnx.runtime import OnnxRuntimeExecutor


@pytest.fixture
def cpu(tmp_path: Path) -> Iterator[OnnxRuntimeExecutor]:
    executor = OnnxRuntimeExecutor(tmp_path / "derived")
    yield executor
    executor.close()
