"""The engine of docs/plugins.md is installed, is an engine like others, and passes the contract."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from launcher.commands.launch import main as launch
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
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_reference.py",
         "-k", "not a_hundred_runs"],  # in which this engine is slow: it passes, too
        cwd=installed, env={"PYTHONPATH": f"{installed}:{ROOT}", "PATH": "/usr/bin"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout
    assert "passed" in ran.stdout


@pytest.mark.slow
def test_two_engines_compute_one_network(
    installed: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The second agent runs already, on ONNX Runtime, and opens the plugin for its deployment."""
    monkeypatch.setenv("PYTHONPATH", f"{installed}:{ROOT}")
    monkeypatch.setenv("XDG_CACHE_HOME", str(installed / "cache"))
    with running_agent("--name", "far") as address:
        (installed / "cluster.yaml").write_text(
            f"model: {ROOT}/examples/digits/digits.onnx\nstrategy: k-stage\nframes: 4\n"
            f"nodes: [{{name: near, engine: onnxruntime}}, "
            f"{{name: far, address: '{address}', engine: reference}}]\n"
        )
        with pytest.raises(SystemExit) as ended:
            launch([str(installed / "cluster.yaml"), "--json"])
    out, err = capsys.readouterr()
    assert not ended.value.code, err
    report = json.loads(out)
    assert {node["engine"] for node in report["nodes"]} == {"onnxruntime", "reference"}
    assert report["max_relative_error"] < 1e-4


@contextmanager
def running_agent(*options: str) -> Iterator[str]:
    """Yield the address of an agent on this machine."""
    command = [sys.executable, "-m", "nodes.cli", "--listen", "tcp://127.0.0.1:0", *options]
    with subprocess.Popen(
        [*command, "--exit-with-parent"], stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as agent:
        assert agent.stderr is not None
        ready = agent.stderr.readline()
        found = re.search(r"control (tcp://[^,]+),", ready)
        assert found is not None, ready
        yield found[1]
        agent.communicate("", timeout=30)
