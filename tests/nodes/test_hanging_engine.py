"""A call into an engine that never returns costs its firing and its engine, but not the agent.

The agents are real processes. Most engines hang in the C library's `pause`, in the thread that
computes; some are ONNX Runtime with networks that take minutes. Where an agent has to restart, the
least time limits (20 s for a firing, 10 s for unloading) are shortened to one second.
"""

from __future__ import annotations

import itertools
import os
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from csdf_edge.testing import executor_models as models
from nodes.protocol.messages import (
    HOST,
    BlobInfo,
    Bye,
    ChannelSpec,
    Deploy,
    Deployed,
    Failed,
    PhaseSpec,
    Ping,
    Pong,
    Progress,
    Start,
    Stop,
    Stopped,
)
from tests.nodes.deploying import Host, Launcher, Line, line
from tests.nodes.hanging_agent import (
    FIRING,
    HANGING,
    HANGS,
    HANGS_WITH_INTERPRETER,
    LOADING,
    REHEARSING,
    SHAPE,
)
from tests.nodes.speaker import WAIT_S, AgentProcess

SHORT = {"PATIENCE_S": "1"}
RESTARTS = "the agent restarts"


def hanging(kind: bytes) -> Line:
    """The one phase that the hanging engine knows."""
    digest = sha256(kind).hexdigest()
    phase = PhaseSpec("stuck", BlobInfo(digest, len(kind)), None, ("x",), ("y",))
    channels = (
        ChannelSpec(0, "x", "float32", SHAPE, HOST, None, "a", (0,), 2),
        ChannelSpec(1, "y", "float32", SHAPE, "a", 0, HOST, (), 2),
    )
    return Line((phase,), channels, {digest: kind})


@pytest.fixture
def start(start: Callable[..., AgentProcess]) -> Callable[..., AgentProcess]:
    def start_hanging(*arguments: str, parent: bool = True, **environment: str) -> AgentProcess:
        module = "tests.nodes.hanging_agent"
        return start(
            "--name", "a", *arguments, parent=parent, module=module, environment=environment
        )

    return start_hanging


@pytest.fixture
def launch(dial: Callable[..., Launcher]) -> Callable[..., Launcher]:
    names = map("s{}".format, itertools.count())

    def launch(agent: AgentProcess, lease_s: float = 60.0) -> Launcher:
        launcher = dial(agent.control)
        launcher.open_session(next(names), lease_s)
        return launcher

    return launch


@pytest.fixture
def stick(launch: Callable[..., Launcher], dial: Callable[..., Host]) -> Callable[..., Launcher]:
    """Brings an agent to hang in its engine; returns its launcher."""

    def stick(
        agent: AgentProcess, kind: bytes = FIRING, value: float = HANGS, lease_s: float = 60.0
    ) -> Launcher:
        launcher = launch(agent, lease_s)
        network = hanging(kind)
        launcher.upload(network.blobs)
        if kind != FIRING:
            launcher.say(Deploy(network.deployment(1)))
            last = "loaded stuck" if kind == REHEARSING else "preparing"
            while launcher.hear(Progress).what != last:
                pass
            return launcher
        assert isinstance(launcher.deploy(network.deployment(1)), Deployed)
        launcher.say(Start(1))
        dial(agent.data, Host).feed(network, 1, np.full(SHAPE, value, np.float32).tobytes())
        if value in (HANGS, HANGS_WITH_INTERPRETER):
            said = iter(agent.process.stderr.readline, "")  # ends when the agent does
            assert any(HANGING in line for line in said), "the agent ended before its engine hung"
        return launcher

    return stick


def assert_streams(agent: AgentProcess, launch: Callable[..., Launcher], dial) -> None:
    """It has nothing left of what was, and computes."""
    launcher = launch(agent)
    network = hanging(FIRING)
    launcher.upload(network.blobs)
    assert isinstance(launcher.deploy(network.deployment(1)), Deployed)
    launcher.say(Start(1))
    dial(agent.data, Host).stream(network, 1, 5)
    assert launcher.stop(1).stats.firings == (5,)
    launcher.say(Bye())


def children(agent: AgentProcess) -> list[str]:
    return Path(f"/proc/{agent.pid}/task/{agent.pid}/children").read_text().split()


def test_a_firing_that_does_not_end_has_failed_and_the_agent_starts_again_in_its_place(
    start, launch, stick, dial
) -> None:
    agent = start(**SHORT)
    addresses = agent.control, agent.data
    launcher = stick(agent)
    failed = launcher.hear(Failed)
    assert "phase 'stuck' at frame 0 has not ended for " in failed.reason
    assert failed.epoch == 1
    assert RESTARTS in launcher.hear(Failed).reason
    launcher.await_cut_off()
    assert any(RESTARTS in line for line in agent.await_ready())
    assert (agent.control, agent.data) == addresses
    assert_streams(agent, launch, dial)
    agent.process.send_signal(signal.SIGTERM)
    assert agent.report()["why"] == "SIGTERM"


@pytest.mark.slow
def test_the_agent_of_a_slot_starts_again_with_the_sockets_that_it_was_given(
    start, launch, stick, dial
) -> None:
    node = start("--slots", "2", **SHORT)
    (before,) = children(node)
    addresses = node.control, node.data
    stick(node).await_cut_off()
    assert any(RESTARTS in line for line in node.await_ready())
    assert (node.control, node.data) == addresses
    assert children(node) == [before]
    assert_streams(node, launch, dial)


@pytest.mark.slow
def test_starting_again_again_and_again_leaves_nothing_open_and_no_process(start, stick) -> None:
    agent = start(**SHORT)
    held: list[tuple[int, int]] = []
    for _ in range(3):
        held.append((agent.descriptors(), len(children(agent))))
        launcher = stick(agent)
        launcher.await_cut_off()
        agent.await_ready()
    assert held[1:] == held[1:2] * 2
    # A process that is confined already cannot open the file that resets the peak of its memory.
    assert held[0][0] - 1 <= held[1][0] <= held[0][0]
    assert held[0][1] == held[1][1] == 0


@pytest.mark.parametrize(
    ("kind", "number"),
    [
        (FIRING, signal.SIGTERM),
        pytest.param(FIRING, signal.SIGINT, marks=pytest.mark.slow),
        pytest.param(REHEARSING, signal.SIGTERM, marks=pytest.mark.slow),
        pytest.param(LOADING, signal.SIGINT, marks=pytest.mark.slow),
    ],
)
def test_signals_are_obeyed_while_the_engine_hangs(start, stick, kind, number) -> None:
    agent = start(parent=False, STOP_S="0.2")
    launcher = stick(agent, kind)
    assert launcher.ask(Ping()) == Pong()
    agent.process.send_signal(number)
    assert agent.report()["why"] == signal.Signals(number).name


@pytest.mark.slow
def test_the_end_of_its_parent_is_obeyed_while_the_engine_hangs(start, stick) -> None:
    agent = start(STOP_S="0.2")
    stick(agent)
    agent.process.stdin.close()
    agent.process.stdin = None
    assert agent.report()["why"] == "its parent process has ended"


@pytest.mark.slow
@pytest.mark.parametrize("how", ["Stop", "Bye", "lease"])
@pytest.mark.parametrize("kind", [REHEARSING, FIRING])
def test_whoever_comes_after_one_whose_engine_hangs_finds_an_agent_that_computes(
    start, launch, stick, dial, kind, how
) -> None:
    agent = start(**(SHORT | ({"PATIENCE_S": "2"} if how == "lease" else {})))
    launcher = stick(agent, kind, lease_s=0.5 if how == "lease" else 60.0)
    match how:
        case "Stop":
            launcher.say(Stop(1))
            while RESTARTS not in launcher.hear(Failed).reason:
                pass  # on a busy machine, the call has lasted too long before it is to stop
        case "Bye":
            launcher.say(Bye())
    assert any(RESTARTS in line for line in agent.await_ready())
    assert_streams(agent, launch, dial)


# ---------------------------------------------------------------- an engine that can be interrupted


def endless(layers: int = 60, side: int = 1024) -> onnx.ModelProto:
    """Seconds of matrices, one layer after the other."""
    names = ["x", *(f"t{number}" for number in range(1, layers)), "y"]
    nodes = [
        helper.make_node("MatMul", [names[number], "w"], [names[number + 1]])
        for number in range(layers)
    ]
    square = (TensorProto.FLOAT, [side, side])
    weights = {"w": np.eye(side, dtype=np.float32)}
    return models.model("endless", nodes, [("x", *square)], [("y", *square)], weights)


def as_long_as_told(layers: int = 400) -> onnx.ModelProto:
    """A frame says how large the matrices are: of none to warm up with, of 1500 rows in earnest."""
    nodes = [
        helper.make_node("Cast", ["x"], ["side"], to=TensorProto.INT64),
        helper.make_node("Concat", ["side", "side"], ["shape"], axis=0),
        helper.make_node("ConstantOfShape", ["shape"], ["t0"]),
        *(
            helper.make_node("MatMul", [f"t{number}", "t0"], [f"t{number + 1}"], f"layer{number}")
            for number in range(layers)
        ),
        helper.make_node("ReduceSum", [f"t{layers}"], ["s"], keepdims=0),
        helper.make_node("Add", ["x", "s"], ["y"]),
    ]
    one = (TensorProto.FLOAT, [1])
    return models.model("told", nodes, [("x", *one)], [("y", *one)])


@pytest.mark.slow
def test_a_long_rehearsal_is_interrupted_and_the_agent_continues(start, launch, tmp_path) -> None:
    agent = start(ENGINE="real")
    launcher = launch(agent)
    network = line(tmp_path / "endless", endless())
    launcher.upload(network.blobs)
    launcher.say(Deploy(network.deployment(1)))
    while launcher.hear(Progress).what != "loaded p0":
        pass
    launcher.say(Stop(1))
    assert launcher.hear(Stopped).epoch == 1
    small = line(tmp_path / "small", models.residual())
    launcher.upload(small.blobs)
    assert isinstance(launcher.deploy(small.deployment(2)), Deployed)
    agent.process.send_signal(signal.SIGTERM)
    assert agent.report()["why"] == "SIGTERM"


@pytest.mark.slow
def test_a_firing_of_minutes_is_interrupted_and_the_agent_continues(
    start, launch, dial, tmp_path
) -> None:
    agent = start("--log-level", "info", ENGINE="real", PATIENCE_S="2")
    launcher = launch(agent)
    network = line(tmp_path / "told", as_long_as_told())
    launcher.upload(network.blobs)
    assert isinstance(launcher.deploy(network.deployment(1)), Deployed)
    launcher.say(Start(1))
    host = dial(agent.data, Host)
    host.feed(network, 1, np.float32(1500).tobytes())
    assert "phase 'p0' at frame 0 has not ended for 2 s" in launcher.hear(Failed).reason
    assert isinstance(launcher.deploy(network.deployment(2)), Deployed)
    launcher.stop(2)
    host.close()
    agent.process.send_signal(signal.SIGTERM)
    agent.process.wait(WAIT_S)
    said = agent.process.stderr.read()
    assert "terminate flag" in said, "the engine told where it was"
    assert RESTARTS not in said


# ---------------------------------------------------------------- one that lets no Python run


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[socket.socket]:
    """Where a service manager hears from its services."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(WAIT_S)
        yield manager


def test_the_service_manager_hears_that_an_agent_is_ready_and_alive_until_nothing_turns_any_more(
    start, stick, manager
) -> None:
    environment = {"NOTIFY_SOCKET": manager.getsockname(), "WATCHDOG_USEC": "200000"}
    agent = start(**environment)
    assert manager.recv(100) == b"READY=1"
    for _ in range(5):
        assert manager.recv(100) == b"WATCHDOG=1"
    stick(agent, value=HANGS_WITH_INTERPRETER)
    manager.settimeout(0.6)
    with suppress(TimeoutError):  # what was said before the frame came is read first
        for _ in range(20):
            assert manager.recv(100) == b"WATCHDOG=1"
    with pytest.raises(TimeoutError):
        manager.recv(100)
    agent.process.kill()  # as the manager does


def test_an_agent_without_a_service_manager_that_watches_is_not_woken_up(start, manager) -> None:
    agent = start(NOTIFY_SOCKET=manager.getsockname(), WATCHDOG_USEC="200000", WATCHDOG_PID="1")
    assert manager.recv(100) == b"READY=1"
    manager.settimeout(0.6)
    with pytest.raises(TimeoutError):
        manager.recv(100)
    assert os.path.exists(f"/proc/{agent.pid}")
