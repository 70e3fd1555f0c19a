"""Real agents that compute: a network in three phases, fed and emptied by the test itself."""

from __future__ import annotations

import dataclasses
import hashlib
import os

import numpy as np
import onnx
import onnxruntime as ort
import pytest
import zmq
from onnx import helper, numpy_helper

from cnn import read
from nodes.protocol.codec import decode, encode
from nodes.protocol.messages import (
    HOST,
    Attach,
    BlobInfo,
    Bye,
    ChannelSpec,
    Credit,
    Deploy,
    Deployed,
    Deployment,
    Failed,
    Missing,
    PeerSpec,
    PhaseSpec,
    Query,
    Start,
    TensorHeader,
)
from tests.nodes.deploying import Launcher
from tests.nodes.speaker import AgentProcess, Speaker

ort.set_default_logger_severity(4)

SHAPE = (1, 4, 32, 32)
BYTES = 4 * 4 * 32 * 32


@dataclasses.dataclass(frozen=True)
class Network:
    """x → a → b → c with x + b in the last step; each step a phase, its files as blobs."""

    model: bytes
    phases: tuple[PhaseSpec, ...]
    blobs: dict[str, bytes]

    def compute(self, x: np.ndarray) -> np.ndarray:
        session = ort.InferenceSession(self.model, providers=["CPUExecutionProvider"])
        return session.run(None, {"x": x})[0]

    def deployment(self, epoch: int, order: str = "pipelined") -> Deployment:
        """All of it on node a."""
        channels = (
            self.channel(0, "x", HOST, None, "a", (0, 2), 3),
            self.channel(1, "a", "a", 0, "a", (1,), 2),
            self.channel(2, "b", "a", 1, "a", (2,), 2),
            self.channel(3, "c", "a", 2, HOST, (), 2),
        )
        return Deployment(epoch, "a", order, self.phases, channels, ())

    @staticmethod
    def channel(number, tensor, source, phase, target, phases, capacity) -> ChannelSpec:
        return ChannelSpec(
            number, tensor, "float32", SHAPE, source, phase, target, phases, capacity
        )


@pytest.fixture(scope="module")
def network(tmp_path_factory) -> Network:
    random = np.random.default_rng(3)
    kernels = random.standard_normal((2, 4, 4, 3, 3), np.float32) / 6
    weights = [numpy_helper.from_array(kernel, f"w{i}") for i, kernel in enumerate(kernels)]
    nodes = [
        helper.make_node("Conv", ["x", "w0"], ["a"], "first", pads=[1, 1, 1, 1]),
        helper.make_node("Conv", ["a", "w1"], ["b"], "second", pads=[1, 1, 1, 1]),
        helper.make_node("Add", ["x", "b"], ["c"], "third"),
    ]
    value = [helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, SHAPE) for n in "xc"]
    graph = helper.make_graph(nodes, "three", value[:1], value[1:], weights)
    opset = helper.make_opsetid("", 17)
    directory = tmp_path_factory.mktemp("model")
    onnx.save(
        helper.make_model(graph, opset_imports=[opset], ir_version=8), directory / "three.onnx"
    )
    model = read(directory / "three.onnx")
    layers = [layer.name for layer in model.network.layers]
    blobs: dict[str, bytes] = {}

    def blob(path):
        if path is None:
            return None
        content = path.read_bytes()
        digest = hashlib.sha256(content).hexdigest()
        blobs[digest] = content
        return BlobInfo(digest, len(content))

    phases = []
    for layer, inputs, output in zip(layers, (("x",), ("a",), ("x", "b")), "abc", strict=True):
        cut = model.cut((layer,), inputs, (output,), directory / "subnets")
        phases.append(PhaseSpec(layer, blob(cut.graph), blob(cut.weights), inputs, (output,)))
    return Network((directory / "three.onnx").read_bytes(), tuple(phases), blobs)


class Host(Speaker):
    """The data side: feeds channel 0, takes channel 3 and gives its places back."""

    def stream(self, epoch: int, frames: list[np.ndarray]) -> list[np.ndarray]:
        self.say(Attach(epoch, HOST), Credit(epoch, 3, 2))
        waiting = list(enumerate(frames))
        results: list[np.ndarray] = []
        while len(results) < len(frames):
            header, *payload = self.socket.recv_multipart()
            message = decode(header)
            if isinstance(message, Credit):
                assert message.channel == 0
                for _ in range(message.frames):
                    if waiting:
                        number, frame = waiting.pop(0)
                        sent = TensorHeader(epoch, 0, number, "float32", SHAPE)
                        self.say_raw(encode(sent), frame.tobytes())
            else:
                assert message == TensorHeader(epoch, 3, len(results), "float32", SHAPE)
                results.append(np.frombuffer(payload[0], np.float32).reshape(SHAPE))
                self.say(Credit(epoch, 3, 1))
        return results


@pytest.fixture
def start(start, dial):
    """Starts an agent and opens a session; returns it with its launcher."""

    def start_with_launcher(name: str, lease_s: float = 60.0) -> tuple[AgentProcess, Launcher]:
        agent = start("--name", name)
        launcher = dial(agent.control)
        launcher.open_session(lease_s=lease_s)
        return agent, launcher

    return start_with_launcher


def test_computes_what_the_whole_network_computes(network, start, dial):
    agent, launcher = start("a")
    frames = [np.random.default_rng(k).standard_normal(SHAPE, np.float32) for k in range(12)]
    wanted = [network.compute(frame) for frame in frames]
    launcher.upload(network.blobs)
    for epoch, order in ((5, "pipelined"), (6, "strict"), (7, "pipelined")):
        deployed = launcher.deploy(network.deployment(epoch, order))
        assert isinstance(deployed, Deployed), deployed
        assert all(s > 0 for s in deployed.phase_s)
        launcher.say(Start(epoch))
        host = dial(agent.data, Host)
        results = host.stream(epoch, frames)
        for result, expected in zip(results, wanted, strict=True):
            np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-5)
        stats = launcher.stop(epoch).stats
        assert stats.firings == (12, 12, 12)
        assert all(busy_s > 0 for busy_s in stats.busy_s)
        assert sum(stats.busy_s) <= stats.elapsed_s
        assert stats.received_bytes == stats.sent_bytes == 12 * BYTES
        assert stats.bad_messages == 0
        assert 0 < stats.anonymous_bytes < stats.rss_bytes <= stats.rss_peak_bytes
        host.close()
    assert launcher.ask(Query(tuple(network.blobs))) == Missing(())


def test_a_plan_that_does_not_fit_its_subnets_is_refused_by_name(network, start):
    _, launcher = start("a")
    launcher.upload(network.blobs)
    good = network.deployment(1)
    channels = (dataclasses.replace(good.channels[0], shape=(1, 4, 32, 33)), *good.channels[1:])
    wrong_shape = dataclasses.replace(good, channels=channels)
    answer = launcher.deploy(wrong_shape)
    assert isinstance(answer, Failed)
    assert "'x' is float32[1, 4, 32, 32], but float32[1, 4, 32, 33] in its plan" in answer.reason
    swapped = dataclasses.replace(good.phases[0], graph=good.phases[1].graph)
    answer = launcher.deploy(dataclasses.replace(good, epoch=2, phases=(swapped, *good.phases[1:])))
    assert isinstance(answer, Failed)
    assert "has no input 'x'" in answer.reason
    absent = dataclasses.replace(good.phases[0], graph=BlobInfo("0" * 64, 1))
    answer = launcher.deploy(dataclasses.replace(good, epoch=3, phases=(absent, *good.phases[1:])))
    assert isinstance(answer, Failed)
    assert "0" * 64 in answer.reason
    assert isinstance(launcher.deploy(dataclasses.replace(good, epoch=4)), Deployed)


def two_nodes(network: Network, addresses: dict[str, str]) -> dict[str, Deployment]:
    """The first phase on a, the others on b."""
    channels = (
        network.channel(0, "x", HOST, None, "a", (0,), 2),
        network.channel(1, "x", HOST, None, "b", (1,), 4),
        network.channel(2, "a", "a", 0, "b", (0,), 2),
        network.channel(4, "b", "b", 0, "b", (1,), 2),
        network.channel(3, "c", "b", 1, HOST, (), 2),
    )
    return {
        node: Deployment(
            9,
            node,
            "pipelined",
            network.phases[:1] if node == "a" else network.phases[1:],
            tuple(c for c in channels if node in (c.source_node, c.target_node)),
            (PeerSpec("b", addresses["b"]),) if node == "a" else (),
        )
        for node in "ab"
    }


@pytest.mark.slow
@pytest.mark.parametrize(("victim", "witness"), ["ab", "ba"])
def test_who_loses_its_neighbour_says_so(network, start, dial, victim, witness):
    nodes = {name: start(name) for name in "ab"}
    deployments = two_nodes(network, {name: agent.data for name, (agent, _) in nodes.items()})
    for name, (_, launcher) in nodes.items():
        launcher.upload(network.blobs)
        assert isinstance(launcher.deploy(deployments[name]), Deployed)
    for _, launcher in nodes.values():
        launcher.say(Start(9))
        launcher.stats()
    agent, launcher = nodes["a"]
    host = dial(agent.data, Host)
    host.say(Attach(9, HOST))
    assert isinstance(host.hear(), Credit)
    host.say_raw(encode(TensorHeader(9, 0, 0, "float32", SHAPE)), bytes(BYTES))
    while launcher.stats().firings != (1,):  # b has given it a place, so both are connected
        host.socket.poll(20)
    nodes[victim][0].process.kill()
    failed = nodes[witness][1].hear()
    assert isinstance(failed, Failed)
    assert f"the data connection with node '{victim}' broke" in failed.reason


@pytest.mark.slow
def test_deployments_sessions_and_neighbours_that_die_leave_nothing_open(
    network, start, stack, context, dial
):
    agent, launcher = start("a")
    launcher.upload(network.blobs)
    for epoch in range(1, 31):
        neighbour = context.socket(zmq.ROUTER)
        stack.callback(neighbour.close, 0)
        port = neighbour.bind_to_random_port("tcp://127.0.0.1")
        deployment = two_nodes(network, {"b": f"tcp://127.0.0.1:{port}"})["a"]
        deployed = launcher.deploy(dataclasses.replace(deployment, epoch=epoch))
        assert isinstance(deployed, Deployed), deployed
        launcher.say(Start(epoch))
        assert neighbour.poll(20_000), "the agent has dialled it"
        neighbour.close(0)
        assert isinstance(launcher.hear(Failed), Failed)
        launcher.stop(epoch)
        launcher.say(Bye())
        launcher.close()
        launcher = dial(agent.control)
        launcher.open_session(f"launcher {epoch}")
        if epoch == 1:
            descriptors, threads = agent.descriptors(), len(os.listdir(f"/proc/{agent.pid}/task"))
    assert agent.falls_to(descriptors, agent.descriptors)
    assert agent.falls_to(threads, lambda: len(os.listdir(f"/proc/{agent.pid}/task")))


@pytest.mark.slow
def test_a_data_port_that_cannot_be_reached_is_named(network, start):
    _, launcher = start("a")
    launcher.upload(network.blobs)
    deployment = two_nodes(network, {"b": "tcp://127.0.0.1:9"})["a"]
    assert isinstance(launcher.deploy(deployment), Deployed)
    launcher.say(Start(9))
    failed = launcher.hear()
    assert isinstance(failed, Failed)
    assert "'b' at tcp://127.0.0.1:9" in failed.reason


@pytest.mark.slow
def test_an_agent_is_free_again_when_its_launcher_falls_silent(network, start, dial):
    agent, launcher = start("a", lease_s=0.5)
    launcher.upload(network.blobs)
    launcher.say(Deploy(network.deployment(1)))
    launcher.close()
    other = dial(agent.control)
    while True:
        try:
            other.open_session("other")
            break
        except AssertionError:
            other.socket.poll(50)
    other.upload(network.blobs)
    assert isinstance(other.deploy(network.deployment(2)), Deployed)
