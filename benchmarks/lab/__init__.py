"""A laboratory of emulated edge devices on one machine.

Each board is a network namespace with a link of its own rate, a control group with a CPU quota and
a memory limit, and in it the shipped `node-agent`. `launch` reaches the agents by address, as it
reaches real boards. See docs/laboratory.md.

What is done to the machine is listed by pure functions (`plans`, `faults`, `cgroups`) as values
(`actions`), which `shell` carries out. What is there is found by name (`traces`), so a laboratory
can be removed after any crash.
"""

from benchmarks.lab.config import BoardConfig, DeviceConfig, LabConfig, load
from benchmarks.lab.lab import Lab, down
from benchmarks.lab.shell import LabError

__all__ = ["BoardConfig", "DeviceConfig", "Lab", "LabConfig", "LabError", "down", "load"]
