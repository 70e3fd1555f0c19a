"""Who the nodes are, and what their links carry: both by tiny networks (`cnn.built_in`).

A link is measured by two plans across it, with a small and a large tensor. Its channel holds one
frame, so a frame leaves only when word has come back that the one before is done with: the period
is one tensor's way there, a few bytes' way back, and the two layers' work, which the agents have
measured while they warmed up and which is taken off. What is left is linear in bytes
(`partition.pricing.linear_models`): half its fixed part is the latency, its slope the rate. The
ends of the launcher hold many frames, so that its own links are not what is measured.
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
from launcher.profile.bench import Bench
from launcher.profile.file import LinkTimes, NodeIdentity, NodePart
from nodes.protocol.addresses import host_of, is_loopback
from nodes.protocol.messages import HOST
from partition.devices import Device
from partition.errors import PartitionError
from partition.plan import Plan
from partition.planner import make_plan
from partition.pricing.linear_models import fit_transfer

SMALL_VALUES, LARGE_VALUES = 256, 1 << 18
"""Of the tensors that links are measured with: 1 KiB and 1 MiB."""

FRAMES = 24
HOST_FRAMES = 8


def node_part(node: NodeConfig) -> NodePart:
    """What `cluster.yaml` says of a node; one whose address says nothing to other machines is
    known by this machine's host name."""
    is_ours = node.address is None or is_loopback(node.address)
    host = socket.gethostname() if is_ours else str(host_of(str(node.address)))
    return NodePart(host=host, threads=node.threads, cpus=node.cpus)


def identities(bench: Bench, configs: Sequence[NodeConfig]) -> dict[str, NodeIdentity]:
    """Ask every node's agent what it is, by having all of them run a few values."""
    devices = tuple(Device(node.name) for node in configs)
    model = _probe(bench.folder / "who.onnx", 8, len(devices))
    assignment = {
        layer: device.name
        for number, device in enumerate(devices)
        for layer in (f"grow{number}", f"shrink{number}")
    }
    bench.progress.say("asking " + ", ".join(device.name for device in devices))
    plan = _plan(model, devices, assignment)
    welcome = bench.run(plan, model, 1, "asking", warm=False).welcome
    return {
        node.name: NodeIdentity(
            **node_part(node).model_dump(),
            machine=welcome[node.name].machine,
            cores=welcome[node.name].cores,
            engine=welcome[node.name].engine,
            version=welcome[node.name].version,
        )
        for node in configs
        if node.name in welcome
    }


def measure_link(bench: Bench, one: str, other: str) -> LinkTimes:
    """What the way from `one` to `other` takes."""
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
    """Seconds from result to result once the launcher's channels are full, the median."""
    steady = received_s[min(HOST_FRAMES, len(received_s) - 2) :]
    return statistics.median(after - before for before, after in itertools.pairwise(steady))


def link_times(sizes_bytes: Sequence[int], seconds: Sequence[float]) -> LinkTimes:
    """A link that takes `seconds` for tensors of such sizes, ascending, and a few bytes back."""
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
        )
        for channel in plan.channels
    )
    return replace(plan, channels=channels)
