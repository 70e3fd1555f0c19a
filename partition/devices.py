"""The devices of a cluster and the links between them, as the cost model sees them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, astuple, dataclass, replace
from typing import Literal, TypeAlias

from partition.errors import PartitionError

CacheSpill: TypeAlias = Literal["bytes", "layers"]
"""The unit of weights outside a full cache: bytes or layers; see `partition.pricing.spill`."""

_NOT_NEGATIVE = {
    "firing_s": "seconds",
    "wire_s_per_message": "seconds",
    "wire_s_per_byte": "seconds",
    "cache_s_per_byte": "seconds",
    "cut_s_per_byte": "seconds",
    "run_s": "seconds",
    "busy_w": "watts",
    "idle_w": "watts",
    "sent_j_per_byte": "joules",
    "encode_s_per_byte": "seconds",
}


@dataclass(frozen=True, slots=True)
class EngineOverhead:
    """The memory of an agent with an engine, in bytes; the defaults are those of ONNX Runtime.

    `idle_bytes` is that of an agent that has opened the engine and loaded nothing, including the
    code that an idle agent runs; `subnet_bytes` and `layer_bytes` are what each further subnet and
    each layer adds. ONNX Runtime's 50 kB of a subnet are a session's graph, measured as 33 kB, and
    its Python objects. `partition.pricing.memory_budget` says how the defaults were measured,
    and what is the same for every engine.
    """

    idle_bytes: int = 34_000_000
    subnet_bytes: int = 50_000
    layer_bytes: int = 7_000


ONNX_RUNTIME = EngineOverhead()


@dataclass(frozen=True, slots=True)
class LayerRates:
    """The measured costs of the parts of layers on a board, in seconds per multiply-accumulate and
    per byte (`partition.pricing.compute_time`).

    `pointwise` are convolutions of 1 × 1 and products of matrices, `depthwise` are convolutions of
    one channel each, and `dense` is everything else. `integer` is a dense convolution of 8 bits;
    other kinds gain as much by 8 bits. All rates are above 0.
    """

    dense_s_per_mac: float
    pointwise_s_per_mac: float
    depthwise_s_per_mac: float
    integer_s_per_mac: float
    weight_s_per_byte: float
    tensor_s_per_byte: float

    def __post_init__(self) -> None:
        for key, seconds in asdict(self).items():
            if not 0 < seconds < math.inf:
                raise PartitionError(f"{key} is {seconds}; give seconds above 0")

    def slower(self, factor: float) -> LayerRates:
        """Return the rates of a board that takes `factor` times as long."""
        return LayerRates(*(seconds * factor for seconds in astuple(self)))


@dataclass(frozen=True, slots=True)
class Device:
    """One device: its speed, memory, link, power and costs per firing and per message.

    >>> Device("pi", memory_bytes=10**9, macs_per_s=5e9).link_bytes_per_s
    117000000.0

    `memory_bytes` bounds what its agent may hold (None: no bound). `macs_per_s` and
    `memory_bytes_per_s` are its speed in multiply-accumulates and in bytes of tensors touched per
    second, estimates until measured times replace them; where the board has measured itself,
    `layer_rates` stand in place of both (`partition.measured.board`). `host` names the machine it
    runs on: devices of one host share `host_cores` cores. `link_bytes_per_s` is its network
    interface's rate in each direction, `launcher_bytes_per_s` that of the launcher's own, which the
    frames and results of all devices pass (None: no bound).

    `cut_s_per_byte` is what a byte of a tensor that enters or leaves a phase costs the engine
    (`partition.prediction.timing`). The default is the time of six multiply-accumulates, as
    measured for ONNX Runtime on x86-64: 0.11 ns where ResNet50 takes 75 ms. `run_s` is what each
    run of a phase costs the engine in addition to its layers and cutting. A profile finds it
    (`partition.measured.subnet_fit`); the default of 0 leaves it to `firing_s`.

    `firing_s`, `wire_s_per_message` and `wire_s_per_byte` are processor time: what the agent spends
    on a phase outside the engine, and what each tensor and each byte sent or received costs. The
    defaults are for an x86-64 core: a byte from 14 MB over loopback TCP taking about 14 ms on both
    sides together; a firing from boards of the laboratory, whose caches are cold when it begins,
    with what the engine takes for each run where that is not measured (`run_s`); a message is an
    assumption. With `wire_is_free` the wire's cost does not delay the layers, because an
    accelerator computes while the processor serves the network.

    `cache_bytes` is the room for weights next to the processor (the 8 MiB of an Edge TPU); weights
    that do not fit are fetched again for each frame, at `cache_s_per_byte`, as in Eq. 8 of Yin et
    al. (2022). None: no such cache. The default of 2 GB/s follows from Tables 3 and 7 of
    Villarrubia et al. (2025), for Edge TPUs behind PCIe. With `cache_spill` "layers" whole layers
    are fetched, and inputs take room in the cache too, as their compiler has it
    (`partition.pricing.spill`).

    `busy_w` and `idle_w` are its power while it works and while it waits, `sent_j_per_byte` is the
    energy of sending a byte. The defaults are assumptions: a board between a Raspberry Pi 4 and a
    Jetson TX2, and a watt for an interface of 1 Gbit/s.

    `encode_s_per_byte` is the time in which its processor converts a byte of a float32 tensor to
    half precision; other encodings take multiples of it (`partition.wire`). The default was
    measured on an x86-64 core. `engine_overhead` is what its engine takes in addition to tensors,
    and `threads` is the number of threads that it computes with, at the speed given here.
    """

    name: str
    memory_bytes: int | None = None
    macs_per_s: float = 2e10
    link_bytes_per_s: float = 117e6
    launcher_bytes_per_s: float | None = None
    host: str | None = None
    host_cores: int = 1
    memory_bytes_per_s: float = 1e10
    cut_s_per_byte: float = 3e-10
    firing_s: float = 5e-4
    wire_s_per_message: float = 5e-5
    wire_s_per_byte: float = 5e-10
    wire_is_free: bool = False
    cache_bytes: int | None = None
    cache_s_per_byte: float = 5e-10
    cache_spill: CacheSpill = "bytes"
    busy_w: float = 10.0
    idle_w: float = 2.5
    sent_j_per_byte: float = 1e-8
    encode_s_per_byte: float = 1e-9
    engine_overhead: EngineOverhead = ONNX_RUNTIME
    run_s: float = 0.0
    layer_rates: LayerRates | None = None
    threads: int = 1

    def __post_init__(self) -> None:
        for key in ("macs_per_s", "memory_bytes_per_s", "link_bytes_per_s"):
            if not getattr(self, key) > 0:
                raise PartitionError(
                    f"device {self.name!r}: {key} is {getattr(self, key)}; give a rate above 0"
                )
        for key, unit in _NOT_NEGATIVE.items():
            if not 0 <= getattr(self, key) < math.inf:
                raise PartitionError(
                    f"device {self.name!r}: {key} is {getattr(self, key)}; give 0 or more {unit}"
                )
        if self.launcher_bytes_per_s is not None and not self.launcher_bytes_per_s > 0:
            raise PartitionError(
                f"device {self.name!r}: launcher_bytes_per_s is {self.launcher_bytes_per_s}; give "
                "a rate above 0, or leave it out for no bound"
            )
        for key in ("host_cores", "threads"):
            if getattr(self, key) < 1:
                raise PartitionError(
                    f"device {self.name!r}: {key} is {getattr(self, key)}; give at least 1"
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


def machines(devices: Sequence[Device]) -> tuple[tuple[int, ...], ...]:
    """Group the numbers of `devices` by machine; a device without a host is a machine by itself.

    >>> machines([Device("a", host="pc"), Device("b"), Device("c", host="pc")])
    ((0, 2), (1,))
    """
    found: dict[tuple[str | None, int], list[int]] = {}
    for number, device in enumerate(devices):
        key = (None, number) if device.host is None else (device.host, -1)
        found.setdefault(key, []).append(number)
    return tuple(tuple(members) for members in found.values())


def slower(device: Device, factor: float) -> Device:
    """Return the device as if it took `factor` times as long to compute and to serve messages.

    Where an accelerator leaves the processor free, messages take as long as before. Links stay as
    they are.

    >>> slower(Device("a", macs_per_s=2e9), 2.0).macs_per_s
    1000000000.0
    """
    serving = 1.0 if device.wire_is_free else factor
    return replace(
        device,
        macs_per_s=device.macs_per_s / factor,
        memory_bytes_per_s=device.memory_bytes_per_s / factor,
        cut_s_per_byte=device.cut_s_per_byte * factor,
        run_s=device.run_s * factor,
        firing_s=device.firing_s * factor,
        wire_s_per_message=device.wire_s_per_message * serving,
        wire_s_per_byte=device.wire_s_per_byte * serving,
        encode_s_per_byte=device.encode_s_per_byte * serving,
        layer_rates=None if device.layer_rates is None else device.layer_rates.slower(factor),
    )


def launcher_s(devices: Sequence[Device], sent_bytes: float, received_bytes: float) -> float:
    """Return the seconds that the launcher's link is busy with the bytes that it sends to all these
    devices and receives from them; 0 if the link has no bound.

    >>> launcher_s([Device("a", launcher_bytes_per_s=1e6)], 2e6, 1e6)
    2.0
    """
    rates = [d.launcher_bytes_per_s for d in devices if d.launcher_bytes_per_s is not None]
    return max(sent_bytes, received_bytes) / min(rates) if rates else 0.0
