"""`launch` as users run it: its own process, real agents and sockets, nothing left behind."""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.launcher.models import write_branches

pytestmark = pytest.mark.slow

MARK = "CSDF_EDGE_TEST"
"""An environment variable that everything started by one test has, and nothing else."""


@dataclass
class Launcher:
    """Runs `launch` in `folder` and finds what it leaves behind."""

    folder: Path
    environment: dict[str, str]

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "launcher.commands.launch", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=self.folder,
            env=self.environment,
        )

    def run(self, *arguments: str) -> tuple[int, str, str]:
        """(exit code, standard output, standard error)."""
        with self.start(*arguments) as process:
            out, err = process.communicate(timeout=120)
        assert "Traceback" not in err
        return process.returncode, out, err

    def json(self, *arguments: str) -> dict[str, Any]:
        """The report of a run that must end well."""
        code, out, err = self.run(*arguments, "--json")
        assert code == 0, err
        report = json.loads(out)
        assert isinstance(report, dict)
        return report

    def left_behind(self) -> list[str]:
        """Command lines of processes that carry this test's mark."""
        mark = f"{MARK}={self.environment[MARK]}".encode()
        return [
            _read(process / "cmdline").replace(b"\0", b" ").decode()
            for process in Path("/proc").iterdir()
            if mark in _read(process / "environ").split(b"\0")
        ]


def _read(path: Path) -> bytes:
    """A process's file; empty if there is no such process any more."""
    try:
        return path.read_bytes()
    except OSError:
        return b""


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where all runs keep what they have measured, so that only the first one measures."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def launcher(tmp_path: Path, cache: Path) -> Iterator[Launcher]:
    write_branches(tmp_path / "branches.onnx")
    (tmp_path / "cluster.yaml").write_text(
        "model: branches.onnx\nnodes:\n  - name: a\n  - name: b\n"
        "strategy: sequential\npins: {stem: a, head: b}\nframes: 24\n"
    )
    root = str(Path(__file__).parents[2])
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    found = Launcher(
        tmp_path,
        {
            **os.environ,
            MARK: secrets.token_hex(8),
            "PYTHONPATH": root,
            "XDG_CACHE_HOME": str(cache),
            "TMPDIR": str(temporary),
        },
    )
    yield found
    assert found.left_behind() == []
    # ONNX Runtime leaves its own file there.
    assert [path.name for path in temporary.iterdir() if path.name.startswith("csdf")] == []


def test_two_agents_of_this_machine(launcher: Launcher) -> None:
    report = launcher.json("cluster.yaml", "--output", "out")
    assert report["frames"] == 24
    assert report["max_relative_error"] <= 1e-4
    assert report["frames_per_second"] == pytest.approx(24 / report["seconds"])
    assert report["period_measured_s"] > 0
    assert report["period_predicted_s"] > 0
    assert 0 < report["latency_s"] <= report["latency_worst_s"] <= report["seconds"]
    assert report["bytes_per_frame"] > 0
    assert report["bytes_per_frame_measured"] == report["bytes_per_frame"]
    assert [node["name"] for node in report["nodes"]] == ["a", "b"]
    for node in report["nodes"]:
        assert node["layers"] > 0
        assert node["phases"] > 0
        assert node["memory_measured_bytes"] > 10_000_000
        assert node["memory_predicted_bytes"] > node["memory_eq2_bytes"] > 0
        assert 0 < node["busy_fraction"] <= 1
    assert len(list((launcher.folder / "out").glob("*.score.npy"))) == 24
    first = np.load(launcher.folder / "out" / "000000.score.npy")
    repeat = np.load(launcher.folder / "out" / "000016.score.npy")
    np.testing.assert_array_equal(first, repeat)


def test_tiles_of_a_real_network_run_and_can_be_moved_by_hand(launcher: Launcher) -> None:
    (launcher.folder / "tiles.yaml").write_text(
        "model: onnx-wheel:squeezenet\nnodes:\n  - name: a\n  - name: b\n  - name: c\n"
        "strategy: tiles\nframes: 4\n"
    )
    report = launcher.json("tiles.yaml", "--save", "tiles")
    assert report["max_relative_error"] <= 1e-4
    assert all(node["layers"] for node in report["nodes"])
    file = launcher.folder / "tiles" / "plan.json"
    data = json.loads(file.read_text())
    (rewrite,) = data["rewrites"]
    assert rewrite["bands"][0] == "n0"
    number = len(rewrite["rows"])
    first, last = (f"n0[{band}/{number}]" for band in (1, number))
    holds = {layer: node for node, layers in data["assignment"].items() for layer in layers}
    assert holds[first] != holds[last]
    data["assignment"][holds[first]].remove(first)
    data["assignment"][holds[last]].append(first)
    file.write_text(json.dumps(data, indent=1))
    assert launcher.json("tiles")["max_relative_error"] <= 1e-4


@pytest.mark.parametrize(
    ("number", "code"),
    [
        pytest.param(signal.SIGINT, 130, id="Ctrl-C"),
        pytest.param(signal.SIGTERM, 143, id="SIGTERM", marks=pytest.mark.further),
    ],
)
def test_an_interrupted_run_ends_everything(
    launcher: Launcher, number: signal.Signals, code: int
) -> None:
    with launcher.start("cluster.yaml", "--frames", "100000", "--json") as process:
        assert process.stderr is not None
        for line in process.stderr:
            if line.startswith("streaming"):
                break
        process.send_signal(number)
        out, err = process.communicate(timeout=60)
    assert process.returncode == code, err
    assert out, err
    assert json.loads(out)["exit_code"] == code
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("number", "code"),
    [
        pytest.param(signal.SIGINT, 130, id="Ctrl-C", marks=pytest.mark.further),
        pytest.param(signal.SIGTERM, 143, id="SIGTERM"),
    ],
)
def test_an_interrupted_search_ends_everything(
    launcher: Launcher, number: signal.Signals, code: int
) -> None:
    with launcher.start("cluster.yaml", "--strategy", "vertical-paper") as process:
        assert process.stderr is not None
        for line in process.stderr:
            if line.startswith("searching"):
                break
        process.send_signal(number)
        _, err = process.communicate(timeout=60)
    assert process.returncode == code, err
    assert "Traceback" not in err
    assert err.splitlines()[-1].startswith("launch: ")
