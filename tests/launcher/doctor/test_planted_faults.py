"""Faults are planted in a cluster: `launch doctor` finds each, and its remedy helps."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from threading import Timer

import pytest

from launcher.commands.make_keys import make_keys
from launcher.config.access import LAUNCHER, Access
from launcher.config.load import load_cluster
from launcher.core.events import MessageReceived
from launcher.doctor.boards import LEASE_S, Board, judge_board, read_board
from launcher.doctor.cluster_file import check_cluster_file
from launcher.doctor.cluster_keys import check_cluster_keys
from launcher.doctor.conversation import ANSWER_S
from launcher.run.connections import Connections
from launcher.run.roll_call import greeting
from nodes.doctor.findings import Finding, Severity
from nodes.net.keys import KeyFolder
from nodes.protocol.messages import OLDEST_PROTOCOL, PROTOCOL, Refused
from tests.launcher_runtime.clusters import (
    daemons,
    foreign_agent,
    free_port,
    wait_until_it_listens,
)
from tests.nodes.doctor.examined import agent, apply, doctor, on_board

HERE = "tcp://127.0.0.1:0"
AWAY = "tcp://192.0.2.7:5500"
"""An address that nobody has (RFC 5737)."""


def write_cluster(folder: Path, address: str | None, extra: str = "", node: str = "") -> Path:
    path = folder / "cluster.yaml"
    at = "" if address is None else f", address: '{address}'"
    nodes = f"[{{name: a{at}{node}}}]"
    path.write_text(f"model: builtin:digits\ninput: random\nnodes: {nodes}\n{extra}")
    path.chmod(0o600)
    return path


def examined(path: Path, version: str = "0.1.0") -> list[Finding]:
    """What is found of the board of a cluster with one node."""
    cluster = load_cluster(path)
    (node,) = cluster.config.nodes
    guarded = cluster.access.guards(str(node.address))
    ring = KeyFolder(cluster.access.keys / LAUNCHER) if guarded else None
    board = Board(node, str(node.address), cluster.access, path, version, ring)
    return judge_board(board, read_board(board))


def keys_of(path: Path) -> list[Finding]:
    cluster = load_cluster(path)
    addresses = {node.name: node.address for node in cluster.config.nodes}
    return check_cluster_keys(cluster.access, addresses, path)


def test_a_sound_cluster_has_no_error(tmp_path):
    with agent("--listen", HERE, "--cache", tmp_path / "a") as address:
        path = write_cluster(tmp_path, address, node=", link: 100Mbit/s")
        found = doctor("launch", path)
        assert found.code == 0, found.data["findings"]
        assert {each["machine"] for each in found.data["checks"]} == {"this machine", "a"}
        facts = found.data["facts"]["a"]
        assert facts["protocol"] == str(PROTOCOL)
        assert float(facts["round trip"].removesuffix(" ms")) > 0
        assert float(facts["link"].removesuffix(" MB/s")) > 1
        cached = [each for each in (tmp_path / "a").rglob("*") if each.is_file()]
        assert all(each.parent.name == "pins" for each in cached)  # nothing is left of the transfer


@pytest.mark.slow
def test_a_board_that_answers_late_has_the_time_that_cluster_yaml_gives(tmp_path):
    with daemons(("a",), tmp_path / "cache") as started:
        ((address, process),) = started.values()
        wait_until_it_listens(address)
        os.kill(process, signal.SIGSTOP)
        Timer(2 * ANSWER_S, os.kill, (process, signal.SIGCONT)).start()
        found = doctor("launch", write_cluster(tmp_path, address, "run: {connect_timeout_s: 60}\n"))
    assert found.of("board") == []
    assert found.data["facts"]["a"]["protocol"] == str(PROTOCOL)


def test_what_a_node_that_launch_starts_needs_is_checked_on_this_machine(tmp_path):
    found = doctor("launch", write_cluster(tmp_path, None, node=", engine: tvm"))
    assert found.code == 1
    assert "csdf-edge[tvm]" in found.only("engine")["remedy"]


def test_a_board_that_is_off_hides_nothing_of_the_others(tmp_path):
    path = write_cluster(tmp_path, None)
    with agent("--listen", HERE, "--cache", tmp_path / "a") as address:
        closed = f"tcp://127.0.0.1:{free_port()}"
        both = {"a": address, "b": closed}
        nodes = [{"name": name, "address": address} for name, address in both.items()]
        path.write_text(f"model: builtin:digits\ninput: random\nnodes: {json.dumps(nodes)}\n")
        found = doctor("launch", path)
    (board,) = found.of("board", severity="error")
    assert board["machine"] == "b"
    assert "a" in found.data["facts"]


def test_a_cache_of_the_launcher_that_everybody_can_write(tmp_path):
    path, caches = write_cluster(tmp_path, None), tmp_path / "caches"
    kept = caches / "csdf-edge-profiles"
    kept.mkdir(parents=True)
    kept.chmod(0o777)
    environment = {"XDG_CACHE_HOME": str(caches)}
    found = doctor("launch", path, environment=environment).only("disk of caches")
    assert (found["severity"], found["where"]) == ("error", str(kept))
    apply(found, tmp_path)
    assert doctor("launch", path, environment=environment).of("disk of caches") == []


def test_a_file_with_a_mistake_is_a_finding(tmp_path):
    path = tmp_path / "cluster.yaml"
    path.write_text("model: builtin:digits\nnodez: []\n")
    found = doctor("launch", path)
    assert "did you mean 'nodes'?" in found.only("cluster")["what"]
    assert {"disk", "memory", "clock"} <= {each["check"] for each in found.data["checks"]}


def test_a_file_that_is_missing_is_misuse(tmp_path):
    command = [sys.executable, "-m", "launcher.commands.launch", "doctor", "none.yaml"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 2
    assert "none.yaml" in done.stderr


def test_a_file_that_everybody_can_read_and_write(tmp_path):
    path = write_cluster(tmp_path, None, "serve: {token: abc}\n")
    assert check_cluster_file(path) == []
    path.chmod(0o646)
    written, read = check_cluster_file(path)
    assert (written.severity, read.severity) == (Severity.ERROR, Severity.WARNING)
    apply(written, tmp_path)
    apply(read, tmp_path)
    assert check_cluster_file(path) == []


def test_missing_keys(tmp_path):
    path = write_cluster(tmp_path, AWAY)
    (missing,) = keys_of(path)
    assert missing.severity is Severity.ERROR
    apply(missing, tmp_path)
    assert keys_of(path) == []


def test_a_foreign_key(tmp_path):
    path = write_cluster(tmp_path, AWAY)
    make_keys(tmp_path / "keys", {"a": AWAY})
    (tmp_path / "keys" / LAUNCHER / "nodes" / "a.pub").write_text("ab" * 32)
    (foreign,) = keys_of(path)
    assert "foreign key" in foreign.what
    apply(foreign, tmp_path)
    assert keys_of(path) == []


def test_a_node_without_a_key(tmp_path):
    path = write_cluster(tmp_path, AWAY)
    make_keys(tmp_path / "keys", {"b": AWAY})
    (missing,) = keys_of(path)
    assert "The key of node 'a' is missing" in missing.what
    apply(missing, tmp_path)
    assert keys_of(path) == []


def test_a_launcher_that_a_node_does_not_admit(tmp_path):
    path = write_cluster(tmp_path, AWAY)
    make_keys(tmp_path / "keys", {"a": AWAY})
    (tmp_path / "keys" / "a" / "launchers" / "launcher.pub").write_text("ab" * 32)
    (other,) = keys_of(path)
    assert "admits other launchers" in other.what
    apply(other, tmp_path)
    assert keys_of(path) == []


def test_a_cluster_without_encryption(tmp_path):
    (open_to_all,) = keys_of(write_cluster(tmp_path, AWAY, "insecure: true\n"))
    assert open_to_all.severity is Severity.WARNING


def test_an_agent_with_the_keys_of_another_cluster(tmp_path):
    make_keys(tmp_path / "keys", {"a": None})
    make_keys(tmp_path / "others", {"a": None})
    here = ("--listen", HERE, "--cache", tmp_path / "cache")
    with agent(*here, "--keys", tmp_path / "others" / "a") as address:
        path = write_cluster(tmp_path, address, "keys: keys\n")
        (found,) = examined(path)
        assert found.severity is Severity.ERROR
        assert "rsync -a --delete" in found.remedy
    with agent(*here, "--keys", tmp_path / "keys" / "a") as address:
        assert examined(write_cluster(tmp_path, address, "keys: keys\n")) == []


def test_a_port_on_which_nobody_listens(tmp_path):
    address = f"tcp://127.0.0.1:{free_port()}"
    path = write_cluster(tmp_path, address)
    (found,) = examined(path)
    assert "nothing listens on that port" in found.what
    name, *options = on_board(found)
    assert name == "node-agent"
    with agent(*options, "--cache", tmp_path / "cache"):
        assert examined(path) == []


def test_an_agent_of_another_protocol(tmp_path):
    with foreign_agent(Refused("this agent speaks protocol 3", 3)) as address:
        (found,) = examined(write_cluster(tmp_path, address))
    assert f"speaks protocol 3, and this launcher protocol {PROTOCOL}" in found.what
    wheel = "csdf_edge-0.1.0-py3-none-any.whl"  # no index has the package
    assert found.remedy.startswith(f"scp dist/{wheel} 127.0.0.1: && ssh 127.0.0.1 ")
    assert f"pip install ./{wheel} &&" in shlex.split(found.remedy)[-1]


@pytest.mark.slow
def test_an_agent_of_the_version_before_is_examined_as_any_other(tmp_path):
    """A launch takes it, so the doctor must not tell anybody to install another version."""
    with agent("--listen", HERE, "--cache", tmp_path / "a", module="tests.nodes.older_agent") as at:
        path = write_cluster(tmp_path, at)
        assert examined(path) == []
        with Connections() as others:
            others.open_control("a", at)
            others.send("a", replace(greeting(LEASE_S), protocol=OLDEST_PROTOCOL))
            arrivals = (each for _ in range(100) for each in others.wait(0.1))
            next(each for each in arrivals if isinstance(each, MessageReceived))
            (found,) = examined(path)
    assert found.severity is Severity.NOTE
    assert "in use" in found.what


@pytest.mark.parametrize("protocol", [OLDEST_PROTOCOL - 1, PROTOCOL + 1])
def test_the_doctor_refuses_the_protocols_that_a_launch_refuses(tmp_path, protocol):
    with foreign_agent(Refused("another protocol", protocol)) as address:
        (found,) = examined(write_cluster(tmp_path, address))
    assert found.severity is Severity.ERROR
    assert f"speaks protocol {protocol}" in found.what


def test_an_agent_of_another_version_with_too_little_of_everything(tmp_path):
    with agent("--listen", HERE, "--cache", tmp_path / "a") as address:
        path = write_cluster(tmp_path, address, node=", engine: openvino, memory: 99TB")
        version, engine, memory = examined(path, version="9.9")
    assert "of version 0.1.0, and this launcher of 9.9" in version.what
    assert version.remedy.startswith("launch upgrade ")
    assert (engine.severity, engine.remedy.endswith("'")) == (Severity.ERROR, True)
    assert "cluster.yaml lets it use 99000000.0 MB" in memory.what


def test_an_agent_that_is_in_use_is_left_alone(tmp_path):
    with foreign_agent(Refused("launcher 'x' is using this agent", PROTOCOL)) as address:
        (found,) = examined(write_cluster(tmp_path, address))
    assert found.severity is Severity.NOTE
    assert "launcher 'x' is using this agent" in found.what


def test_a_host_name_that_nobody_knows(tmp_path):
    address = "tcp://no-such-board.invalid:5500"
    (found,) = examined(write_cluster(tmp_path, address, "insecure: true\n"))
    assert found.remedy == "getent hosts no-such-board.invalid"


def test_a_saved_plan_that_a_board_has_no_room_for(tmp_path):
    with agent("--listen", HERE, "--cache", tmp_path / "a") as address:
        path = write_cluster(tmp_path, address)
        (node,) = load_cluster(path).config.nodes
        board = Board(node, address, Access(), path, "0.1.0", needed_bytes=10**15)
        (found,) = judge_board(board, read_board(board))
    assert found.severity is Severity.ERROR
    assert "its part of the plan needs 1000000000.0 MB" in found.what
