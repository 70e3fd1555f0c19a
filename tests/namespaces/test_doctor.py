"""`launch doctor` and `launch discover` in network namespaces, as on their own machines."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from launcher.config.load import load_cluster
from tests.launcher_runtime.clusters import WAIT_S
from tests.namespaces.lab import PORT, ip, namespaces, why_not
from tests.nodes.doctor.examined import agent, apply, doctor

pytestmark = [pytest.mark.namespaces, pytest.mark.slow]


@pytest.fixture
def lab() -> Iterator[dict[str, str]]:
    """Two machines: the launcher's and a board."""
    reason = why_not()
    if reason is not None:
        pytest.skip(reason)
    with namespaces(2) as made:
        yield made


def board(namespace: str, cache: Path, *options: str) -> AbstractContextManager[str]:
    """An agent without keys on all addresses of a namespace."""
    place = ("--listen", f"tcp://0.0.0.0:{PORT}", "--insecure", "--cache", cache)
    return agent(*place, *options, prefix=("ip", "netns", "exec", namespace))


def write_cluster(folder: Path, address: str) -> Path:
    path = folder / "cluster.yaml"
    path.write_text(
        "model: builtin:digits\ninput: random\ninsecure: true\n"
        f"nodes: [{{name: board, address: 'tcp://{address}:{PORT}'}}]\n"
    )
    return path


def test_a_smaller_mtu_on_the_way_that_nobody_tells_of(lab, tmp_path):
    (here, _), (there, address) = lab.items()
    inside = ("ip", "netns", "exec", here)
    path = write_cluster(tmp_path, address)
    with board(there, tmp_path / "cache"):
        assert doctor("launch", path, prefix=inside).of("board") == []
        ip("link", "set", f"cv{os.getpid()}n1", "mtu", "1200")  # the switch's port to the board
        found = doctor("launch", path, prefix=inside).of("board", severity="error")
        assert found[0]["remedy"] == "sudo ip link set dev eth0 mtu 1200"
        remedy = {"remedy": found[0]["remedy"].replace("sudo ", f"{' '.join(inside)} ")}
        apply(remedy, tmp_path)
        assert doctor("launch", path, prefix=inside).of("board", severity="error") == []


def test_a_board_whose_network_is_down(lab, tmp_path):
    (here, _), (there, address) = lab.items()
    inside = ("ip", "netns", "exec", here)
    path = write_cluster(tmp_path, address)
    with board(there, tmp_path / "cache"):
        ip("-n", there, "link", "set", "eth0", "down")
        (found,) = doctor("launch", path, prefix=inside).of("board")
        assert found["severity"] == "error"
        assert f"ping -c 3 {address}" in found["remedy"]
        ip("-n", there, "link", "set", "eth0", "up")
        assert doctor("launch", path, prefix=inside).of("board") == []


def discovered(namespace: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "launcher.commands.launch", "discover", *arguments]
    return subprocess.run(
        ["ip", "netns", "exec", namespace, *command],
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )


def test_an_agent_that_announces_itself_is_found_and_written(lab, tmp_path):
    (here, _), (there, address) = lab.items()
    path = tmp_path / "cluster.yaml"
    with board(there, tmp_path / "cache", "--announce", "--name", "board"):
        done = discovered(here, "--seconds", "4", "--write", str(path), "--json")
        assert done.returncode == 0, done.stderr
        (found,) = json.loads(done.stdout)["agents"]
        assert (found["name"], found["address"]) == ("board", f"tcp://{address}:{PORT}")
        assert (found["keys"], found["cores"] > 0) == (False, True)
        assert load_cluster(path).config.nodes[0].address == f"tcp://{address}:{PORT}"
    assert discovered(here, "--seconds", "1").returncode == 1  # it has taken its announcement back


def test_an_agent_is_silent_unless_it_is_asked_to_announce_itself(lab, tmp_path):
    (here, _), (there, _) = lab.items()
    with board(there, tmp_path / "cache"):
        done = discovered(here, "--seconds", "2")
    assert done.returncode == 1
    assert "start agents with --announce" in done.stdout
