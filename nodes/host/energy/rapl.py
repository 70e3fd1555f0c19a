"""Counts the joules of x86 processors and their memory by RAPL, through the kernel's powercap.

A zone `/sys/class/powercap/intel-rapl:N` counts microjoules in `energy_uj`, which wraps around at
`max_energy_range_uj` (some minutes to an hour). Its `name` says what it counts. Zones `package-N`
have everything of a processor; `core` and `uncore` below them are parts of that and are left out.
`dram` below a package is not a part of it and is added. `psys`, the whole platform, contains the
packages, and only some boards connect it, so it is left out too. AMD's processors have the same
files (Linux 5.11).

`energy_uj` belongs to root alone since Linux 5.10, because its changes betray what other programs
compute (PLATYPUS, CVE-2020-8694).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from nodes.host.energy.base import MeterError, SensorFile
from nodes.host.kernel_files import text_of

MOST_W = 1000.0
"""A package that takes more would wrap around unseen."""

LONGEST_S = 300.0


@dataclass(slots=True)
class Zone:
    """One zone's counter, which wraps around at `range_j`, and the joules since it was opened."""

    name: str
    counter: SensorFile
    range_j: float
    last_j: float
    total_j: float = 0.0

    def advance(self) -> None:
        """Read the counter; between two reads it wraps around once at most."""
        now_j = self.counter.read() / 1e6
        self.total_j += now_j - self.last_j + (self.range_j if now_j < self.last_j else 0.0)
        self.last_j = now_j


class Rapl:
    """A meter of all packages and their memory; see `nodes.host.energy.base.Meter`."""

    def __init__(self, zones: list[Zone]) -> None:
        self._zones = zones
        self.description = f"RAPL ({', '.join(zone.name for zone in zones)})"
        self.period_s = min(LONGEST_S, *(zone.range_j / MOST_W / 2 for zone in zones))

    def read_j(self, now_s: float) -> float:  # noqa: ARG002 - counters need no clock
        """See `Meter`."""
        for zone in self._zones:
            zone.advance()
        return sum(zone.total_j for zone in self._zones)

    def close(self) -> None:
        """See `Meter`."""
        for zone in self._zones:
            zone.counter.close()


def open_rapl(sys: Path) -> Rapl | None:
    """Return a meter of this machine's RAPL; None if it has none.

    Raises `MeterError` if it has one that this user may not read.
    """
    zones: list[Zone] = []
    try:
        for folder in sorted((sys / "class" / "powercap").glob("intel-rapl:*")):
            name = text_of(folder / "name")
            if name.startswith("package-") or name == "dram":
                zones.append(_open_zone(folder, name))
    except MeterError:
        _close(zones)
        raise
    return Rapl(zones) if zones else None


def _open_zone(folder: Path, name: str) -> Zone:
    try:
        counter = SensorFile(folder / "energy_uj")
    except PermissionError:
        raise MeterError(
            f"this user may not read {folder / 'energy_uj'}, which only root may read since Linux "
            "5.10: let one of the agent's groups read it (docs/measuring.md has the udev rule)"
        ) from None
    except OSError as error:
        raise MeterError(f"{folder / 'energy_uj'} cannot be read: {error.strerror}") from error
    range_uj = text_of(folder / "max_energy_range_uj")
    if not range_uj.isdecimal() or not int(range_uj):
        counter.close()
        raise MeterError(
            f"{folder / 'max_energy_range_uj'} cannot be read, so the value at which the counter "
            "wraps around is unknown: let the agent's user read it (docs/measuring.md)"
        )
    return Zone(name, counter, int(range_uj) / 1e6, counter.read() / 1e6)


def _close(zones: list[Zone]) -> None:
    for zone in zones:
        zone.counter.close()
