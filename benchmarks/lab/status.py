"""Reports the state of a laboratory as values, as JSON and as a table."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from typing import Any

from benchmarks.lab.layout import Layout, Place
from benchmarks.lab.readings import Link, Used, link, processes, used

PLAIN = "plain processes on loopback, NOT emulated devices"
ISOLATED = "emulated devices"

HEADINGS = (
    *("device", "board", "state", "CPU use / quota", "beside", "memory / limit", "peak"),
    *("link", "sent", "received"),
)


@dataclass(frozen=True)
class DeviceStatus:
    """One board. `cpu_use` is cores in the slice over the time looked at, `other_cpu_use` outside
    it; `used` and `link` are None where boards are plain processes."""

    name: str
    address: str
    board: str
    alive: bool
    processes: tuple[int, ...]
    cpu_use: float | None
    other_cpu_use: float | None
    used: Used | None
    link: Link | None


@dataclass(frozen=True)
class LabStatus:
    """All boards, and what was missing for emulated ones."""

    name: str
    mode: str
    missing: tuple[str, ...]
    devices: tuple[DeviceStatus, ...]

    def __getitem__(self, device: str) -> DeviceStatus:
        return next(one for one in self.devices if one.name == device)

    def as_json(self) -> dict[str, Any]:
        """As JSON-like data; rates in bytes per second."""
        return asdict(self)


def look(layout: Layout, missing: tuple[str, ...], over_s: float) -> LabStatus:
    """Look twice, `over_s` apart."""
    places = tuple(layout.places.values())
    began_s, before = time.monotonic(), [_used(layout, place) for place in places]
    if layout.isolated:
        time.sleep(over_s)
    devices = []
    for place, then in zip(places, before, strict=True):
        now, elapsed_s = _used(layout, place), time.monotonic() - began_s
        pids = tuple(sorted(processes(layout, place)))
        devices.append(
            DeviceStatus(
                name=place.slice.name,
                address=place.address,
                board=place.slice.board,
                alive=bool(pids),
                processes=pids,
                cpu_use=_rate_of("slice_cpu_s", then, now, elapsed_s),
                other_cpu_use=_rate_of("other_cpu_s", then, now, elapsed_s),
                used=now,
                link=link(place) if layout.isolated else None,
            )
        )
    return LabStatus(layout.name, ISOLATED if layout.isolated else PLAIN, missing, tuple(devices))


def _used(layout: Layout, place: Place) -> Used | None:
    return used(layout.group_of(place)) if layout.isolated else None


def _rate_of(key: str, then: Used | None, now: Used | None, seconds: float) -> float | None:
    if then is None or now is None:
        return None
    return float(getattr(now, key) - getattr(then, key)) / seconds


def table(status: LabStatus) -> str:
    """For people."""
    lines = [f"laboratory {status.name!r}: {status.mode}"]
    lines += [f"  missing: {sentence}" for sentence in status.missing]
    rows: list[tuple[str, ...]] = [HEADINGS]
    rows += [_row(device) for device in status.devices]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines += ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
    return "\n".join(lines)


def _row(device: DeviceStatus) -> tuple[str, ...]:
    seen, wire = device.used, device.link
    state = "dead" if not device.alive else "paused" if seen and seen.frozen else "alive"
    if seen is None or wire is None:
        return (device.name, "–", state, "–", "–", "–", "–", device.address, "–", "–")
    return (
        device.name,
        device.board,
        state,
        f"{device.cpu_use or 0:.3f} / {'∞' if seen.cpu_quota is None else f'{seen.cpu_quota:g}'}",
        f"{device.other_cpu_use or 0:.3f}",
        f"{_mb(seen.memory_bytes)} / {_mb(seen.memory_limit_bytes)}",
        _mb(seen.memory_peak_bytes),
        _rate(wire),
        _mb(wire.sent_bytes),
        _mb(wire.received_bytes),
    )


def _mb(size: int | None) -> str:
    return "∞" if size is None else f"{size / 1e6:.1f} MB"


def _rate(wire: Link) -> str:
    if not wire.up:
        return "cut"
    return "∞" if wire.bytes_per_s is None else f"{wire.bytes_per_s * 8 / 1e6:g} Mbit/s"
