"""`launch upgrade` with real ssh servers, environments of Python and agents, under load."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest

import csdf_edge
from tests.upgrade.boards import BROKEN, MISCOMPUTES, ROOT, Board, boards, make_wheel

pytestmark = pytest.mark.slow

DIGITS = ROOT / "examples" / "digits"
NAMES = ("left", "middle", "right")


@pytest.fixture
def three(tmp_path: Path) -> Iterator[list[Board]]:
    with boards(tmp_path, NAMES) as made:
        yield made


def write_cluster(folder: Path, made: list[Board]) -> Path:
    nodes = [
        {"name": board.name, "address": board.address, "ssh": f"127.0.0.1:{board.ssh_port}"}
        for board in made
    ]
    cluster = {
        "model": str(DIGITS / "digits.onnx"),
        "input": str(DIGITS / "test_images.npy"),
        "strategy": "sequential",
        "nodes": nodes,
    }
    file = folder / "cluster.yaml"
    file.write_text(json.dumps(cluster))
    return file


def upgrade(folder: Path, wheel: Path, *options: str) -> tuple[int, dict[str, Any], str]:
    program = [sys.executable, "-c", "from csdf_edge.entry import launch; launch()", "upgrade"]
    given = [folder / "cluster.yaml", "--wheel", wheel, "--prefix", "csdf-edge", "--json"]
    ended = subprocess.run(
        [*program, *map(str, given), *options],
        env={**os.environ, "HOME": str(folder / "user")},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    return ended.returncode, json.loads(ended.stdout), ended.stderr


class Load(threading.Thread):
    """Asks a cluster for results until told to stop; keeps what was wrong."""

    def __init__(self, cluster: csdf_edge.LiveCluster) -> None:
        super().__init__()
        self.cluster = cluster
        self.stop = threading.Event()
        self.began = threading.Event()
        self.answered = 0
        self.wrong: list[object] = []

    def run(self) -> None:
        frames = np.load(DIGITS / "test_images.npy")
        whole = ort.InferenceSession(DIGITS / "digits.onnx", providers=["CPUExecutionProvider"])
        while not self.stop.is_set():
            index = self.answered % len(frames)
            frame = frames[index : index + 1]
            try:
                result = self.cluster.infer({"image": frame})
            except csdf_edge.LauncherError as error:
                self.wrong.append(str(error))
                self.began.set()
                return
            (wanted,) = whole.run(["probabilities"], {"image": frame})
            if not np.allclose(result["probabilities"], wanted, rtol=1e-4, atol=1e-5):
                self.wrong.append(index)
            self.answered += 1
            self.began.set()


def test_three_boards_are_upgraded_under_load_and_a_broken_version_is_returned_from(
    three: list[Board], tmp_path: Path
) -> None:
    file = write_cluster(tmp_path, three)
    good = make_wheel(tmp_path, "0.2.0")
    bad = make_wheel(tmp_path, "0.3.0", BROKEN)
    wrong = make_wheel(tmp_path, "0.4.0", miscomputes=MISCOMPUTES)
    with csdf_edge.open(file) as cluster:
        load = Load(cluster)
        load.start()
        try:
            assert load.began.wait(60)
            code, said, errors = upgrade(tmp_path, good)
            answered = load.answered
            code_again, said_again, _ = upgrade(tmp_path, good)
            code_bad, said_bad, errors_bad = upgrade(tmp_path, bad)
            code_wrong, said_wrong, errors_wrong = upgrade(tmp_path, wrong)
        finally:
            load.stop.set()
            load.join()
    assert code == 0, errors
    assert said["upgraded"] == list(NAMES)
    assert answered > 0
    assert (code_again, said_again["present"]) == (0, list(NAMES))

    assert code_bad == 1, errors_bad
    assert said_bad["untouched"] == ["middle", "right"]
    problem = said_bad["problems"][0]
    assert (problem["board"], problem["step"]) == ("left", "restart")
    assert problem["outcome"] == "it has its former version again, whose agent works"

    assert code_wrong == 1, errors_wrong
    problem = said_wrong["problems"][0]
    assert (problem["board"], problem["step"]) == ("left", "try")
    assert "failed to compute a network of one layer: its result is wrong by" in problem["reason"]
    for board in three:
        assert board.current == f"versions/{said['version']}"
        kept = {path.name for path in (board.prefix / "versions").iterdir()}
        assert kept == {"0.1.0-aaaaaaaaaaaa", said["version"]}
    assert load.wrong == []


def test_a_board_whose_host_key_is_unknown_is_not_touched(
    three: list[Board], tmp_path: Path
) -> None:
    write_cluster(tmp_path, three)
    (tmp_path / "user" / ".ssh" / "known_hosts").write_text("")
    code, said, _ = upgrade(tmp_path, make_wheel(tmp_path, "0.2.0"))
    assert code == 1
    assert [problem["board"] for problem in said["problems"]] == list(NAMES)
    assert "ssh does not know the key of 127.0.0.1" in said["problems"][0]["reason"]
    assert {board.current for board in three} == {"versions/0.1.0-aaaaaaaaaaaa"}
