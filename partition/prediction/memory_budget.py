"""The memory of an agent and its engine, and the memory that devices have for a network.

The constants were measured by `python -m benchmarks.executor_memory` with ONNX Runtime 1.31 (CPU)
on x86-64 (AMD EPYC), Python 3.11, glibc 2.36, in a process that has imported what an agent imports.
Program pages count only where their code runs. More of them are resident (23 to 36 MB), but those
are clean, and the kernel drops them where memory is short (decision 025). Other engines and
processors differ; an agent reports its idle memory, without program code, when a launcher greets it
(`Welcome.rss_bytes`).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from partition.devices import Device
from partition.pricing.traffic import Floats

IDLE_AGENT_BYTES = 34_000_000
"""Memory of an agent with its engine imported and nothing loaded: 30 MB, and the code that an idle
agent runs."""

PREPARING_BYTES = 24_000_000
"""Memory of the process that prepares subnets, without its code and without weights."""

START_UP_BYTES = 54_000_000
"""Memory that a node needs for a moment before its first subnet is loaded: the agent (30 MB) and
that process, both without code."""

FIRST_SESSION_BYTES = 8_500_000
"""Memory that computing and rehearsing a first subnet adds: tables and arena (4.5 MB), and the code
that runs."""

CODE_BYTES = 8_000_000
"""The program code in `IDLE_AGENT_BYTES` and `FIRST_SESSION_BYTES`; agents do not measure it."""

SESSION_BYTES = 50_000
"""Memory of each further phase: a session's graph, measured as 33 kB, and its Python objects."""

LAYER_BYTES = 7_000
"""Memory of each layer: its kernel, its node in the graph, names and shapes. Measured over twelve
networks of 10 to 662 layers, which take 1.6 MB and 6.8 kB per layer once they are loaded."""


def engine_bytes(phases: int, layers: int = 0) -> int:
    """Return the memory of an agent that has loaded `phases` subnets of `layers` layers in all,
    without their tensors, in bytes."""
    if phases == 0:
        return IDLE_AGENT_BYTES
    sessions = FIRST_SESSION_BYTES + SESSION_BYTES * phases
    return IDLE_AGENT_BYTES + sessions + LAYER_BYTES * layers


def room_bytes(devices: Sequence[Device]) -> Floats:
    """Return each device's memory limit in bytes: float64 [devices].

    A device without a limit counts as one with the largest limit of all; where none has a limit,
    each has room for one byte, so that shares of the room are bytes.

    >>> room_bytes([Device("a", memory_bytes=2_000), Device("b"), Device("c", 1_000)])
    array([2000., 2000., 1000.])
    """
    limits = [device.memory_bytes for device in devices]
    largest = max((limit for limit in limits if limit is not None), default=1)
    return np.array([largest if limit is None else limit for limit in limits], dtype=np.float64)


def fair_memory(devices: Sequence[Device]) -> Floats:
    """Return each device's room beside its engine, relative to the mean: float64 [devices].

    >>> fair_memory([Device("a"), Device("b")])
    array([1., 1.])
    """
    limits = room_bytes(devices)
    room = np.maximum(limits - engine_bytes(1), limits.max() / 100)
    return np.asarray(room / room.mean())
