"""Plans for the tests of this folder: arbitrary ones (by hypothesis), and what agents receive."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

from hypothesis import strategies as st

from cnn.network import Tensor
from launcher.core import events as lev
from launcher.core.blueprint import Blueprint
from launcher.run.deployment import SubnetBlobs, blueprint
from nodes.protocol.messages import HOST, BlobInfo, Order
from partition.devices import Device
from partition.plan import Plan, PlannedChannel, PlannedPhase

EPOCH = 7


def plan_of(phases: list[PlannedPhase], channels: list[PlannedChannel]) -> Plan:
    """A plan of these phases and channels; what it predicts does not matter here."""
    devices = dict.fromkeys(phase.device for phase in phases)
    return Plan(
        network="net",
        model_digest="0" * 64,
        strategy="by hand",
        explanation="",
        devices=tuple(Device(name) for name in devices),
        assignment={layer: phase.device for phase in phases for layer in phase.layers},
        phases=tuple(phases),
        channels=tuple(channels),
        memory={},
        period_s=1.0,
        latency_s=1.0,
        bytes_per_frame=0,
        proof="",
    )


def phase(
    name: str, device: str, index: int, inputs: list[str], outputs: list[str]
) -> PlannedPhase:
    return PlannedPhase(
        name, device, index, (f"layer {name}",), tuple(inputs), tuple(outputs), 0, 0.01
    )


def blob(seed: int, size_bytes: int) -> BlobInfo:
    return BlobInfo(f"{seed:064x}", size_bytes)


@st.composite
def plans(draw: st.DrawFn, most_nodes: int = 5, most_phases: int = 12) -> Plan:
    """Any plan: every phase makes one tensor, read by others or the user, of earlier ones."""
    nodes = [f"n{i}" for i in range(draw(st.integers(1, most_nodes)))]
    count = draw(st.integers(len(nodes), max(most_phases, len(nodes))))
    owner = nodes + [draw(st.sampled_from(nodes)) for _ in range(count - len(nodes))]
    reads = [
        sorted(draw(st.sets(st.integers(-1, i - 1), min_size=1, max_size=3))) for i in range(count)
    ]
    unread = set(range(count)) - {tensor for own in reads for tensor in own}
    outputs = draw(st.sets(st.integers(0, count - 1))) | unread
    tensor = {
        i: Tensor(f"t{i}" if i >= 0 else "x", (1, 3 + i), "float32") for i in range(-1, count)
    }
    index = {i: owner[:i].count(owner[i]) for i in range(count)}
    phases = [
        phase(f"p{i}", owner[i], index[i], [tensor[j].name for j in reads[i]], [f"t{i}"])
        for i in range(count)
    ]
    channels = []
    for source in range(-1, count):
        readers: dict[str, list[str]] = {}
        for i in range(count):
            if source in reads[i]:
                readers.setdefault(owner[i], []).append(f"p{i}")
        if source in outputs:
            readers[HOST] = ["@sink"]
        for device, targets in readers.items():
            source_device = HOST if source < 0 else owner[source]
            unsent = draw(st.integers(0, 2)) if source_device not in (HOST, device) else 0
            channels.append(
                PlannedChannel(
                    tensor=tensor[source],
                    source="@source" if source < 0 else f"p{source}",
                    source_device=source_device,
                    target_device=device,
                    targets=tuple(targets),
                    capacity_frames=draw(st.integers(1, 4)) + unsent,
                    unsent_frames=unsent,
                )
            )
    return plan_of(phases, channels)


def subnets_of(plan: Plan, bytes_each: int = 3 << 20) -> dict[str, SubnetBlobs]:
    """A graph and, for every second phase, weights; phases with equal weights share the blob."""
    return {
        p.name: SubnetBlobs(
            blob(i + 1, 1000 + i), blob(1000 + i // 4, bytes_each) if i % 2 else None
        )
        for i, p in enumerate(plan.phases)
    }


def blueprint_of(
    plan: Plan,
    bytes_each: int = 3 << 20,
    epoch: int = EPOCH,
    networks: Sequence[Plan] = (),
    order: Order = "pipelined",
) -> Blueprint:
    """`networks` are parts of the plan, each of which streams its own frames."""
    inputs = [
        [c.tensor.name for c in part.channels if c.source_device == HOST] for part in networks
    ]
    subnets = subnets_of(plan, bytes_each)
    return blueprint(plan, subnets, {}, epoch, order, networks=inputs)


def part_of(plan: Plan, phases: Collection[str]) -> Plan:
    """The network of these phases, as its own plan."""
    return replace(
        plan,
        phases=tuple(p for p in plan.phases if p.name in phases),
        channels=tuple(c for c in plan.channels if {c.source, *c.targets} & set(phases)),
    )


def in_a_row(nodes: int, capacity_frames: int = 2) -> Plan:
    """One phase per node, each fed by the one before: x → n0 → n1 → … → the last tensor."""
    tensors = [Tensor(f"t{i}", (1, 4), "float32") for i in range(nodes + 1)]
    ends = [(HOST, "@source"), *((f"n{i}", f"p{i}") for i in range(nodes)), (HOST, "@sink")]
    return plan_of(
        [phase(f"p{i}", f"n{i}", 0, [f"t{i}"], [f"t{i + 1}"]) for i in range(nodes)],
        [
            PlannedChannel(
                tensors[i],
                ends[i][1],
                ends[i][0],
                ends[i + 1][0],
                (ends[i + 1][1],),
                capacity_frames,
            )
            for i in range(nodes + 1)
        ],
    )


def answer(
    asked: lev.PlanRequest,
    gain: float | None,
    replan: Callable[[int, tuple[str, ...]], Blueprint | str],
) -> lev.PlanReply | lev.Unplannable:
    """What a search says that was `asked` for a plan; None: a plan of any `gain` will do."""
    if asked.better_than is not None and gain is not None and gain < asked.least_gain:
        return lev.Unplannable(asked.epoch, "there is no better plan")
    found = replan(asked.epoch, asked.nodes)
    if not isinstance(found, Blueprint):
        return lev.Unplannable(asked.epoch, str(found))
    return lev.PlanReply(replace(found, slower=asked.slower), gain or 1.0)


def spread(
    reads: list[list[int]],
    owner: list[str],
    capacity: Callable[[], int],
    keeps: Collection[int] = (),
) -> Plan:
    """Phase i makes tensor `t{i}` of those that it reads (-1, -2, …: the networks' inputs); tensors
    that nobody reads are the results. The phases in `keeps` also read what they made a frame
    before, which is a result too."""
    first = min(min(own) for own in reads)
    tensor = {
        i: Tensor(f"t{i}" if i >= 0 else f"x{i}", (1, 3), "float32")
        for i in range(first, len(reads))
    }
    phases = [
        phase(
            f"p{i}", owner[i], owner[:i].count(owner[i]), [tensor[j].name for j in own], [f"t{i}"]
        )
        for i, own in enumerate(reads)
    ]
    for i in keeps:
        before = replace(tensor[i], name=f"t{i} before")
        phases[i] = replace(phases[i], state=((before, f"t{i}"),))
    return plan_of(phases, _channels(reads, owner, tensor, capacity, keeps))


def _channels(
    reads: list[list[int]],
    owner: list[str],
    tensor: dict[int, Tensor],
    capacity: Callable[[], int],
    keeps: Collection[int],
) -> list[PlannedChannel]:
    channels = []
    for source, made in tensor.items():
        readers: dict[str, list[str]] = {}
        for i, own in enumerate(reads):
            if source in own:
                readers.setdefault(owner[i], []).append(f"p{i}")
        if not readers or source in keeps:
            readers[HOST] = ["@sink"]
        for device, targets in readers.items():
            channels.append(
                PlannedChannel(
                    tensor=made,
                    source="@source" if source < 0 else f"p{source}",
                    source_device=HOST if source < 0 else owner[source],
                    target_device=device,
                    targets=tuple(targets),
                    capacity_frames=capacity(),
                )
            )
    return channels
