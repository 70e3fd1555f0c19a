"""A real node with slots: agents come when they are called and go when they are idle.

The parent and the agents are real processes on loopback ports.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from csdf_edge.testing import executor_models as models
from nodes.net.curve import new_pair
from nodes.net.keys import write_public, write_secret
from nodes.protocol.addresses import slot_address
from nodes.protocol.messages import PROTOCOL, Bye, Deployed, Hello, Ping, Pong, Refused, Welcome
from tests.nodes.deploying import Launcher, line
from tests.nodes.speaker import WAIT_S, AgentProcess, refusal_of

Start = Callable[..., AgentProcess]
Dial = Callable[..., Launcher]


@pytest.fixture
def start(tmp_path: Path, stack: ExitStack) -> Start:
    """Starts a node with two slots, whose first agent is ready."""

    def start(*arguments: str, idle_s: float = 60.0, **environment: str) -> AgentProcess:
        options = ("--slots", "2", "--exit-idle", str(idle_s), "--name", "board", *arguments)
        node = AgentProcess(tmp_path / "cache", *options, environment=environment)
        stack.callback(end, node)
        return node

    return start


def end(node: AgentProcess) -> None:
    """End a node and all its agents in any case."""
    if node.process.poll() is None:
        node.process.terminate()
        with suppress(subprocess.TimeoutExpired):
            node.process.wait(WAIT_S)
    node.end()


@pytest.fixture
def dial(dial: Dial) -> Dial:
    """Connects to a slot of a node, as a launcher that dials again if its connection breaks."""

    def dial_slot(node: AgentProcess, slot: int, **keys: tuple[bytes, bytes]) -> Launcher:
        return dial(slot_address(node.control, slot), redial_ms=50, **keys)

    return dial_slot


def agents(node: AgentProcess) -> list[int]:
    children = Path(f"/proc/{node.pid}/task/{node.pid}/children").read_text()
    return [int(child) for child in children.split()]


def greet(launcher: Launcher, name: str) -> None:
    """Open a session; as a launcher does, repeat a greeting that was lost with its connection."""
    for _ in range(10):
        launcher.say(Hello(PROTOCOL, name, 60.0))
        if launcher.socket.poll(3000):
            assert isinstance(launcher.hear(), Welcome)
            return
    raise AssertionError("the agent does not answer")


def await_end(descriptor: int) -> None:
    """Wait for the end of the process of a pidfd."""
    try:
        assert select.select([descriptor], [], [], WAIT_S)[0], "it still runs"
    finally:
        os.close(descriptor)


def test_idle_agents_end_and_come_back_when_they_are_called(start: Start, dial: Dial) -> None:
    node = start(idle_s=0.3)
    await_end(os.pidfd_open(agents(node)[0]))
    for slot in (2, 1, 2):
        launcher = dial(node, slot)
        welcome = launcher.open_session()
        assert welcome.name == f"board/{slot}"
        assert welcome.data_address == node.control.rpartition(":")[0] + ":" + str(
            int(node.control.rpartition(":")[2]) + 2 * slot - 1
        )
        (agent,) = agents(node)
        ended = os.pidfd_open(agent)
        launcher.say(Bye())
        assert launcher.ask(Ping()) == Refused(
            "no session: it ended after a silence, or no Hello was sent", PROTOCOL
        )
        launcher.close()
        await_end(ended)


@pytest.mark.slow
def test_a_launcher_that_comes_just_when_an_agent_ends_is_not_refused(
    start: Start, dial: Dial
) -> None:
    node = start(idle_s=0.02)
    for number in range(8):
        launcher = dial(node, 1)
        greet(launcher, f"s{number}")
        (agent,) = agents(node)
        end = os.pidfd_open(agent)
        launcher.say(Bye())
        launcher.close()
        select.select(
            [end], [], [], 0.015 + 0.004 * number
        )  # come while it ends, or has just ended
        os.close(end)


def test_a_slot_that_is_taken_refuses_and_the_other_one_is_free(start: Start, dial: Dial) -> None:
    node = start()
    dial(node, 1).open_session("one")
    refused = dial(node, 1).ask(Hello(PROTOCOL, "two", 60.0))
    assert isinstance(refused, Refused)
    assert "is using this agent" in refused.reason
    dial(node, 2).open_session("two")


def test_a_killed_agent_takes_no_other_with_it_and_is_back_at_once(
    start: Start, dial: Dial
) -> None:
    node = start()
    one, two = dial(node, 1), dial(node, 2)
    one.open_session("one")
    two.open_session("two")
    first, second = sorted(agents(node))
    os.kill(second, signal.SIGKILL)
    two.await_cut_off()
    two.open_session("two")  # over a new connection
    assert one.ask(Ping()) == Pong()
    assert first in agents(node)


def test_sigterm_ends_the_node_and_all_its_agents(start: Start, dial: Dial) -> None:
    node = start()
    dial(node, 2).open_session()
    ends = [os.pidfd_open(agent) for agent in agents(node)]
    assert len(ends) == 2
    node.process.send_signal(signal.SIGTERM)
    for end in ends:
        await_end(end)
    out, _ = node.process.communicate(timeout=WAIT_S)
    assert node.process.returncode == 0
    *of_agents, of_node = map(json.loads, out.splitlines())
    assert {said["name"] for said in of_agents} == {"board/1", "board/2"}
    assert of_node["why"] == "SIGTERM"
    assert of_node["slots"] == [{"slot": 1, "starts": 1}, {"slot": 2, "starts": 1}]


def test_a_parent_that_is_killed_leaves_no_agent(start: Start, dial: Dial) -> None:
    node = start()
    dial(node, 2).open_session()
    ends = [os.pidfd_open(agent) for agent in agents(node)]
    node.process.kill()
    for end in ends:
        await_end(end)


def test_the_end_of_its_own_parent_ends_the_node(start: Start) -> None:
    node = start()
    stdin, node.process.stdin = node.process.stdin, None
    stdin.close()
    assert node.process.wait(WAIT_S) == 0


@pytest.mark.slow
def test_an_agent_that_stands_still_is_killed_and_started_again(
    start: Start, dial: Dial, tmp_path: Path
) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(WAIT_S)
        node = start(NOTIFY_SOCKET=str(tmp_path / "notify"), WATCHDOG_USEC="3000000")
        assert manager.recv(100) == b"READY=1"
        one, two = dial(node, 1), dial(node, 2)
        one.open_session("one")
        two.open_session("two")
        _, second = sorted(agents(node))
        ended = os.pidfd_open(second)
        os.kill(second, signal.SIGSTOP)
        await_end(ended)
        two.await_cut_off()
        two.open_session("two")
        assert one.ask(Ping()) == Pong()
        assert manager.recv(100) == b"WATCHDOG=1", "of the parent, about itself"


def test_keys_are_read_again_by_all_agents(start: Start, dial: Dial, tmp_path: Path) -> None:
    public, secret = new_pair()
    mine, my_secret = new_pair()
    folder = tmp_path / "keys"
    write_secret(folder, "board", secret, public)
    write_public(folder / "launchers" / "me.pub", "me", mine)
    node = start("--keys", str(folder))
    launchers = [dial(node, slot, keys=(my_secret, public)) for slot in (1, 2)]
    for launcher in launchers:
        launcher.open_session()
    (folder / "launchers" / "me.pub").unlink()
    node.process.send_signal(signal.SIGHUP)
    for launcher in launchers:
        launcher.await_cut_off()
    assert node.process.poll() is None


def large_matrix(side: int = 2048) -> onnx.ModelProto:
    """16 MB of weights."""
    row = (TensorProto.FLOAT, [1, side])
    multiply = helper.make_node("MatMul", ["x", "w"], ["y"])
    weights = {"w": np.ones((side, side), np.float32)}
    return models.model("large", [multiply], [("x", *row)], [("y", *row)], weights)


@pytest.fixture
def group(stack: ExitStack) -> Path:
    """A control group whose processes may hold 1 GB together."""
    root = Path("/sys/fs/cgroup")
    for folder, limit in ((root / "memory", "memory.limit_in_bytes"), (root, "memory.max")):
        group = folder / f"csdf-slots-{os.getpid()}"
        try:
            group.mkdir()
            stack.callback(group.rmdir)
            (group / limit).write_text(str(1 << 30))
        except OSError:
            continue
        return group
    pytest.skip("no control group can be made here")


def test_a_slot_reports_the_memory_that_the_others_leave_of_the_node_s_limit(
    group: Path, start: Start, dial: Dial, tmp_path: Path
) -> None:
    large = line(tmp_path / "large", large_matrix())
    weights = sum(map(len, large.blobs.values()))
    node = start()
    for pid in (node.pid, *agents(node)):
        (group / "cgroup.procs").write_text(str(pid))
    one, two = dial(node, 1), dial(node, 2)

    def left() -> int:
        found = two.open_session("two").available_bytes
        assert found is not None
        return found

    before = left()
    one.open_session("one")
    one.upload(large.blobs)
    assert isinstance(one.deploy(large.deployment(1)), Deployed)
    beside = left()
    assert beside < before - weights
    one.stop(1)
    assert left() > beside + 0.9 * weights


# ---------------------------------------------------------------- mistakes


def test_a_port_of_another_slot_that_is_taken_is_named(tmp_path: Path, start: Start) -> None:
    taken = slot_address(start().control, 2)
    said = refusal_of(tmp_path, "--slots", "2", "--listen", taken)
    assert f"cannot listen on {taken!r}" in said
    assert "is another agent running there?" in said


def test_an_agent_takes_two_sockets_or_none(tmp_path: Path) -> None:
    script = (
        "import os, sys\n"
        "os.environ.update(LISTEN_FDS='1', LISTEN_PID=str(os.getpid()))\n"
        "from nodes.cli import main\n"
        "sys.exit(main(['--cache', sys.argv[1], '--listen', 'tcp://127.0.0.1:0']))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )
    assert done.returncode == 2
    assert "was given 1 sockets; it takes two that listen" in done.stderr
