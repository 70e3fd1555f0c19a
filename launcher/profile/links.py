"""Identifies the nodes, and measures the links between them by running tiny networks on them.

The networks are those of `cnn.built_in`. A link is measured by two plans across it, with a small
and a large tensor. Its channel holds one frame, so a frame leaves only after the credit for the
previous one has returned: the period is the time of one tensor there, of a few bytes back, and of
the two layers. The agents have measured the layers' time while they warmed up, and it is
subtracted. The rest is linear in bytes (`partition.pricing.linear_models`): half its constant part
is the latency, its slope the inverse of the rate. The launcher's own channels hold many frames, so
that its links do not count.
"""

from __future__ import annotations

import itertools
import socket
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from cnn.built_in import write_wire_probe
from cnn.model import Model, read
from launcher.config.cluster import NodeConfig
from launcher.plan.devices import threads_of
from launcher.plan.machines import THIS_MACHINE, machine_of
from launcher.profile.bench import Bench
from launcher.profile.file import LinkTimes, NodeIdentity, NodePart
from nodes.protocol.messages import HOST, EngineChoice, Welcome
from partition.devices import Device
from partition.errors import PartitionError
from partition.plan import Plan
from partition.planner import make_plan
from partition.pricing.linear_models import fit_transfer

SMALL_VALUES, LARGE_VALUES = 256, 1 << 18
"""Values of the two tensors with which links are measured: 1 KiB and 1 MiB."""

FRAMES = 24
HOST_FRAMES = 8


def node_part(node: NodeConfig) -> NodePart:
    """Return the part of a node's identity that `cluster.yaml` has.

    A node on this machine has this machine's name as its host.
    """
    machine = machine_of(node)
    host = socket.gethostname() if machine == THIS_MACHINE else machine
    asked = "" if node.choice == EngineChoice() else _spelled(node.choice)
    return NodePart(host=host, threads=threads_of(node), cpus=node.cpus, asked=asked)


def _spelled(choice: EngineChoice) -> str:
    options = (f"{option.name}={option.value}" for option in choice.options)
    return ", ".join((choice.engine, choice.device, choice.precision, *options))


def tiny_plan(bench: Bench, configs: Sequence[NodeConfig]) -> tuple[Plan, Model]:
    """Return a plan in which every node has two layers of almost no work, and its model."""
    devices = tuple(Device(node.name) for node in configs)
    model = _probe(bench.folder / "who.onnx", 8, len(devices))
    assignment = {
        layer: device.name
        for number, device in enumerate(devices)
        for layer in (f"grow{number}", f"shrink{number}")
    }
    return _plan(model, devices, assignment), model


def identities(
    configs: Sequence[NodeConfig], welcome: Mapping[str, Welcome]
) -> dict[str, NodeIdentity]:
    """Return the identities of the nodes whose agents have answered."""
    return {
        node.name: NodeIdentity(
            **node_part(node).model_dump(),
            machine=welcome[node.name].machine,
            cores=welcome[node.name].cores,
            engine=welcome[node.name].engine,
            version=welcome[node.name].version,
            agent="" if node.address is None or node.host is not None else node.address,
        )
        for node in configs
        if node.name in welcome
    }


def measure_link(bench: Bench, one: str, other: str) -> LinkTimes:
    """Measure the link from `one` to `other`."""
    sizes: list[int] = []
    seconds: list[float] = []
    devices = (Device(one), Device(other))
    for values in (SMALL_VALUES, LARGE_VALUES):
        model = _probe(bench.folder / f"probe{values}.onnx", values, 1)
        plan = _plan(model, devices, {"grow0": one, "shrink0": other})
        result = bench.run(plan, model, FRAMES, "measuring links", warm=False)
        work_s = sum(sum(times) for times in result.warmup_s.values())
        sizes.append(4 * values)
        seconds.append(max(0.0, period(result.received_s) - work_s))
    return link_times(sizes, seconds)


def period(received_s: Sequence[float]) -> float:
    """Return the median of the seconds between results once the launcher's channels are full."""
    steady = received_s[min(HOST_FRAMES, len(received_s) - 2) :]
    return statistics.median(after - before for before, after in itertools.pairwise(steady))


def link_times(sizes_bytes: Sequence[int], seconds: Sequence[float]) -> LinkTimes:
    """Return the times of a link that took `seconds` for tensors of these sizes, ascending."""
    try:
        line = fit_transfer(sizes_bytes, seconds)
    except PartitionError:
        return LinkTimes(latency_s=seconds[0] / 2, bytes_per_s=None)
    return LinkTimes(latency_s=line.s_per_message / 2, bytes_per_s=1 / line.s_per_byte)


def _probe(path: Path, values: int, branches: int) -> Model:
    path.parent.mkdir(parents=True, exist_ok=True)
    return read(write_wire_probe(path, values, branches))


def _plan(model: Model, devices: tuple[Device, ...], assignment: Mapping[str, str]) -> Plan:
    plan = make_plan(
        model.network,
        model.digest,
        devices,
        assignment,
        strategy="probe",
        explanation="to measure links",
        slack_frames=0,
    )
    channels = tuple(
        replace(
            channel,
            capacity_frames=HOST_FRAMES
            if HOST in (channel.source_device, channel.target_device)
            else 1,
            unsent_frames=0,
        )
        for channel in plan.channels
    )
    return replace(plan, channels=channels)
