"""The source of docs/plugins.md is installed, is a kind like others, and passes the contract."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from launcher.config.load import load_cluster
from launcher.sources.opening import open_source
from tests.docs import markdown, plugin

ROOT = Path(__file__).parents[2]
MODULE, TESTS = (
    block for block in markdown.blocks(plugin.PAGE, "python") if "StackConfig" in block
)


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    yield from plugin.installed(tmp_path, monkeypatch, "csdf-stack", MODULE, "csdf_edge.sources")


def test_it_is_a_kind_like_others(installed: Path) -> None:
    np.save(installed / "images.npy", np.zeros((3, 4, 6, 3), np.uint8))
    (installed / "cluster.yaml").write_text(
        "model: builtin:yolov2\nnodes: [{name: a}]\n"
        "input: {source: {kind: stack, path: images.npy}}\n"
    )
    cluster = load_cluster(installed / "cluster.yaml")
    source = open_source(cluster.config.input, cluster.folder, "input")
    assert len(list(source.frames())) == 3


def test_its_tests_pass(installed: Path) -> None:
    (installed / "test_stack.py").write_text(TESTS)
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_stack.py"],
        cwd=installed, env={"PYTHONPATH": f"{installed}:{ROOT}", "PATH": "/usr/bin"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout
    assert "passed" in ran.stdout
