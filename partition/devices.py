"""The devices of a cluster and the links between them, as the cost model sees them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Device:
    """One device.

    `memory_bytes` bounds what its agent may hold (None: no bound). `macs_per_s` is its speed in
    multiply-accumulates per second, an estimate until profiles replace it. `host` names the machine
    it runs on: devices of one host share `host_cores` cores. `link_bytes_per_s` is its network
    interface's rate in each direction.
    """

    name: str
    memory_bytes: int | None = None
    macs_per_s: float = 2e10
    link_bytes_per_s: float = 117e6
    host: str | None = None
    host_cores: int = 1
