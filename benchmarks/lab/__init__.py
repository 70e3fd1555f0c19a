"""Emulates a laboratory of edge devices on one machine.

Each board is a network namespace with a link of its own rate, a control group with a CPU quota and
a memory limit, and in it the shipped `node-agent`. `launch` reaches the agents by address, as it
reaches real boards. See docs/laboratory.md.

Pure functions (`plans`, `faults`, `cgroups`) return the changes to the machine as values
(`actions`), which `shell` carries out. Existing parts are found by name (`traces`), so a laboratory
can be removed after any crash.
"""

from benchmarks.lab.config import BoardConfig, DeviceConfig, LabConfig, load
from benchmarks.lab.lab import Lab, down
from benchmarks.lab.shell import LabError

__all__ = ["BoardConfig", "DeviceConfig", "Lab", "LabConfig", "LabError", "down", "load"]
