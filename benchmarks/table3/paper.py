"""Holds Table 3 of Tang & Stefanov (2021), from 2 to 10 Jetson TX2, and our required bounds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

VGG16 = Path(__file__).parents[2] / "tests" / "fixtures" / "models" / "VGG16.onnx"

NETWORKS: Mapping[str, str] = {
    "resnet50": "onnx-wheel:resnet50",
    "yolov2": "builtin:yolov2",
    "vgg16": str(VGG16),
}
"""The paper's networks, as `cluster.yaml` names them. Their weights are drawn at random."""


@dataclass(frozen=True)
class Published:
    """Memory saved per device against one device, in per cent, and times as many frames."""

    saving_percent: float
    speedup: float


PAPER: Mapping[str, Mapping[int, Published]] = {
    "yolov2": {
        2: Published(48.2, 1.9),
        3: Published(64.1, 2.6),
        4: Published(68.6, 3.1),
        5: Published(71.9, 3.9),
        6: Published(74.3, 4.7),
        7: Published(74.3, 4.7),
        8: Published(74.3, 4.7),
        9: Published(74.3, 4.7),
        10: Published(74.3, 4.7),
    },
    "resnet50": {
        2: Published(48.1, 1.9),
        3: Published(63.8, 2.7),
        4: Published(70.8, 3.4),
        5: Published(75.3, 3.8),
        6: Published(79.0, 3.9),
        7: Published(80.1, 4.9),
        8: Published(82.1, 6.6),
        9: Published(84.3, 7.5),
        10: Published(84.9, 7.9),
    },
    "vgg16": {
        2: Published(47.7, 1.9),
        3: Published(63.5, 2.4),
        4: Published(70.2, 3.1),
        5: Published(70.2, 3.1),
        6: Published(70.2, 3.1),
        7: Published(70.2, 3.1),
        8: Published(70.2, 3.1),
        9: Published(70.2, 3.1),
        10: Published(70.2, 3.1),
    },
}

VGG16_LARGEST_LAYER_PERCENT = 52.5
"""The part of VGG16's Eq. 2 that one matrix product, its largest layer, has."""

LEAST_EFFICIENCY: Mapping[str, Mapping[int, float]] = {
    "accelerator": {2: 0.95, 4: 0.95, 6: 0.95, 8: 0.90, 10: 0.90},
    "cpu": {2: 0.95, 4: 0.90, 6: 0.85, 8: 0.80, 10: 0.80},
}
"""Asked of ResNet50 where the period alone counts: kind of board → boards → pipeline ÷ replicas."""

LEAST_EFFICIENCY_SPLIT = 0.85
"""Asked of YOLOv2 and VGG16 by `hybrid` on accelerator boards, on any number of them."""


@dataclass(frozen=True)
class Asked:
    """What one plan must reach: pipeline ÷ replicas, and memory measured above the idle agent,
    saved against one board, in per cent."""

    efficiency: float
    saving_percent: float


BOTH: Mapping[str, Mapping[int, Asked]] = {
    "resnet50": {4: Asked(0.95, 66.0), 10: Asked(0.87, 76.0)},
    "yolov2": {4: Asked(0.92, 65.0), 10: Asked(0.87, 78.0)},
    "vgg16": {4: Asked(0.92, 68.0), 10: Asked(0.90, 84.0)},
}
"""Asked of the default strategy with the objective `both` on accelerator boards: network → boards →
both columns."""

LEAST_EFFICIENCY_CPU: Mapping[int, float] = {4: 0.92, 10: 0.85}
"""The same efficiencies on CPU boards, for all networks; the savings are as in `BOTH`."""

LEAST_OF_PREDICTION = 0.90
"""What an agent holds at least, of what its plan predicts, with the objective `both`."""

MOST_OF_PREDICTION = 1.10
"""What an agent may hold at most, of what its plan predicts."""
