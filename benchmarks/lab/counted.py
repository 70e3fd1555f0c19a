"""CPU time of a laboratory's boards while something runs on them."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

from benchmarks.lab.lab import Lab


@dataclass(frozen=True)
class Round:
    """One turn of replicas or pipeline: frames per second, and CPU seconds per frame by board.

    `slice_use` is the part of its quota that each slice used while it lasted; of a pipeline this
    counts draining too, so it is a little low.
    """

    rate: float
    slice_s: Mapping[str, float]
    other_s: Mapping[str, float]
    slice_use: Mapping[str, float]


class Counted:
    """CPU time of all boards since this was made."""

    def __init__(self, lab: Lab) -> None:
        self._lab = lab
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
        return Round(
            rate=rate,
            slice_s={name: spent[name] / frames[name] for name in after},
            other_s={name: (after[name][1] - before[name][1]) / frames[name] for name in after},
            slice_use={name: spent[name] / after[name][2] / (now_s - began_s) for name in after},
        )
