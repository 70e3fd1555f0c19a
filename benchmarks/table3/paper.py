"""Holds Table 3 of Tang & Stefanov (2021), from 2 to 10 Jetson TX2, and our required bounds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from benchmarks.boards.cells import NETWORKS as KNOWN
from benchmarks.papers.rows import published


@dataclass(frozen=True)
class Published:
    """Memory saved per device against one device, in per cent, and times as many frames."""

    saving_percent: float
    speedup: float


PAPER: Mapping[str, Mapping[int, Published]] = {
    network: {n: Published(*both) for n, both in enumerate(zip(*columns, strict=True), 2)}
    for network, columns in published("002")["table_3"].items()
}

NETWORKS: Mapping[str, str] = {name: KNOWN[name] for name in PAPER}
"""The paper's networks, as `cluster.yaml` names them."""

VGG16_LARGEST_LAYER_PERCENT = 52.5
"""The part of VGG16's Eq. 2 that one matrix product, its largest layer, has."""

LEAST_EFFICIENCY_SPLIT = 0.85
"""Asked of YOLOv2 and VGG16 by `hybrid` on accelerator boards, on any number of them."""

LEAST_EFFICIENCY_CPU: Mapping[int, float] = {4: 0.92, 10: 0.85}
"""The efficiencies of `ASKED` on CPU boards, for all networks; the savings are the same."""

OF_PREDICTION = (0.90, 1.10)
"""What an agent holds at least and at most, of what its plan predicts."""
