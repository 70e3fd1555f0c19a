"""Reports the state of a laboratory as values and as a table."""

from __future__ import annotations

import time
from dataclasses import dataclass

from benchmarks.lab.layout import Layout
from benchmarks.lab.readings import Link, Used, are_stopped, link, processes, used
from benchmarks.report import columns

HEADINGS = (
    *("device", "board", "state", "CPU use / quota", "beside", "memory / limit", "peak"),
    *("link", "sent", "received"),
)


@dataclass(frozen=True)
class DeviceStatus:
    """One board. `cpu_use` is cores in the slice over the time looked at, `other_cpu_use` outside
    it."""

    name: str
    board: str
    processes: tuple[int, ...]
    stopped: bool
    cpu_use: float
    other_cpu_use: float
    used: Used
    link: Link

    @property
    def alive(self) -> bool:
        """Whether anything runs on it."""
        return bool(self.processes)


@dataclass(frozen=True)
class LabStatus:
    """All boards."""

    name: str
    devices: tuple[DeviceStatus, ...]

    def __getitem__(self, device: str) -> DeviceStatus:
        return next(one for one in self.devices if one.name == device)


def look(layout: Layout, over_s: float) -> LabStatus:
    """Look twice, `over_s` apart."""
    places = tuple(layout.places.values())
    began_s, before = time.monotonic(), [used(layout.group_of(place)) for place in places]
    time.sleep(over_s)
    devices = []
    for place, then in zip(places, before, strict=True):
        now, elapsed_s = used(layout.group_of(place)), time.monotonic() - began_s
        pids = tuple(sorted(processes(layout, place)))
        devices.append(
            DeviceStatus(
                name=place.slice.name,
                board=place.slice.board,
                processes=pids,
                stopped=are_stopped(pids),
                cpu_use=(now.slice_cpu_s - then.slice_cpu_s) / elapsed_s,
                other_cpu_use=(now.other_cpu_s - then.other_cpu_s) / elapsed_s,
                used=now,
                link=link(place),
            )
        )
    return LabStatus(layout.name, tuple(devices))


def table(status: LabStatus) -> str:
    """For people."""
    return f"laboratory {status.name!r}\n{columns([HEADINGS, *map(_row, status.devices)])}"


def _row(device: DeviceStatus) -> tuple[str, ...]:
    seen, wire = device.used, device.link
    quota = "∞" if seen.cpu_quota is None else f"{seen.cpu_quota:g}"
    rate = "∞" if wire.bytes_per_s is None else f"{wire.bytes_per_s * 8 / 1e6:g} Mbit/s"
    return (
        device.name,
        device.board,
        "dead" if not device.alive else "paused" if device.stopped else "alive",
        f"{device.cpu_use:.3f} / {quota}",
        f"{device.other_cpu_use:.3f}",
        f"{_mb(seen.memory_bytes)} / {_mb(seen.memory_limit_bytes)}",
        _mb(seen.memory_peak_bytes),
        rate if wire.up else "cut",
        _mb(wire.sent_bytes),
        _mb(wire.received_bytes),
    )


def _mb(size: int | None) -> str:
    return "∞" if size is None else f"{size / 1e6:.1f} MB"
