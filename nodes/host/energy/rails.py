"""Measures the power of a board's supply rails by INA chips, and adds it up to joules.

- INA3221 under hwmon (`/sys/class/hwmon/hwmonN`, Jetson boards since JetPack 5): three channels,
  `inN_input` in mV and `currN_input` in mA, named by `inN_label`.
- INA219 and its relatives under hwmon: one channel, `power1_input` in µW.
- INA3221 as an IIO device (`/sys/bus/iio/devices/iio:deviceN`, Jetson boards up to JetPack 4):
  `in_powerN_input` in mW, named by `rail_name_N`.

These tell the present power, so joules are the sum of trapezoids between readings. Where a rail
feeds the whole module (`VDD_IN`), only such rails count, because the others are parts of it. Else
all rails do, except those that are known to be fed by another one. None of this could be tried on
boards: the tests have folders in the format of the kernel's documentation (`hwmon/ina3221.rst`,
`hwmon/ina2xx.rst`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from nodes.host.energy.base import MeterError, SensorFile
from nodes.host.kernel_files import text_of

INA2XX = frozenset({"ina219", "ina220", "ina226", "ina230", "ina231"})

WHOLE = frozenset({"VDD_IN", "POM_5V_IN", "5V_IN"})
"""Rails that feed a whole Jetson module."""

FED_BY_OTHERS = frozenset({"VDDQ_VDD2_1V8AO", "NC"})
"""Rails that another rail of the same board feeds (Jetson AGX Orin), and channels without one."""

PERIOD_S = 0.1


@dataclass(frozen=True, slots=True)
class Rail:
    """A supply rail: its power in watts is the product of the files times `unit_w`."""

    label: str
    files: tuple[SensorFile, ...]
    unit_w: float

    def read_w(self) -> float:
        """Return its present power; 0 while it feeds back (a battery that is charged)."""
        power = self.unit_w
        for file in self.files:
            power *= file.read()
        return max(0.0, power)

    def close(self) -> None:
        """Close the files."""
        for file in self.files:
            file.close()


class Rails:
    """A meter of supply rails; see `nodes.host.energy.base.Meter`."""

    def __init__(self, rails: list[Rail]) -> None:
        self._rails = rails
        self.description = f"INA ({', '.join(rail.label for rail in rails)})"
        self.period_s = PERIOD_S
        self._last: tuple[float, float] | None = None
        self._total_j = 0.0

    def read_j(self, now_s: float) -> float:
        """See `Meter`."""
        power_w = sum(rail.read_w() for rail in self._rails)
        if self._last is not None:
            before_s, before_w = self._last
            self._total_j += (before_w + power_w) / 2 * (now_s - before_s)
        self._last = now_s, power_w
        return self._total_j

    def close(self) -> None:
        """See `Meter`."""
        for rail in self._rails:
            rail.close()


def open_rails(sys: Path) -> Rails | None:
    """Return a meter of the rails of this board; None if no chip is known here."""
    found = list(_all_rails(sys))
    whole = [rail for rail in found if rail.label in WHOLE]
    counted = whole or [rail for rail in found if rail.label not in FED_BY_OTHERS]
    for rail in found:
        if rail not in counted:
            rail.close()
    return Rails(counted) if counted else None


def _all_rails(sys: Path) -> Iterator[Rail]:
    for folder in sorted((sys / "class" / "hwmon").glob("hwmon*")):
        chip = text_of(folder / "name")
        if chip == "ina3221":
            for n in (1, 2, 3):
                label = text_of(folder / f"in{n}_label") or f"{folder.name} channel {n}"
                yield from _opened(
                    label, (folder / f"in{n}_input", folder / f"curr{n}_input"), 1e-6
                )
        elif chip in INA2XX:
            yield from _opened(f"{chip} {folder.name}", (folder / "power1_input",), 1e-6)
    for folder in sorted((sys / "bus" / "iio" / "devices").glob("iio:device*")):
        if text_of(folder / "name").startswith("ina3221"):
            for n in (0, 1, 2):
                label = text_of(folder / f"rail_name_{n}") or f"{folder.name} channel {n}"
                yield from _opened(label, (folder / f"in_power{n}_input",), 1e-3)


def _opened(label: str, paths: tuple[Path, ...], unit_w: float) -> Iterator[Rail]:
    """Yield the rail, or nothing if its channel is off or missing."""
    files: list[SensorFile] = []
    with suppress(OSError, MeterError):
        for path in paths:
            files.append(SensorFile(path))  # noqa: PERF401 - those before an error must be closed
        yield Rail(label, tuple(files), unit_w)
        return
    for file in files:
        file.close()
