"""Which devices have memory to load a plan beside the one that they run.

Channels of the plan that is loaded hold nothing before it streams, and the engine itself is there
once. Weights that both plans have on a device count twice, although the kernel may share their
pages.
"""

from __future__ import annotations

from partition.devices import Device
from partition.plan import MemoryPrediction, Plan


def with_room(present: Plan, following: Plan) -> frozenset[str]:
    """Return the devices of `following` that can load their part beside their part of `present`.

    Devices without a limit can.
    """
    used = {phase.device for phase in following.phases}
    return frozenset(
        device.name
        for device in following.devices
        if device.name in used
        and (
            device.memory_bytes is None
            or _held_bytes(device, present) + _loaded_bytes(device, following.memory[device.name])
            <= device.memory_bytes
        )
    )


def _held_bytes(device: Device, plan: Plan) -> int:
    memory = plan.memory.get(device.name)
    return device.engine_overhead.idle_bytes if memory is None else memory.total_bytes


def _loaded_bytes(device: Device, memory: MemoryPrediction) -> int:
    engine = memory.engine_bytes - device.engine_overhead.idle_bytes
    tensors = memory.weights_bytes + memory.activations_bytes
    return max(engine + tensors, memory.packing_bytes)
