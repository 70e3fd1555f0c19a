"""The sink of docs/plugins.md is installed, is a kind like others, and passes the contract."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from csdf_edge.testing.sink_contract import made_result
from launcher.config.ends.sink import SinkLostError
from launcher.config.load import load_cluster
from launcher.sinks.opening import open_sinks
from tests.docs import markdown, plugin
from tests.sinks.disks import full_disk

ROOT = Path(__file__).parents[2]
MODULE, TESTS = (
    block
    for block in markdown.blocks(plugin.PAGE, "python")
    if "qlite" in block and "sink" in block.lower()
)


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    yield from plugin.installed(tmp_path, monkeypatch, "csdf-sqlite", MODULE, "csdf_edge.sinks")


def test_it_is_a_kind_like_others_and_a_full_disk_passes(installed: Path) -> None:
    (installed / "cluster.yaml").write_text(
        "model: builtin:yolov2\ninput: {source: '-'}\nnodes: [{name: a}]\n"
        "sinks: [{kind: sqlite, path: results.db}]\n"
    )
    ((_, sink),) = open_sinks(load_cluster(installed / "cluster.yaml"))
    sink.write(made_result(0))
    with full_disk(), pytest.raises(SinkLostError):
        sink.write(made_result(1))
    for index in (1, 2):
        sink.write(made_result(index))
    sink.close()

    database = sqlite3.connect(installed / "results.db")
    assert database.execute("SELECT frame FROM results").fetchall() == [(0,), (1,), (2,)]
    database.close()


def test_its_tests_pass(installed: Path) -> None:
    (installed / "test_sqlite.py").write_text(TESTS)
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_sqlite.py"],
        cwd=installed, env={"PYTHONPATH": f"{installed}:{ROOT}", "PATH": "/usr/bin"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout
    assert "passed" in ran.stdout
