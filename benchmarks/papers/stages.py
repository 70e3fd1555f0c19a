"""Velasco-Montero et al. (2023): Tables 3 to 5 and a run of Algorithm 2.

The paper's profiles are curves without numbers, except for the rates of MobileNet on one processor
alone (Table 5). With these, MobileNet's layers take the seconds of our estimate, scaled on each
processor so that the whole network has the published rate, and `two-stage` finds the cut. The rate
of the pipeline follows from the two rates alone, whatever the layers take, as the null model shows:
layer times at random.

Algorithm 2 moves the cut of a running pipeline, one layer at a time, as long as the time of its
slowest stage falls. It runs here on the same times, from the cut of the undisturbed board.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

import cnn
from benchmarks.papers.rows import (
    COMPUTED,
    MEASURED,
    RECOMPUTED,
    Row,
    Section,
    Values,
    checked,
    compared,
    impossible,
)
from benchmarks.papers.segmentation import MODELS
from benchmarks.results import FOLDER
from cnn.network import Network
from partition.devices import Device
from partition.pricing.compute_time import layer_seconds
from partition.strategies.base import Problem
from partition.strategies.contiguous.stages import TwoStage

PAPER_NAME = "Velasco-Montero et al. (IEEE Access 2023)"

TABLES_3_AND_4: Mapping[str, tuple[str, float, float]] = {
    "Table 3, MobileNet": ("23 GPU → 8 CPU", 100.0, 98.0),
    "Table 3, SqueezeNet-v1.1": ("32 GPU → 8 CPU", 100.2, 101.3),
    "Table 3, Inception-v3": ("88 GPU → 34 CPU", 9.5, 10.9),
    "Table 3, VGG-19": ("20 GPU → 6 CPU", 17.9, 16.0),
    "Table 4, MobileNet": ("4 CPU → 27 GPU", 167.9, 139.9),
    "Table 4, SqueezeNet-v1.1": ("6 CPU → 34 GPU", 175.0, 161.2),
    "Table 4, Inception-v3": ("5 CPU → 117 GPU", 20.9, 24.5),
    "Table 4, VGG-19": ("20 GPU → 6 CPU", 17.9, 16.8),
}
"""Network → cut, expected and measured images per second."""


@dataclass(frozen=True, slots=True)
class Case:
    """A row of Table 5: images per second alone and as a pipeline, and nodes on the GPU."""

    name: str
    gpu: float
    cpu: float
    nodes: int
    pipeline: float


TABLE_5 = (
    Case("baseline", 76.6, 22.0, 23, 98.0),
    Case("video player", 70.0, 17.1, 28, 77.6),
    Case("glmark2", 51.4, 15.6, 26, 67.1),
    Case("stress", 80.0, 8.7, 29, 88.4),
    Case("glxgears", 67.1, 15.5, 26, 76.8),
)
NODES = 31
"""MobileNet's nodes in TVM: 27 convolutions, pooling, flatten, fully connected, softmax."""

DYNAMIC = (23, 27, 26)
"""Algorithm 2 in the case of glmark2: the first cut, the last one that is tried, the best."""

RATE = 0.15
"""Rates that differ by 15 % count as equal: theirs deviate from what they expected by 10 %."""


def sections(*, quick: bool = False) -> Iterator[Section]:
    """Yield the sections of this paper."""
    del quick  # all of it takes about a second
    yield Section(PAPER_NAME, "Tables 3 and 4: throughput-optimised cuts", tuple(_tables_3_and_4()))
    network = cnn.read(str(MODELS / "MobileNet.onnx")).network
    yield Section(
        PAPER_NAME,
        "Table 5: MobileNet, two stages from the rates of each processor",
        tuple(_table_5(network, case) for case in TABLE_5),
    )
    yield Section(PAPER_NAME, "Algorithm 2: glmark2 starts on the board", _algorithm_2(network))


def _tables_3_and_4() -> Iterator[Row]:
    for what, (cut, expected, measured) in TABLES_3_AND_4.items():
        if what != "Table 3, MobileNet":  # a row of Table 5 has it
            yield impossible(
                what,
                f"{cut}, expected {expected}, measured {measured} images/s",
                "the layers' times on a Jetson TX2 are curves without numbers",
            )
    theirs = [abs(expected / measured - 1) for _, expected, measured in TABLES_3_AND_4.values()]
    ours = list(deviations())
    yield compared(
        "expected against measured rate, mean deviation",
        Values((statistics.mean(theirs),), f"{statistics.mean(theirs):.1%} of {len(theirs)} rows"),
        Values(
            (statistics.mean(ours),),
            f"{statistics.mean(ours):.1%} of {len(ours)} plans in the laboratory",
        ),
        MEASURED,
        within=[0.01],
        because="theirs are of boards with other programs, ours of emulated boards, and each plan "
        "is another",
    )


def deviations() -> Iterator[float]:
    """Yield how far each stored laboratory rate is from its prediction, relative to the rate."""
    for path in sorted(FOLDER.glob("table3*.json")):
        for cell in json.loads(path.read_text("utf-8"))["data"]["cells"]:
            yield abs(cell["foreseen_rate"] / cell["rate"]["median"] - 1)


@dataclass(frozen=True)
class Pipeline:
    """MobileNet on two processors: `seconds` [layers, 2] on GPU and CPU, `node_of` [layers]."""

    seconds: np.ndarray
    node_of: np.ndarray
    problem: Problem

    def stage_s(self, nodes: int) -> float:
        """Seconds of the slower stage if the first `nodes` nodes are on the GPU."""
        first = self.node_of < nodes
        return float(max(self.seconds[first, 0].sum(), self.seconds[~first, 1].sum()))


def pipeline_of(network: Network, case: Case) -> Pipeline:
    """Scale our estimate of each layer so that each processor alone has its published rate."""
    free = {"firing_s": 0.0, "cut_s_per_byte": 0.0, "wire_s_per_message": 0.0}
    devices = tuple(
        Device(name, link_bytes_per_s=1e18, wire_s_per_byte=0.0, **free) for name in ("gpu", "cpu")
    )
    estimate = layer_seconds(network, devices)
    seconds = estimate / estimate.sum(axis=0) / np.array([case.gpu, case.cpu])
    is_node = [layer.operator not in FUSED for layer in network.layers]
    node_of = np.cumsum(is_node) - 1
    problem = Problem(network, devices, layer_s=seconds, objective="period")
    return Pipeline(seconds, node_of, problem)


FUSED = frozenset({"Relu", "Clip", "BatchNormalization", "Add", "Mul", "Dropout", "Identity"})
"""What TVM fuses with the layer before it."""


def _table_5(network: Network, case: Case) -> Row:
    pipeline = pipeline_of(network, case)
    problem = pipeline.problem
    numbers = problem.numbers(TwoStage().solve(problem).assignment)
    rate = 1 / float(problem.costs.evaluate(numbers[None]).period_s[0])
    nodes = len(set(pipeline.node_of[numbers == 0].tolist()))
    order = "GPU → CPU" if numbers[0] == 0 else "CPU → GPU"
    total = int(pipeline.node_of[-1]) + 1
    return compared(
        case.name,
        Values((case.pipeline,), f"{case.pipeline} images/s, {case.nodes} of {NODES} on the GPU"),
        Values((rate,), f"{rate:.1f} images/s, {nodes} of {total} on the GPU, {order}"),
        RECOMPUTED,
        within=[RATE * case.pipeline],
        null=f"{_random_rate(network, case):.1f} images/s, random times of layers",
        because=(
            "two processors at their rates alone compute at most "
            f"{case.gpu + case.cpu:.1f} images/s, and other programs disturb a pipeline more"
        ),
    )


def _random_rate(network: Network, case: Case) -> float:
    """Return the mean rate of the best cut where layers take random times, of 20 draws."""
    rng = np.random.default_rng(0)
    rates = []
    for _ in range(20):
        drawn = rng.random((len(network.layers), 1))
        seconds = drawn / drawn.sum(axis=0) / np.array([case.gpu, case.cpu])
        first = np.concatenate([np.zeros((1, 2)), seconds.cumsum(axis=0)])
        last = first[-1] - first
        cut_s = np.minimum(
            np.maximum(first[:, 0], last[:, 1]).min(), np.maximum(first[:, 1], last[:, 0]).min()
        )
        rates.append(1 / float(cut_s))
    return statistics.mean(rates)


def dynamic_cut(
    first: int,
    most: int,
    measure: Callable[[int], float],
    alpha: float = 1.0,
    known: Callable[[int], float] = lambda _: 0.0,
) -> tuple[int, list[int]]:
    """Algorithm 2: the cut that no neighbour betters, and every cut that was tried, in order.

    `alpha` filters measurements: the time of a cut is what was `known` of it, moved by this share
    towards what is measured now. With 1 the measurement alone counts.
    """
    unfiltered = measure

    def filtered(cut: int) -> float:
        return known(cut) + alpha * (unfiltered(cut) - known(cut))

    measure = filtered
    best, best_s, tried = first, measure(first), [first]
    for step in (1, -1):
        cut = first + step
        while 0 <= cut <= most:
            tried.append(cut)
            time_s = measure(cut)
            if time_s >= best_s:
                break
            best, best_s, cut = cut, time_s, cut + step
        if best != first:
            break
    return best, tried


def _algorithm_2(network: Network) -> tuple[Row, ...]:
    baseline, disturbed = (pipeline_of(network, TABLE_5[index]) for index in (0, 2))
    most = int(baseline.node_of[-1]) + 1
    start = min(range(most + 1), key=baseline.stage_s)
    best, tried = dynamic_cut(start, most, disturbed.stage_s)
    optimum = min(range(most + 1), key=disturbed.stage_s)
    theirs_start, theirs_last, theirs_best = DYNAMIC
    before, after = TABLE_5[0], TABLE_5[2]
    return (
        checked(
            "run from the undisturbed cut",
            f"starts at {theirs_start}, stops at {theirs_last}, best {theirs_best}",
            f"tries {', '.join(map(str, tried))}, best {best}",
            RECOMPUTED,
            agrees=tried[-1] == theirs_last and best == theirs_best,
            because=f"by Table 5 the disturbance leaves {after.gpu / before.gpu:.0%} of the GPU's "
            f"rate and {after.cpu / before.cpu:.0%} of the CPU's, so with these rates the cut "
            "moves away from the GPU; on the board it moved towards it",
        ),
        checked(
            "its local minimum is the optimum over all cuts",
            f"yes ({theirs_best})",
            f"{'yes' if best == optimum else 'no'} ({optimum})",
            RECOMPUTED,
            agrees=best == optimum,
            because="times are not unimodal",
        ),
        *(
            Row(
                f"one run with the filter α = {alpha}, from what the undisturbed board had",
                "the paper does not say its α",
                f"tries {', '.join(map(str, slow[1]))}, best {slow[0]}",
                COMPUTED,
                f"the optimum is {optimum}",
            )
            for alpha in (0.25, 0.5)
            for slow in [dynamic_cut(start, most, disturbed.stage_s, alpha, baseline.stage_s)]
        ),
    )
