"""Which devices can hold two plans at once."""

from __future__ import annotations

from dataclasses import replace

from partition.devices import Device
from partition.plan import MemoryPrediction, Plan
from partition.prediction.memory import with_room
from tests.launcher_runtime.plans import in_a_row

IDLE = Device("n0").engine_overhead.idle_bytes
MEMORY = MemoryPrediction(
    weights_bytes=20_000_000,
    activations_bytes=3_000_000,
    channels_bytes=2_000_000,
    engine_bytes=IDLE + 10_000_000,
    eq2_bytes=0,
)


def plan(limit: int | None, memory: MemoryPrediction = MEMORY, *, nodes: int = 1) -> Plan:
    devices = tuple(Device(f"n{i}", memory_bytes=limit) for i in range(nodes))
    return replace(
        in_a_row(nodes), devices=devices, memory={device.name: memory for device in devices}
    )


def test_a_device_without_a_limit_has_room() -> None:
    assert with_room(plan(None), plan(None)) == {"n0"}


def test_weights_tensors_and_sessions_come_twice_and_the_engine_and_channels_once() -> None:
    both = MEMORY.total_bytes + 10_000_000 + 20_000_000 + 3_000_000
    assert with_room(plan(both), plan(both)) == {"n0"}
    assert with_room(plan(both - 1), plan(both - 1)) == set()


def test_packing_counts_where_it_takes_more() -> None:
    packed = replace(MEMORY, packing_bytes=200_000_000)
    both = MEMORY.total_bytes + 200_000_000
    assert with_room(plan(both), plan(both, packed)) == {"n0"}
    assert with_room(plan(both - 1), plan(both - 1, packed)) == set()


def test_a_device_without_a_part_in_the_present_plan_holds_an_idle_agent() -> None:
    enough = IDLE + 10_000_000 + 20_000_000 + 3_000_000
    assert with_room(plan(None), plan(enough, nodes=2)) == {"n1"}
    assert with_room(plan(None), plan(enough - 1, nodes=2)) == set()
