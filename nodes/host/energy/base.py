"""Define a meter, for those that are built in and for plugins.

A plugin is a function without arguments that returns a `Meter`, under the entry point group
`csdf_edge.meters`. `node-agent --meter NAME` calls it before the agent gives up files, so a meter
must open in it whatever it will read.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Protocol

from nodes.protocol.errors import NodeError

GROUP = "csdf_edge.meters"
"""The entry point group of meters."""


class MeterError(NodeError):
    """A meter cannot be read, or no longer; the message is a sentence without a full stop."""


class Meter(Protocol):
    """Counts the joules that the whole machine takes, other programs included."""

    @property
    def description(self) -> str:
        """The quantity and the sensor, for people, such as `RAPL (package-0, dram)`."""
        ...

    @property
    def period_s(self) -> float:
        """The longest time between two readings in which nothing is missed while the agent works.

        A counter is missed if it wraps around twice, a power if it changes in between.
        """
        ...

    def read_j(self, now_s: float) -> float:
        """Return the joules since the meter was opened; they never decrease.

        `now_s` is the monotonic clock. Raises `MeterError` or `OSError` if the sensor cannot be
        read.
        """
        ...

    def close(self) -> None:
        """Release the sensor."""
        ...


class SensorFile:
    """A whole number in a file of the kernel's, which stays open.

    Every read from its beginning asks the driver again. Reading an open file does not check paths
    and permissions again, and fails when its device is gone.
    """

    def __init__(self, path: Path) -> None:
        """Open the file and read it once; raises `OSError` or `MeterError`."""
        self._path = path
        self._file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            self.read()
        except MeterError:
            self.close()
            raise

    def read(self) -> int:
        """Return the number; raises `MeterError`."""
        try:
            return int(os.pread(self._file, 64, 0))
        except OSError as error:
            raise MeterError(f"{self._path} cannot be read: {error.strerror}") from error
        except ValueError:
            raise MeterError(f"{self._path} does not contain a whole number") from None

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)
