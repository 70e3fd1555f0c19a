"""Reads this machine's energy sensors: RAPL of x86 processors, or INA3221 of Jetson boards.

RAPL counts joules per package (`/sys/class/powercap/intel-rapl:N/energy_uj`, which wraps around at
`max_energy_range_uj`). An INA3221 measures the present volts and amperes of each rail
(`/sys/class/hwmon/hwmonN`: `inN_input` in mV, `currN_input` in mA), so its watts are sampled. Both
measure the whole machine, including other programs.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

SYS = Path("/sys/class")
NO_SENSOR = "no energy sensor; watts are those of cluster.yaml"


@dataclass(frozen=True, slots=True)
class RaplPackage:
    """One processor package's counter."""

    folder: Path

    def read_j(self) -> float:
        """Read the joules since some fixed moment."""
        return int((self.folder / "energy_uj").read_text("ascii")) / 1e6

    def spent_j(self, before_j: float, after_j: float) -> float:
        """Return the joules between two readings, if the counter wrapped around once at most."""
        if after_j >= before_j:
            return after_j - before_j
        turn = int((self.folder / "max_energy_range_uj").read_text("ascii")) / 1e6
        return after_j + turn - before_j


class Meter:
    """Measures the machine's mean watts from `start` to `stop`; `sample` reads INA3221 sensors."""

    def __init__(self, sys: Path = SYS, clock: Callable[[], float] = time.monotonic) -> None:
        self._packages = [RaplPackage(folder) for folder in _rapl(sys)]
        self._rails = [] if self._packages else _rails(sys)
        self._clock = clock
        self._began_s = 0.0
        self._before_j: list[float] = []
        self._samples_w: list[float] = []

    @property
    def name(self) -> str | None:
        """The kind of sensor; None if there is none."""
        if self._packages:
            return "RAPL"
        return "INA3221" if self._rails else None

    def start(self) -> None:
        """Begin to measure."""
        self._began_s = self._clock()
        self._before_j = [package.read_j() for package in self._packages]
        self._samples_w = []
        self.sample()

    def sample(self) -> None:
        """Read the sensors that have to be sampled."""
        if self._rails:
            self._samples_w.append(sum(_rail_w(volts, amps) for volts, amps in self._rails))

    def stop(self) -> float | None:
        """Return the watts since `start`; None without a sensor, or if no time has passed."""
        passed_s = self._clock() - self._began_s
        if self._packages and passed_s > 0:
            spent = (
                package.spent_j(before, package.read_j())
                for package, before in zip(self._packages, self._before_j, strict=True)
            )
            return sum(spent) / passed_s
        self.sample()
        return sum(self._samples_w) / len(self._samples_w) if self._samples_w else None


def device_watts(idle_w: float, busy_w: float, nodes: int) -> tuple[float, float]:
    """Return (busy, idle) watts of one of `nodes` nodes on a machine.

    The machine takes `idle_w` while no node computes and `busy_w` while one does.
    """
    share = idle_w / nodes
    return share + max(0.0, busy_w - idle_w), share


def _rapl(sys: Path) -> list[Path]:
    return [folder for folder in sorted(sys.glob("powercap/intel-rapl:*")) if _is_package(folder)]


def _is_package(folder: Path) -> bool:
    """Whether it is a whole package and readable (often only for root)."""
    try:
        return folder.name.count(":") == 1 and bool((folder / "energy_uj").read_text("ascii"))
    except OSError:
        return False


def _rails(sys: Path) -> list[tuple[Path, Path]]:
    """Return the (mV, mA) files of rails of the board's first INA3221 that do not overlap."""
    for folder in sorted(sys.glob("hwmon/hwmon*")):
        try:
            if (folder / "name").read_text("ascii").strip() != "ina3221":
                continue
        except OSError:
            continue
        pairs = [(folder / f"in{n}_input", folder / f"curr{n}_input") for n in (1, 2, 3)]
        found = [pair for pair in pairs if all(map(_is_readable, pair))]
        if found:
            return found[:1] if _first_is_whole(folder) else found
    return []


def _first_is_whole(folder: Path) -> bool:
    """Whether the first rail is the board's supply, which feeds the others."""
    try:
        return (folder / "in1_label").read_text("ascii").strip() in ("VDD_IN", "POM_5V_IN")
    except OSError:
        return False


def _is_readable(path: Path) -> bool:
    try:
        return bool(path.read_text("ascii"))
    except OSError:
        return False


def _rail_w(volts: Path, amps: Path) -> float:
    return int(volts.read_text("ascii")) * int(amps.read_text("ascii")) / 1e6
