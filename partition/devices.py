"""The devices of a cluster and the links between them, as the cost model sees them."""

from __future__ import annotations

from dataclasses import dataclass

from partition.errors import PartitionError


@dataclass(frozen=True, slots=True)
class Device:
    """One device.

    `memory_bytes` bounds what its agent may hold (None: no bound). `macs_per_s` and
    `memory_bytes_per_s` are its speed in multiply-accumulates and in bytes of tensors touched per
    second, estimates until measured times replace them. `host` names the machine it runs on:
    devices of one host share `host_cores` cores. `link_bytes_per_s` is its network interface's
    rate in each direction.

    `firing_s`, `wire_s_per_message` and `wire_s_per_byte` are processor time: what a phase costs
    besides its layers, and what each tensor and each byte sent or received costs. The defaults are
    assumptions for an x86-64 core: a byte from 14 MB over loopback TCP taking about 14 ms on both
    sides together, the others not measured. With `wire_is_free` the wire's cost does not delay the
    layers, because an accelerator computes while the processor serves the network. `cache_bytes`
    is the room for weights beside the processor: what does not fit is fetched anew for each frame
    (None: no such cache).
    """

    name: str
    memory_bytes: int | None = None
    macs_per_s: float = 2e10
    link_bytes_per_s: float = 117e6
    host: str | None = None
    host_cores: int = 1
    memory_bytes_per_s: float = 1e10
    firing_s: float = 1e-4
    wire_s_per_message: float = 5e-5
    wire_s_per_byte: float = 5e-10
    wire_is_free: bool = False
    cache_bytes: int | None = None

    def __post_init__(self) -> None:
        for key in ("macs_per_s", "memory_bytes_per_s", "link_bytes_per_s"):
            if not getattr(self, key) > 0:
                raise PartitionError(
                    f"device {self.name!r}: {key} is {getattr(self, key)}; give a rate above 0"
                )
        for key in ("firing_s", "wire_s_per_message", "wire_s_per_byte"):
            if not getattr(self, key) >= 0:
                raise PartitionError(
                    f"device {self.name!r}: {key} is {getattr(self, key)}; give 0 or more seconds"
                )
        if self.host_cores < 1:
            raise PartitionError(
                f"device {self.name!r}: host_cores is {self.host_cores}; give at least 1"
            )
        if self.memory_bytes is not None and self.memory_bytes <= 0:
            raise PartitionError(
                f"device {self.name!r}: memory_bytes is {self.memory_bytes}; give a size above 0, "
                "or leave it out for no bound"
            )
        if self.cache_bytes is not None and self.cache_bytes < 0:
            raise PartitionError(
                f"device {self.name!r}: cache_bytes is {self.cache_bytes}; give 0 or more, "
                "or leave it out for no cache"
            )
