"""The engine of docs/plugins.md is installed, is an engine like others, and passes the contract."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from nodes.executors import registry
from nodes.executors.registry import open_executor
from tests.docs import markdown, plugin

ROOT = Path(__file__).parents[3]
MODULE, TESTS = (
    block for block in markdown.blocks(plugin.PAGE, "python") if "ReferenceEngine" in block
)


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    registry._plugins.cache_clear()
    yield from plugin.installed(
        tmp_path, monkeypatch, "csdf-reference", MODULE, "csdf_edge.executors"
    )
    registry._plugins.cache_clear()


def test_it_is_an_engine_like_others(installed: Path) -> None:
    executor = open_executor("reference", installed / "cache")
    assert executor.describe().startswith("ONNX's reference evaluator")


@pytest.mark.slow
def test_its_tests_pass(installed: Path) -> None:
    (installed / "test_reference.py").write_text(TESTS)
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_reference.py"],
        cwd=installed, env={"PYTHONPATH": f"{installed}:{ROOT}", "PATH": "/usr/bin"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout
    assert "passed" in ran.stdout
