"""Tang & Stefanov (2021): Table 3, both columns, and the memory of one device (§5).

The memory column is computed by Eq. 2: what their genetic algorithm finds (`ga.paper`), and the
bound that the largest layer sets. The columns of one and the same plan come from the laboratory's
stored results (`benchmarks.table3`): of all plans that were measured for a network on n boards, the
row shows the one whose worse column is best relative to the paper's.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import cnn
from benchmarks.papers.rows import Row, Section, Values, compared, impossible
from benchmarks.results import FOLDER
from benchmarks.table3.paper import NETWORKS, PAPER, Published
from cnn.network import Network
from ga.paper import PaperParameters, evolve, saving_percent
from partition.devices import Device
from partition.pricing.paper_equations import layer_beta_bytes
from partition.strategies.base import Problem

PAPER_NAME = "Tang & Stefanov (UCC 2021)"

GENERATIONS = (5, 100)
"""The paper's 100 generations, unless a few come as near to the bound as this:"""

ENOUGH_POINTS = 0.05

ONE_DEVICE_MB: Mapping[str, tuple[int, float]] = {
    "yolov2": (26, 336.2),
    "resnet50": (125, 298.1),
    "vgg16": (21, 232.8),
}
"""Network → layers and MB of memory on one device (§5)."""

POINTS = 0.5
SPEEDUP = 0.05
"""Savings that differ by half a point, and speed-ups that differ by 5 %, count as equal."""


def sections(*, quick: bool = False) -> Iterator[Section]:
    """Yield the sections of this paper; `quick` takes one network on two devices."""
    networks = {name: cnn.read(NETWORKS[name]).network for name in (["vgg16"] if quick else PAPER)}
    yield Section(
        PAPER_NAME,
        "§5: Eq. 2 of the whole network on one device",
        tuple(_alone(name, network) for name, network in networks.items()),
    )
    cells = stored_cells()
    for name, network in networks.items():
        counts = [2] if quick else list(PAPER[name])
        yield Section(
            PAPER_NAME,
            f"Table 3, {name}: memory column (Eq. 2), by their genetic algorithm",
            tuple(_memory(name, network, count) for count in counts),
        )
        yield Section(
            PAPER_NAME,
            f"Table 3, {name}: both columns of one plan, measured on emulated boards",
            tuple(both_columns(name, count, cells) for count in counts),
        )


def _alone(name: str, network: Network) -> Row:
    layers, published_mb = ONE_DEVICE_MB[name]
    ours_mb = float(layer_beta_bytes(network).sum()) / 1e6
    weights_mb = network.weight_bytes(tuple(network.layer)) / 1e6
    return compared(
        name,
        Values((published_mb,), f"{published_mb} MB, {layers} layers"),
        Values((ours_mb,), f"{ours_mb:.1f} MB, {len(network.layers)} layers"),
        within=[0.01 * published_mb],
        because=(
            f"our network has {len(network.layers)} layers, each with its inputs and outputs, and "
            f"{weights_mb:.1f} MB of float32 weights; the paper does not say what it counts"
            + (" (it is less than the weights at 16 bits)" if weights_mb / 2 > published_mb else "")
        ),
    )


def _memory(name: str, network: Network, count: int) -> Row:
    published = PAPER[name][count].saving_percent
    problem = Problem(network, tuple(Device(f"d{i}") for i in range(count)))
    beta = layer_beta_bytes(network)
    largest = 100 * float(beta.max() / beta.sum())
    most = 100 - max(largest, 100 / count)
    for generations in GENERATIONS:
        parameters = PaperParameters(generations=generations)
        saving = saving_percent(problem, evolve(problem, parameters, lambda *_: None).best)
        if saving >= most - ENOUGH_POINTS:
            break
    row = compared(
        f"{count} devices",
        Values.of([published], "{:.1f} %"),
        Values.of([saving], "{:.2f} %"),
        within=[POINTS],
        better="more",
        because=(
            f"our largest layer alone is {largest:.1f} % of Eq. 2, so whole layers save at most "
            f"{100 - largest:.1f} %; the paper's is {100 - max_saving(name):.1f} % of theirs"
        ),
    )
    return replace(row, ours=f"{row.ours} (at most {most:.2f} %)")


def max_saving(name: str) -> float:
    """The largest saving that the paper reports of a network, in per cent."""
    return max(published.saving_percent for published in PAPER[name].values())


@dataclass(frozen=True, slots=True)
class StoredCell:
    """A measured plan: `saving_percent` by Eq. 2, `measured_percent` above an idle agent."""

    network: str
    devices: int
    strategy: str
    speedup: float
    saving_percent: float
    measured_percent: float
    rate_of_prediction: float
    file: str
    date: str

    def nearness(self, published: Published) -> float:
        """How much of the paper's columns the plan reaches, the worse of both."""
        return min(self.saving_percent / published.saving_percent, self.speedup / published.speedup)


def stored_cells(folder: Path = FOLDER) -> tuple[StoredCell, ...]:
    """Read every plan for several boards from the laboratory's stored results."""
    found = []
    for path in sorted(folder.glob("table3*.json")):
        data = json.loads(path.read_text("utf-8"))
        for cell in data["data"]["cells"]:
            named = cell["cell"]
            if named["devices"] < 2 or cell["eq2_saving_percent"] is None:
                continue
            objective = "" if named["objective"] == "period" else f":{named['objective']}"
            found.append(
                StoredCell(
                    named["network"],
                    named["devices"],
                    named["strategy"] + objective,
                    cell["efficiency"]["median"] * named["devices"],
                    cell["eq2_saving_percent"],
                    cell["saving_percent"]["median"],
                    cell["rate"]["median"] / cell["foreseen_rate"],
                    path.name,
                    data["date"],
                )
            )
    return tuple(found)


def both_columns(name: str, count: int, cells: Sequence[StoredCell]) -> Row:
    """Compare both columns of the paper with those of the stored plan that is nearest to them."""
    published = PAPER[name][count]
    theirs = Values.of([published.saving_percent, published.speedup], "{:.1f} %, {:.1f}×")
    own = [cell for cell in cells if (cell.network, cell.devices) == (name, count)]
    if not own:
        return impossible(
            f"{count} devices", theirs.shown, "no stored laboratory run has this number of boards"
        )
    best = max(own, key=lambda cell: cell.nearness(published))
    ours = Values(
        (best.saving_percent, min(best.speedup, float(count))),
        f"{best.saving_percent:.1f} %, {best.speedup:.2f}×",
    )
    missed = [
        column
        for column, reached in (
            ("memory", best.saving_percent >= published.saving_percent - POINTS),
            ("speed", best.speedup >= published.speedup * (1 - SPEEDUP)),
        )
        if not reached
    ]
    row = compared(
        f"{count} devices",
        theirs,
        ours,
        within=[POINTS, SPEEDUP * published.speedup],
        better="more",
        because=(
            f"no plan measured so far reaches both columns at once; this one misses "
            f"{' and '.join(missed)}"
        ),
    )
    disturbed = "; above n, so others disturbed it" if best.speedup > 1.05 * count else ""
    detail = (
        f"{best.strategy}{disturbed}; measured memory {best.measured_percent:.1f} %; {best.date}"
    )
    return replace(row, ours=f"{row.ours} ({detail}, {best.file})")
