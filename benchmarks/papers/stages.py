"""Velasco-Montero et al. (2023): Tables 2 to 5, the figures, and a run of Algorithm 2.

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
from collections.abc import Callable, Iterator
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
    published,
)
from benchmarks.papers.segmentation import MODELS
from benchmarks.results import FOLDER
from cnn.network import Network
from partition.devices import Device
from partition.pricing.compute_time import layer_seconds
from partition.strategies.base import Problem
from partition.strategies.contiguous.stages import TwoStage

PAPER_NAME = "Velasco-Montero et al. (IEEE Access 2023)"
PUBLISHED = published("001")


@dataclass(frozen=True, slots=True)
class Case:
    """A row of Table 5: images per second alone and as a pipeline, and nodes on the GPU."""

    name: str
    gpu: float
    cpu: float
    nodes: int
    pipeline: float


TABLE_5 = tuple(Case(name, *row) for name, row in PUBLISHED["table_5"].items())
NODES = 31
"""MobileNet's nodes in TVM: 27 convolutions, pooling, flatten, fully connected, softmax."""

RATE = 0.15
"""Rates that differ by 15 % count as equal: theirs deviate from what they expected by 10 %."""


def sections(*, quick: bool = False) -> Iterator[Section]:
    """Yield the sections of this paper."""
    del quick  # all of it takes about a second
    yield Section(PAPER_NAME, "Table 2: nodes of networks in TVM", tuple(_table_2()))
    yield Section(PAPER_NAME, "Tables 3 and 4: throughput-optimised cuts", tuple(_tables_3_and_4()))
    network = cnn.read(str(MODELS / "MobileNet.onnx")).network
    yield Section(
        PAPER_NAME,
        "Table 5: MobileNet, two stages from the rates of each processor",
        tuple(_table_5(network, case) for case in TABLE_5),
    )
    yield Section(PAPER_NAME, "Algorithm 2: glmark2 starts on the board", _algorithm_2(network))
    yield Section(PAPER_NAME, "Figures 1 to 11", tuple(_figures(pipeline_of(network, TABLE_5[0]))))


FILES = {
    "MobileNet": str(MODELS / "MobileNet.onnx"),
    "SqueezeNet-v1.1": "onnx-wheel:squeezenet",
    "Inception-v3": str(MODELS / "InceptionV3.onnx"),
    "VGG-19": "onnx-wheel:vgg19",
}
"""The networks of Table 2 where we have them."""


def _table_2() -> Iterator[Row]:
    for name, nodes in PUBLISHED["table_2"].items():
        network = cnn.read(FILES[name]).network
        ours = sum(layer.operator not in FUSED for layer in network.layers)
        yield compared(
            name,
            [nodes],
            [ours],
            COMPUTED,
            form="{:.0f} nodes",
            within=[1],
            because="a reshape is a node in TVM, and a view in ours",
        )


def _tables_3_and_4() -> Iterator[Row]:
    for what, (cut, expected, measured) in PUBLISHED["tables_3_and_4"].items():
        if what != "Table 3, MobileNet":  # a row of Table 5 has it
            yield impossible(
                what,
                f"{cut}, expected {expected}, measured {measured} images/s",
                "the layers' times on a Jetson TX2 are curves without numbers",
            )
    theirs = [
        abs(expected / measured - 1)
        for _, expected, measured in PUBLISHED["tables_3_and_4"].values()
    ]
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


def _figures(pipeline: Pipeline) -> Iterator[Row]:
    most = int(pipeline.node_of[-1]) + 1
    cut = min(range(most + 1), key=pipeline.stage_s)
    even = round(most * TABLE_5[0].gpu / (TABLE_5[0].gpu + TABLE_5[0].cpu))
    yield compared(
        "Fig. 5: the best cut of MobileNet, GPU → CPU, from the rates of Table 5",
        [PUBLISHED["figure_5"]],
        [cut],
        RECOMPUTED,
        form="{:.0f} nodes on the GPU",
        within=[1],
        because="our times of layers are estimates",
        null=f"{even}, nodes in proportion to the rates",
    )
    rate = 1 / pipeline.stage_s(cut)
    least, most_gain = PUBLISHED["figure_8"]
    gains = [100 * (own / TABLE_5[0].gpu - 1) for own in (TABLE_5[0].pipeline, rate)]
    yield compared(
        "Fig. 8: gain of two stages over the best processor, MobileNet",
        Values.of(gains[:1], f"{{:.0f}} % by Table 5 ({least} to {most_gain} % for four networks)"),
        Values.of(gains[1:], "{:.0f} %"),
        RECOMPUTED,
        within=[1.0],
        null=f"{100 * TABLE_5[0].cpu / TABLE_5[0].gpu:.0f} %, the sum of both rates",
        because="by our times of layers, no cut between nodes divides the work evenly",
    )
    gain = 100 * (rate_of_three(pipeline) / rate - 1)
    yield compared(
        "Fig. 10, §IV-C: gain of CPU → GPU → CPU or GPU → CPU → GPU over two stages, MobileNet",
        Values.of([0.0], "none in practice"),
        Values.of([gain], "{:.1f} %, without the time of transfers"),
        RECOMPUTED,
        within=[2.0],
        because="an ideal pipeline of three stages fills what the cut between nodes leaves",
    )
    for figure, content in (
        ("1 and 7", "ms of networks on each processor, with TVM and other frameworks"),
        ("4", "ms of each node of MobileNet on each processor"),
        ("6", "seconds of a transfer by its bytes: a line"),
        ("9", "rate against energy and latency of each configuration"),
        ("11", "expected and measured rate and energy of eight schedules of SqueezeNet"),
    ):
        reason = "the text has no numbers, and no Jetson TX2 is here"
        yield impossible(f"Fig. {figure}: {content}", "bars and curves", reason)
    reason = "they show the method, and have no data"
    yield impossible("Fig. 2 and 3: pipelines as pictures", "pictures", reason)


def rate_of_three(pipeline: Pipeline) -> float:
    """Return the best rate of three stages, the first and the last on the same processor."""
    total = int(pipeline.node_of[-1]) + 1
    before = np.zeros((total + 1, 2))
    for node in range(total):
        own = pipeline.seconds[pipeline.node_of == node].sum(axis=0)
        before[node + 1] = before[node] + own
    best = np.inf
    for first in range(total + 1):
        for second in range(first, total + 1):
            middle = before[second] - before[first]
            rest = before[-1] - middle
            best = min(best, max(middle[0], rest[1]), max(middle[1], rest[0]))
    return 1 / float(best)


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

    def filtered(cut: int) -> float:
        return known(cut) + alpha * (measure(cut) - known(cut))

    best, best_s, tried = first, filtered(first), [first]
    for step in (1, -1):
        cut = first + step
        while 0 <= cut <= most:
            tried.append(cut)
            time_s = filtered(cut)
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
    theirs_start, theirs_last, theirs_best = PUBLISHED["algorithm_2"]
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
