"""The costs of a run without its layers: processor time of threads, messages and bytes.

`ThreadCosts` are those of one device or of the host, `Site` is a machine with the devices on it.
The defaults were measured on an x86-64 core (`python -m benchmarks.prediction`).
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from csdf.conversion.from_network import HOST
from partition.devices import Device

MESSAGE_S = 8e-5
BYTE_S = 4e-10
"""Seconds of a small tensor, and per byte of a large one, for sender and receiver together, where
no node has measured them: an x86-64 core, local sockets."""

ROUSE_S = 3e-5
"""Seconds until an idle CPU begins to work."""


@dataclass(frozen=True, slots=True)
class ThreadCosts:
    """The processor seconds of a run's steps on one device or on the host.

    - `wake_s`: the executor or the I/O thread begins to work after it has waited.
    - `burst_s`: the I/O thread sends tensors or credits to one other node, or takes them in, at
      once; `each_s`: each of these tensors or credits.
    - `wire_s`: the wire thread moves the messages of one firing, without their bytes; `sent_byte_s`
      and `received_byte_s`: each byte of a tensor.
    - `executor_s`: the executor's share of a firing, without the subnet.
    - `ended_s`: the I/O thread handles the end of a firing.
    - `source_s` and `sink_s`: the host handles a frame, without messages and bytes; each of a
      batch, which it puts together and takes apart.

    With `wire_is_free` the executor does not share its CPU.
    """

    wake_s: float
    burst_s: float
    each_s: float
    wire_s: float
    executor_s: float
    ended_s: float
    sent_byte_s: float
    received_byte_s: float
    source_s: float
    sink_s: float
    wire_is_free: bool = False

    @classmethod
    def measured(
        cls, message_s: float = 0.0, byte_s: float = 0.0, *, wire_is_free: bool = False
    ) -> ThreadCosts:
        """Derive the costs from the two figures that an agent measures (0: not measured).

        Each cost is a share of a message or a byte. The shares were fitted to the processor time of
        each kind of thread in runs of small and large networks (docs/decisions/010).
        """
        one = message_s or MESSAGE_S
        per_byte = byte_s or BYTE_S
        return cls(
            wake_s=0.57 * one,
            burst_s=0.05 * one,
            each_s=0.18 * one,
            wire_s=0.26 * one,
            executor_s=0.3 * one,
            ended_s=0.3 * one,
            sent_byte_s=0.5 * per_byte,
            received_byte_s=0.5 * per_byte,
            source_s=0.5 * one,
            sink_s=0.6 * one,
            wire_is_free=wire_is_free,
        )

    def message_s(self, number: int) -> float:
        """Return the seconds to send, or to take in, `number` tensors or credits at once."""
        return self.burst_s + number * self.each_s if number else 0.0


@dataclass(frozen=True)
class Site:
    """A machine: its CPUs, the CPUs that each device (or the host) uses, and their speeds when 1,
    2, … of them are busy (see `csdf.execution.shared_machine.Machine`)."""

    cpus: tuple[str, ...]
    devices: Mapping[str, tuple[str, ...]]
    speeds: tuple[Fraction, ...] = ()


@dataclass(frozen=True)
class RunCosts:
    """The costs of every device and of the host, the machines and the links."""

    sites: tuple[Site, ...]
    threads: Mapping[str, ThreadCosts] = field(default_factory=dict)
    link_bytes_per_s: Mapping[str, float] = field(default_factory=dict)
    rouse_s: float = ROUSE_S
    """Seconds until an idle CPU begins to work."""

    def of(self, device: str) -> ThreadCosts:
        """Return the costs of a device, or of the host."""
        return self.threads.get(device, _USUAL)

    def together(self, one: str, other: str) -> bool:
        """Return whether two devices are on one machine, so that there is no link between them."""
        return any(one in site.devices and other in site.devices for site in self.sites)

    def link_s(self, device: str, size: int) -> float:
        """Return the seconds for which `size` bytes occupy the device's network interface."""
        rate = self.link_bytes_per_s.get(device)
        return 0.0 if rate is None else size / rate

    @classmethod
    def known(
        cls,
        devices: Sequence[Device],
        *,
        host: str | None = None,
        cpus: Mapping[str, Sequence[int]] | None = None,
        message_s: Mapping[str, float] | None = None,
        byte_s: Mapping[str, float] | None = None,
    ) -> RunCosts:
        """Derive the costs from the devices and from the measurements of their agents.

        `host` names the machine that the launcher runs on. `cpus` are the CPUs that a device (or
        the launcher, as `HOST`) is bound to; the others use all CPUs of their machine. A device
        without a `host` is a machine by itself with one CPU. `message_s` and `byte_s` are by device
        name; where an agent has not measured them, both ends of a message take what the device
        takes for one (`Device.wire_s_per_message`). The launcher's costs are taken to be the mean
        of those measured on its machine.
        """
        bound = {name: tuple(map(str, own)) for name, own in (cpus or {}).items() if own}
        machines: dict[str | None, list[Device]] = {host: []}
        alone = []
        for device in devices:
            if device.host is None:
                alone.append(Site(("cpu",), {device.name: ("cpu",)}))
            else:
                machines.setdefault(device.host, []).append(device)
        sites = [_site(own, bound, with_host=name == host) for name, own in machines.items()]
        messages, bytes_ = message_s or {}, byte_s or {}
        threads = {
            device.name: ThreadCosts.measured(
                messages.get(device.name) or 2 * device.wire_s_per_message,
                bytes_.get(device.name) or 2 * device.wire_s_per_byte,
                wire_is_free=device.wire_is_free,
            )
            for device in devices
        }
        beside = [device.name for device in machines[host]]
        threads[HOST] = ThreadCosts.measured(_mean(messages, beside), _mean(bytes_, beside))
        rates = {device.name: device.link_bytes_per_s for device in devices}
        behind = [d.launcher_bytes_per_s for d in devices if d.launcher_bytes_per_s is not None]
        if behind:
            rates[HOST] = min(behind)
        return cls((*sites, *alone), threads, rates)


def _mean(figures: Mapping[str, float], names: Sequence[str]) -> float:
    measured = [figures[name] for name in names if figures.get(name)]
    return statistics.mean(measured) if measured else 0.0


_USUAL = ThreadCosts.measured()


def _site(
    devices: Sequence[Device], bound: Mapping[str, tuple[str, ...]], *, with_host: bool
) -> Site:
    cores = max((device.host_cores for device in devices), default=1)
    names = [*(device.name for device in devices), *([HOST] if with_host else [])]
    named = dict.fromkeys(cpu for name in names for cpu in bound.get(name, ()))
    free = [f"any {number}" for number in range(max(0, cores - len(named)))]
    cpus = (*named, *free)
    allowed = {device.name: bound.get(device.name, cpus) for device in devices}
    if with_host:
        allowed[HOST] = bound.get(HOST, cpus)
    return Site(cpus, allowed)
