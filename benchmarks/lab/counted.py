"""Counts the CPU time of a laboratory's boards during a run."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass

from benchmarks.lab.lab import Lab
from benchmarks.undisturbed import busy_cpu_s


@dataclass(frozen=True)
class Round:
    """One turn of replicas or pipeline: frames per second, and CPU seconds per frame by board.

    `slice_use` is the part of its quota that each slice used while it lasted; of a pipeline this
    counts draining too, so it is a little low. `others` is the part of this machine's CPUs that
    neither boards nor this process used: strangers, and what the kernel does for the network.
    `machine_use` is the part that all used together: near 1, boards were short of this machine's
    CPUs rather than of their quota.
    """

    rate: float
    slice_s: Mapping[str, float]
    other_s: Mapping[str, float]
    slice_use: Mapping[str, float]
    others: float
    machine_use: float


class Counted:
    """CPU time of all boards since this was made."""

    def __init__(self, lab: Lab) -> None:
        self._lab = lab
        self._busy_s, self._own_s = busy_cpu_s(), time.process_time()
        self._began = self._look()

    def _look(self) -> tuple[float, dict[str, tuple[float, float, float]]]:
        found = {}
        for device in self._lab.status(over_s=0.0).devices:
            used = device.used
            assert used is not None
            found[device.name] = used.slice_cpu_s, used.other_cpu_s, used.cpu_quota or 1.0
        return time.monotonic(), found

    def round(self, rate: float, frames: Mapping[str, float]) -> Round:
        """What was used until now, per frame (each board's own number of them)."""
        began_s, before = self._began
        now_s, after = self._look()
        spent = {name: after[name][0] - before[name][0] for name in after}
        beside = {name: after[name][1] - before[name][1] for name in after}
        boards_s = sum(spent.values()) + sum(beside.values())
        busy_s = busy_cpu_s() - self._busy_s
        stranger_s = busy_s - boards_s - (time.process_time() - self._own_s)
        whole_s = (now_s - began_s) * (os.cpu_count() or 1)
        return Round(
            rate=rate,
            slice_s={name: spent[name] / frames[name] for name in after},
            other_s={name: beside[name] / frames[name] for name in after},
            slice_use={name: spent[name] / after[name][2] / (now_s - began_s) for name in after},
            others=max(0.0, stranger_s) / whole_s,
            machine_use=busy_s / whole_s,
        )
