"""A small real network and real agents, which the tests of this folder deploy and compare."""

from __future__ import annotations

import os
import secrets
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sized
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import zmq
from onnx import helper, numpy_helper

from cnn import read
from cnn.model import Model
from cnn.rewrite.rewrites import Copies, Rewrite, copy_name
from launcher.config.access import Access
from launcher.run.feed import Feed, Outputs
from launcher.run.frame_list import listed
from launcher.run.parts import Part
from launcher.run.processes import LocalAgents
from launcher.run.runner import run
from launcher.run.runtime import (
    Frames,
    Node,
    OnResult,
    OnUpdate,
    PushedFrames,
    RunOptions,
    RunResult,
    SubnetFiles,
    Update,
)
from nodes.protocol.codec import encode
from nodes.protocol.messages import HOST, Message
from partition.devices import Device
from partition.plan import Plan
from partition.planner import make_plan
from partition.wire import RAW, WirePolicy

ort.set_default_logger_severity(4)

SHAPE = (1, 3, 16, 16)
WAIT_S = 20.0
"""How long a test waits for what must happen, before it fails."""


def write_network(path: Path, layers: int = 8, channels: int = 8) -> Path:
    """A chain of convolutions with ReLUs and a skip connection from the first to the last."""
    random = np.random.default_rng(5)
    nodes, weights, before = [], [], "image"
    for i in range(layers):
        width = 3 if i == 0 else channels
        values = random.standard_normal((channels, width, 3, 3)) / np.sqrt(9 * width / 2)
        weights.append(numpy_helper.from_array(values.astype(np.float32), f"w{i}"))
        nodes.append(helper.make_node("Conv", [before, f"w{i}"], [f"c{i}"], pads=[1, 1, 1, 1]))
        nodes.append(helper.make_node("Relu", [f"c{i}"], [f"r{i}"]))
        before = f"r{i}"
    nodes.append(helper.make_node("Add", ["r0", before], ["sum"]))
    nodes.append(helper.make_node("GlobalAveragePool", ["sum"], ["mean"]))
    nodes.append(helper.make_node("Flatten", ["mean"], ["features"]))
    graph = helper.make_graph(
        nodes,
        "small",
        [helper.make_tensor_value_info("image", onnx.TensorProto.FLOAT, SHAPE)],
        [helper.make_tensor_value_info("features", onnx.TensorProto.FLOAT, (1, channels))],
        weights,
    )
    opset = helper.make_opsetid("", 17)
    onnx.save(helper.make_model(graph, opset_imports=[opset], ir_version=8), path)
    return path


class RandomFrames:
    """`count` frames of seeded noise; counts how often one was asked for."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.loaded = 0

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> dict[str, np.ndarray]:
        self.loaded += 1
        random = np.random.default_rng(index)
        return {"image": random.standard_normal(SHAPE, dtype=np.float32)}


@contextmanager
def all_pushed(model: Model, frames: Frames, take: OnResult, batch: int) -> Iterator[Feed]:
    """A feed that has all frames, and gives `take` their results."""

    def taken(number: int, done: Future[Outputs]) -> None:
        take(number, done.result())

    feed = Feed(Part(model, is_alone=True), len(frames), count=len(frames), batch=batch, timed=True)
    for number in range(len(frames)):
        feed.submit(frames[number]).add_done_callback(partial(taken, number))
    feed.end()
    try:
        yield feed
    finally:
        feed.close()


@dataclass
class Results:
    """Takes results as `on_result` and progress as `on_update`."""

    outputs: list[np.ndarray]
    updates: list[Update]

    def __call__(self, frame: int, outputs: Mapping[str, np.ndarray]) -> None:
        assert frame == len(self.outputs)
        assert list(outputs) == ["features"]
        self.outputs.append(outputs["features"])

    @property
    def stages(self) -> list[str]:
        """All stages in order; a notice, which may be of a busy machine, has none."""
        return list(dict.fromkeys(update.stage for update in self.updates if update.stage))


def results() -> Results:
    return Results([], [])


@dataclass(frozen=True)
class Cluster:
    """A plan over nodes n0, n1, … with its subnets cut, and the whole network to compare with."""

    plan: Plan
    subnets: Mapping[str, SubnetFiles]
    model: Path

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(device.name for device in self.plan.devices)

    def nodes(
        self, addresses: Mapping[str, str] | None = None, access: Access | None = None
    ) -> tuple[Node, ...]:
        where = addresses or {}
        return tuple(Node(name, where.get(name), access=access or Access()) for name in self.names)

    def expected(self, frames: int) -> list[np.ndarray]:
        session = ort.InferenceSession(str(self.model), providers=["CPUExecutionProvider"])
        return [session.run(None, dict(RandomFrames(frames)[i]))[0] for i in range(frames)]

    def check(self, outputs: list[np.ndarray], frames: int, rtol: float = 1e-4) -> None:
        """Raises unless these are the whole network's outputs for the first `frames` frames."""
        assert len(outputs) == frames
        for got, wanted in zip(outputs, self.expected(frames), strict=True):
            np.testing.assert_allclose(got, wanted, rtol=rtol, atol=rtol / 10)

    def run(
        self,
        frames: Frames | PushedFrames,
        take: OnResult,
        options: RunOptions,
        *,
        nodes: tuple[Node, ...] | None = None,
        on_update: OnUpdate = lambda _: None,
        agents: LocalAgents | None = None,
    ) -> RunResult:
        """`launcher.run.runner.run` with this plan; without `nodes`, all of them are started
        here."""
        nodes = self.nodes() if nodes is None else nodes
        if self.plan.batch == 1 or not isinstance(frames, Sized):
            given = listed(frames, take) if isinstance(frames, Sized) else (frames,)
            return run(self.plan, nodes, self.subnets, given, on_update, options, agents)
        with all_pushed(read(self.model), frames, take, self.plan.batch) as feed:
            found = run(self.plan, nodes, self.subnets, (feed,), on_update, options, agents)
            return feed.in_frames(found)

    @property
    def most_under_way(self) -> int:
        """A bound for the frames that have been sent and not taken: all places in all channels."""
        return sum(channel.capacity_frames for channel in self.plan.channels)


def make_cluster(
    directory: Path,
    nodes: int,
    layers: int = 8,
    channels: int = 8,
    wire: WirePolicy = RAW,
    batch: int = 1,
) -> Cluster:
    """Deal the layers out to the nodes in turn, two at a time: many phases, many channels."""
    path = write_network(directory / "small.onnx", layers, channels)
    model = read(path)
    names = [f"n{i}" for i in range(nodes)]
    assignment = {
        layer.name: names[(i // 2) % nodes] for i, layer in enumerate(model.network.layers)
    }
    return _cluster(directory, path, names, assignment, wire=wire, batch=batch)


def make_dealt_cluster(directory: Path, frames: tuple[int, ...], batch: int = 1) -> Cluster:
    """A whole copy on each node, which gets its part of a cycle of frames."""
    path = write_network(directory / "small.onnx")
    names = [f"n{i}" for i in range(len(frames))]
    assignment = {
        copy_name(layer.name, copy): name
        for layer in read(path).network.layers
        for copy, name in enumerate(names, start=1)
    }
    return _cluster(directory, path, names, assignment, (Copies(frames),), batch=batch)


def _cluster(
    directory: Path,
    path: Path,
    names: list[str],
    assignment: Mapping[str, str],
    rewrites: tuple[Rewrite, ...] = (),
    wire: WirePolicy = RAW,
    batch: int = 1,
) -> Cluster:
    model = read(path).in_batches(batch).rewritten(rewrites)
    plan = make_plan(
        model.network,
        model.digest,
        [Device(name) for name in names],
        assignment,
        strategy="test",
        explanation="dealt out in turn",
        rewrites=rewrites,
        wire=wire,
    )
    subnets = {}
    for phase in plan.phases:
        cut = model.cut(phase.layers, phase.inputs, phase.outputs, directory / "subnets")
        subnets[phase.name] = SubnetFiles(cut.graph, cut.weights)
    assert {channel.source_device for channel in plan.channels} == {HOST, *names}
    return Cluster(plan, subnets, path)


def free_port(host: str = "127.0.0.1") -> int:
    """A port that is free, as is the one behind it, where an agent takes its data. Both lie below
    those that the kernel gives to connections (`ip_local_port_range`), or a launcher that keeps
    trying to connect takes the second one before the agent does."""
    while True:
        port = secrets.randbelow(8000) * 2 + 16384
        try:
            for number in (port, port + 1):
                with socket.socket() as probe:
                    probe.bind((host, number))
        except OSError:
            continue
        return port


@contextmanager
def daemons(
    names: tuple[str, ...], cache: Path, host: str = "127.0.0.1", keys: Path | None = None
) -> Iterator[dict[str, tuple[str, int]]]:
    """`node-agent --listen tcp://HOST:PORT` per name, with its keys if a cluster's are given;
    yields name → (address, process id)."""
    processes = {}
    try:
        for name in names:
            address = f"tcp://{host}:{free_port(host)}"
            processes[name] = (address, start_daemon(name, address, cache, keys))
        yield {name: (address, process.pid) for name, (address, process) in processes.items()}
    finally:
        for _, process in processes.values():
            process.send_signal(signal.SIGTERM)
        for _, process in processes.values():
            stop(process)


def start_daemon(
    name: str, address: str, cache: Path, keys: Path | None = None
) -> subprocess.Popen[bytes]:
    """`node-agent --listen ADDRESS`."""
    command = [sys.executable, "-m", "nodes.cli", "--listen", address, "--name", name]
    command += [] if keys is None else ["--keys", str(keys / name)]
    return subprocess.Popen(
        [*command, "--cache", str(cache / name)],
        stdin=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def stop(process: subprocess.Popen[bytes]) -> None:
    """SIGTERM, which must suffice; raises if it does not, having killed the process."""
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(WAIT_S)
    finally:
        process.kill()
        process.wait()


@contextmanager
def foreign_agent(answer: Message) -> Iterator[str]:
    """An address where whatever says something is answered with this one message."""
    with zmq.Context() as context, context.socket(zmq.ROUTER) as socket:
        port = socket.bind_to_random_port("tcp://127.0.0.1")

        def serve() -> None:
            sender, _ = socket.recv_multipart()
            socket.send_multipart([sender, encode(answer)])

        server = threading.Thread(target=serve)
        server.start()
        yield f"tcp://127.0.0.1:{port}"
        server.join(WAIT_S)


def has_ended(pid: int) -> bool:
    """Waits until a process that is not our child has ended; False if it does not in `WAIT_S`."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([descriptor], [], [], WAIT_S)[0])
    finally:
        os.close(descriptor)


def group_has_ended(group: int) -> bool:
    """Likewise for all processes of a process group."""
    found = [int(entry) for entry in os.listdir("/proc") if entry.isdigit()]
    return all(has_ended(pid) for pid in found if _group_of(pid) == group)


def _group_of(pid: int) -> int | None:
    try:
        return os.getpgid(pid)
    except ProcessLookupError:
        return None


def is_running(pid: int) -> bool:
    """Whether any process of the process group `pid` is left."""
    try:
        os.killpg(pid, 0)
    except ProcessLookupError:
        return False
    return True


def wait_until_it_listens(address: str, within_s: float = WAIT_S) -> None:
    """Wait until a daemon accepts connections at its address."""
    with (
        zmq.Context() as context,
        context.socket(zmq.DEALER) as client,
        client.get_monitor_socket(zmq.EVENT_CONNECTED) as connected,
    ):
        client.connect(address)  # ZeroMQ tries again until it succeeds
        assert connected.poll(int(within_s * 1e3)), f"nothing listens at {address}"
        client.disable_monitor()
