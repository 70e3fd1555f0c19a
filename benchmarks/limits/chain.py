"""Makes a network that computes almost nothing, so that only the runtime's cost remains.

It is a chain of `layers` operators that each change the sign of a tensor of `elements` numbers,
distributed over nodes in order. Every agent receives one tensor per frame, fires one phase per
layer that it has, and sends one tensor.
"""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from onnx import helper

from benchmarks.programs import free_port
from cnn import Model, read
from launcher.config.run import RunConfig
from launcher.run import runtime
from launcher.run.frame_list import listed
from launcher.run.processes import LocalAgents
from launcher.run.runner import run
from launcher.run.runtime import Node, OnResult, OnUpdate, RunOptions, RunResult, SubnetFiles
from nodes.protocol.payload import Array
from partition.devices import Device
from partition.plan import Plan
from partition.planner import make_plan

BYTES_PER_ELEMENT = 4

CONNECT_S = 120.0
"""A hundred agents import their engines at once."""


def write_chain(path: Path, elements: int, layers: int) -> Path:
    """Write the network as ONNX; returns `path`."""
    nodes = [
        helper.make_node("Neg", [f"t{number}"], [f"t{number + 1}"], f"neg{number}")
        for number in range(layers)
    ]
    value = [
        helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1, elements])
        for name in ("t0", f"t{layers}")
    ]
    graph = helper.make_graph(nodes, f"chain{elements}", value[:1], value[1:])
    opset = helper.make_opsetid("", 13)
    onnx.save(helper.make_model(graph, opset_imports=[opset], ir_version=8), path)
    return path


@dataclass(frozen=True)
class Chain:
    """A network, its plan on `nodes` (`n0`, `n1`, …) and its subnets on disk."""

    model: Model
    plan: Plan
    subnets: Mapping[str, SubnetFiles]
    nodes: tuple[Node, ...]
    elements: int
    place: Path

    def stream(
        self,
        agents: LocalAgents,
        frames: runtime.Frames,
        on_result: OnResult = lambda _, __: None,
        on_update: OnUpdate = lambda _: None,
    ) -> RunResult:
        """Run it on these agents, which are left as they are for another run."""
        return run(
            self.plan, self.nodes, self.subnets, listed(frames, on_result), on_update,
            RunOptions(RunConfig(connect_timeout_s=CONNECT_S), keep_agents=True), agents,
        )  # fmt: skip


class Frames:
    """`count` times the same frame, as fast as they are taken or one every `pace_s` seconds."""

    def __init__(self, chain: Chain, count: int, pace_s: float = 0.0) -> None:
        random = np.random.default_rng(0)
        self._frame = {"t0": random.random((1, chain.elements), np.float32)}
        self._count = count
        self._pace_s = pace_s
        self._began_s = 0.0

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> Mapping[str, Array]:
        if self._pace_s:
            self._began_s = self._began_s or time.monotonic()
            time.sleep(max(0.0, self._began_s + index * self._pace_s - time.monotonic()))
        return self._frame


@contextlib.contextmanager
def made_chain(elements: int, devices: int) -> Iterator[Chain]:
    """A chain of a layer per device; its files are removed afterwards."""
    with tempfile.TemporaryDirectory(prefix="chain-") as directory:
        place = Path(directory)
        model = read(write_chain(place / "chain.onnx", elements, devices))
        names = [f"n{number}" for number in range(devices)]
        layers = (layer.name for layer in model.network.layers)
        plan = make_plan(
            model.network,
            model.digest,
            tuple(Device(name) for name in names),
            dict(zip(layers, names, strict=True)),
            strategy="sequential",
            explanation="a layer each",
        )
        subnets = {}
        for phase in plan.phases:
            cut = model.cut(phase.layers, phase.inputs, phase.outputs, place / "subnets")
            subnets[phase.name] = SubnetFiles(cut.graph, cut.weights)
        nodes = tuple(Node(name) for name in names)
        yield Chain(model, plan, subnets, nodes, elements, place)


@contextlib.contextmanager
def agents_of(chain: Chain) -> Iterator[LocalAgents]:
    """The shipped agents, one per node, on loopback; ended on the way out."""
    with started(chain.nodes, chain.place, "tcp") as agents:
        yield agents


@contextlib.contextmanager
def started(nodes: tuple[Node, ...], place: Path, transport: str) -> Iterator[LocalAgents]:
    """The shipped agents of these nodes, with a cache under `place` that they share."""
    agents = LocalAgents()
    try:
        for node in nodes:
            address = (
                f"tcp://127.0.0.1:{free_port()}"
                if transport == "tcp"
                else f"ipc://{place}/{node.name}"
            )
            agents.start(node.name, address, ["--cache", str(place / "cache")])
        yield agents
    finally:
        agents.end()
