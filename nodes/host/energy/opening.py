"""Finds the meter of this machine: a sensor that is known here, or a plugin that the user names."""

from __future__ import annotations

import time
from pathlib import Path
from typing import cast

from nodes.host.energy.base import GROUP, Meter, MeterError
from nodes.host.energy.rails import open_rails
from nodes.host.energy.rapl import open_rapl

AUTO, OFF = "auto", "none"
"""The names that are not plugins: any sensor that is known here, and no meter."""

SYS = Path("/sys")

NO_SENSOR = "it has no power sensor that this version knows (RAPL, INA3221, INA219 and relatives)"
SWITCHED_OFF = "it was started with --meter none"


def open_meter(name: str = AUTO, sys: Path = SYS) -> tuple[Meter | None, str]:
    """Return the meter, or None and a clause that says why nothing is measured.

    `sys` is where sysfs is mounted. Raises `MeterError` for a plugin that does not exist or cannot
    be opened: the user has asked for it. A sensor that is merely found must not keep an agent from
    starting.
    """
    if name == OFF:
        return None, SWITCHED_OFF
    if name != AUTO:
        return _plugin(name), ""
    refused = NO_SENSOR
    try:
        rapl = open_rapl(sys)
        if rapl is not None:
            return rapl, ""
    except MeterError as error:
        refused = str(error)
    rails = open_rails(sys)
    return rails, "" if rails is not None else refused


def _plugin(name: str) -> Meter:
    from importlib import metadata  # noqa: PLC0415 - 5 MB that only agents with a plugin need

    installed = {point.name: point for point in metadata.entry_points(group=GROUP)}
    if name not in installed:
        known = ", ".join(sorted(installed)) or "none"
        raise MeterError(
            f"--meter {name}: no installed package has a meter of this name (installed: {known}); "
            f"install one with the entry point {GROUP}, or use auto or none"
        )
    try:
        meter = cast("Meter", installed[name].load()())
        meter.read_j(time.monotonic())
    except Exception as error:
        raise MeterError(f"--meter {name}: {type(error).__name__}: {error}") from error
    return meter
