"""The conditions that a board's figures depend on, and the number of threads that a board uses.

Figures hold for a processor, an engine and its version, a number of threads, the CPUs that the
agent may use, and the frequencies that these may have. A power mode (`nvpmodel` on Jetsons) changes
them: it sets governors, the largest frequencies of processors and GPU, and which cores are on. A
CPU quota is not a condition: figures are kept without a quota, and reported under the present one.
"""

from __future__ import annotations

import math
import os
from collections.abc import Collection
from pathlib import Path

from nodes.host.control_groups import quota_cores
from nodes.host.kernel_files import number_of, text_of
from nodes.host.processor import processor_kind

SYSTEM = Path("/sys")

FAST_CAPACITY = 0.7
"""A core with at least this part of the largest capacity is a fast one. The second kind of cores of
a RK3588 has 0.52, that of a Snapdragon 8 Gen 2 has 0.35; its second fastest kind has 0.85."""

FAST_FREQUENCY = 0.8
"""The same for the largest frequency, where the kernel does not report capacities."""


def conditions(system: Path = SYSTEM) -> str:
    """Return a text that differs where the figures of this board may differ."""
    allowed = sorted(os.sched_getaffinity(0))
    policies = sorted((system / "devices/system/cpu/cpufreq").glob("policy*"))
    policies += sorted((system / "class/devfreq").glob("*"))
    named = ("scaling_governor", "scaling_max_freq", "governor", "max_freq")
    limits = [(each.name, *(text_of(each / name) for name in named)) for each in policies]
    online = text_of(system / "devices/system/cpu/online")
    return repr((processor_kind(), allowed, online, limits))


def threads_of_board(computing: str = "self") -> int:
    """Return the number of threads with which this process computes best.

    It is one per fast core that the process may use, and at most the whole cores of its quota and
    of the quota of the thread that computes, an entry in /proc (`nodes.host.control_groups`).
    """
    cores = fast_cores(os.sched_getaffinity(0))
    return max(1, int(min(cores, _quota("self"), _quota(computing))))


def spare_cores(computing: str = "self") -> float:
    """Return the cores that other threads of this process have while `threads_of_board` compute."""
    all_ = min(len(os.sched_getaffinity(0)), _quota("self"))
    return max(0.0, all_ - min(threads_of_board(computing), _quota(computing)))


def _quota(entry: str) -> float:
    quota = quota_cores(entry)
    return math.inf if quota is None else quota


def fast_cores(allowed: Collection[int], system: Path = SYSTEM) -> int:
    """Return how many cores `allowed` has, without slow ones; two threads of a core count once."""
    cpus = {cpu: system / f"devices/system/cpu/cpu{cpu}" for cpu in allowed}
    for name, part in (
        ("cpu_capacity", FAST_CAPACITY),
        ("cpufreq/cpuinfo_max_freq", FAST_FREQUENCY),
    ):
        speeds = {cpu: number_of(folder / name) for cpu, folder in cpus.items()}
        if min(speeds.values(), default=0) > 0:
            least = part * max(speeds.values())
            cpus = {cpu: cpus[cpu] for cpu, speed in speeds.items() if speed >= least}
            break
    siblings = {
        text_of(folder / "topology/thread_siblings_list") or str(cpu)
        for cpu, folder in cpus.items()
    }
    return max(1, len(siblings))
