"""The plugins of docs/plugins.md are installed, are kinds like others, and pass their contracts."""

from __future__ import annotations

import re
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from csdf_edge.testing.sink_contract import made_result
from launcher.commands.launch import main as launch
from launcher.config.ends.sink import SinkLostError
from launcher.config.load import Cluster, load_cluster
from launcher.sinks.opening import open_sinks
from launcher.sources.opening import open_source
from nodes.executors import registry
from nodes.executors.registry import open_executor
from nodes.host.energy.base import GROUP, MeterError
from nodes.host.energy.opening import open_meter
from tests.docs.markdown import ROOT, blocks
from tests.launcher.launches import done
from tests.sinks.disks import full_disk

PAGE = ROOT / "docs" / "plugins.md"
PLUGINS = {
    "sqlite": ("csdf_edge.sinks", r"[Ss]qlite"),
    "stack": ("csdf_edge.sources", "StackConfig"),
    "reference": ("csdf_edge.executors", "ReferenceEngine"),
    "plug": (GROUP, "PlugMeter"),
}
"""The group of entry points of each plugin, and what its code has and others' has not."""

Install = Callable[[str], Path]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Installs a plugin into a folder, as pip would, with its tests; returns the folder."""

    def install(name: str) -> Path:
        group, mark = PLUGINS[name]
        module, tests = (block for block in blocks(PAGE, "python") if re.search(mark, block))
        (tmp_path / f"csdf_{name}.py").write_text(module.replace("/run/plug", str(tmp_path)))
        (tmp_path / f"test_{name}.py").write_text(tests)
        info = tmp_path / f"csdf_{name}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: csdf-{name}\nVersion: 1.0\n")
        (entry_points,) = (block for block in blocks(PAGE, "toml") if group in block)
        written = re.sub(r'\[project\.entry-points\."(.*)"\]', r"[\1]", entry_points)
        (info / "entry_points.txt").write_text(written.replace('"', ""))
        monkeypatch.syspath_prepend(tmp_path)
        return tmp_path

    registry._plugins.cache_clear()
    yield install
    registry._plugins.cache_clear()
    for name in PLUGINS:
        sys.modules.pop(f"csdf_{name}", None)


def cluster(folder: Path, keys: str) -> Cluster:
    path = folder / "cluster.yaml"
    path.write_text(f"model: builtin:yolov2\nnodes: [{{name: a}}]\n{keys}\n")
    return load_cluster(path)


@pytest.mark.parametrize(
    "name", ["sqlite", "stack", "plug", pytest.param("reference", marks=pytest.mark.slow)]
)
def test_its_tests_pass(install: Install, name: str) -> None:
    folder = install(name)
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"test_{name}.py",
         "-k", "not a_hundred_runs"],  # in which the reference engine is slow: it passes, too
        cwd=folder, env={"PYTHONPATH": f"{folder}:{ROOT}", "PATH": "/usr/bin"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout
    assert "passed" in ran.stdout


def test_the_sink_is_a_kind_like_others_and_a_full_disk_passes(install: Install) -> None:
    folder = install("sqlite")
    sinks = "input: {source: '-'}\nsinks: [{kind: sqlite, path: results.db}]"
    ((_, sink),) = open_sinks(cluster(folder, sinks))
    sink.write(made_result(0))
    with full_disk(), pytest.raises(SinkLostError):
        sink.write(made_result(1))
    for index in (1, 2):
        sink.write(made_result(index))
    sink.close()
    database = sqlite3.connect(folder / "results.db")
    assert database.execute("SELECT frame FROM results").fetchall() == [(0,), (1,), (2,)]
    database.close()


def test_the_source_is_a_kind_like_others(install: Install) -> None:
    folder = install("stack")
    np.save(folder / "images.npy", np.zeros((3, 4, 6, 3), np.uint8))
    found = cluster(folder, "input: {source: {kind: stack, path: images.npy}}")
    source = open_source(found.config.input, found.folder, "input")
    assert len(list(source.frames())) == 3


def test_the_meter_is_opened_by_its_name(install: Install) -> None:
    (install("plug") / "joules").write_text("12.5\n")
    meter, unmetered = open_meter("plug")
    assert meter is not None
    assert (meter.read_j(0.0), unmetered) == (12.5, "")
    meter.close()


def test_without_the_meters_file_the_agent_refuses_to_start_in_a_sentence(install: Install) -> None:
    install("plug")
    with pytest.raises(MeterError, match=r"--meter plug: FileNotFoundError: .*joules"):
        open_meter("plug")


def test_the_engine_is_one_like_others(install: Install) -> None:
    executor = open_executor("reference", install("reference") / "cache")
    assert executor.describe().startswith("ONNX's reference evaluator")


@pytest.mark.slow
def test_two_engines_compute_one_network(
    install: Install, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The second agent runs already, on ONNX Runtime, and opens the plugin for its deployment."""
    folder = install("reference")
    monkeypatch.setenv("PYTHONPATH", f"{folder}:{ROOT}")
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
    with running_agent("--name", "far") as address:
        (folder / "cluster.yaml").write_text(
            f"model: {ROOT}/examples/digits/digits.onnx\nstrategy: k-stage\nframes: 4\n"
            f"nodes: [{{name: near, engine: onnxruntime}}, "
            f"{{name: far, address: '{address}', engine: reference}}]\n"
        )
        report = done(launch, capsys, folder / "cluster.yaml")
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
