"""Tang & Stefanov (2021): Table 3, the memory of one device (§5), and the other partitionings (§2).

Every plan of Table 3 has both columns: what Eq. 2 saves, and the speed-up over one board. They are
predicted for boards whose engine computes the whole network at the paper's rate (§5), with links
of 1 Gbit/s, each strategy in its own tables. Of the same strategies, runs on emulated boards are
read from the laboratory's stored results (`benchmarks.table3`).

**Null models** have no method: the best by Eq. 2 of 5000 random assignments, longest-first by Eq.
2, and equal counts of consecutive layers.

Our files are not the paper's: they have other layers and other sums by Eq. 2, and the largest layer
is a smaller part of it. So a saving above the paper's is not a merit, and no row says better.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any, TypeAlias

import numpy as np

import cnn
from benchmarks.papers.rows import (
    COMPUTED,
    MEASURED,
    Row,
    Section,
    Values,
    compared,
    impossible,
    published,
)
from benchmarks.results import FOLDER
from benchmarks.table3.paper import NETWORKS, PAPER, Published
from cnn.model import Model
from ga.operators import random_population
from ga.strategies import find_strategy
from partition.alone import fullest_eq2_bytes, plan_alone, saved_percent
from partition.devices import Device
from partition.objective import Objective
from partition.planner import plan_solution
from partition.pricing.compute_time import layer_seconds
from partition.pricing.paper_equations import beta_bytes, layer_beta_bytes
from partition.strategies.balancing import longest_first
from partition.strategies.base import Problem
from partition.strategies.contiguous.segm import SequentialCount

PAPER_NAME = "Tang & Stefanov (UCC 2021)"
PUBLISHED = published("002")

STRATEGIES: tuple[tuple[str, Objective], ...] = (
    ("vertical-paper", "both"),
    ("vertical-paper-seeded", "both"),
    ("vertical", "both"),
    ("auto", "both"),
    ("auto", "paper"),
)
"""The strategies of Table 3; the paper's own comes first."""

MEASURED_IN = ("table3-both.json", "table3-paper.json")
"""The laboratory's results for strategies as they are now."""

ROUNDED = (0.05, 0.05)
"""The paper rounds both columns to a tenth."""

POINTS, SPEEDUP = 0.5, 0.05
"""Savings that differ by half a point, and speed-ups that differ by 5 %, agree."""

RANDOM = 5000


def sections(*, quick: bool = False) -> Iterator[Section]:
    """Yield the sections of this paper; `quick` takes one network on two devices, by the
    paper's own strategies."""
    names = ["vgg16"] if quick else [*PAPER]
    yield Section(
        PAPER_NAME,
        "§5: Eq. 2 of the whole network on one device",
        tuple(_alone(name) for name in names),
    )
    predicted: Counter[str] = Counter()
    in_laboratory: Counter[str] = Counter()
    cells = stored_cells()
    for name in names:
        counts = [2] if quick else list(PAPER[name])
        for strategy, objective in STRATEGIES[: 2 if quick else None]:
            how = shown_as(strategy, objective)
            rows = tuple(_predicted(name, count, strategy, objective) for count in counts)
            predicted[how] += _reaching(rows)
            title = f"Table 3, {name}: both columns of one plan, predicted"
            yield Section(PAPER_NAME, title, rows, how)
            title = f"Table 3, {name}: both columns of one plan, measured on emulated boards"
            rows = tuple(measured(name, count, how, cells) for count in counts)
            in_laboratory[how] += _reaching(rows)
            yield Section(PAPER_NAME, title, rows, how)
    every = sum(len([2] if quick else PAPER[name]) for name in names)
    stored = {how for _, _, how in cells}
    for rate, reached, source in (
        ("predicted", predicted, COMPUTED),
        ("measured", {how: in_laboratory[how] for how in predicted if how in stored}, MEASURED),
    ):
        yield Section(
            PAPER_NAME,
            f"Table 3: cells that reach both columns, by Eq. 2 and the {rate} rate",
            tuple(
                Row(f"by {how}", f"{every} cells", f"{count} of {every}", source)
                for how, count in reached.items()
            ),
        )
    yield Section(
        PAPER_NAME,
        "§2: YOLOv2 divided by the other partitionings",
        tuple(_others([3] if quick else [3, 5, 7])),
    )


def shown_as(strategy: str, objective: Objective) -> str:
    """Return the name of a strategy with an objective that is not the usual one."""
    return strategy if objective == "both" else f"{strategy}:{objective}"


@cache
def model_of(name: str) -> Model:
    """The network of Table 3 called `name`."""
    return cnn.read(NETWORKS[name])


def problem_of(name: str, count: int, objective: Objective = "both") -> Problem:
    """The network on boards whose engine computes it at the paper's rate."""
    model, usual = model_of(name), Device("usual")
    factor = PUBLISHED["one_device"][name][2] * float(layer_seconds(model.network, [usual]).sum())
    boards = tuple(
        Device(
            f"d{i}",
            macs_per_s=factor * usual.macs_per_s,
            memory_bytes_per_s=factor * usual.memory_bytes_per_s,
        )
        for i in range(count)
    )
    return Problem(model.network, boards, objective=objective, model=model)


def _alone(name: str) -> Row:
    network = model_of(name).network
    layers, published_mb, _ = PUBLISHED["one_device"][name]
    ours_mb = float(layer_beta_bytes(network).sum()) / 1e6
    weights_mb = network.weight_bytes(tuple(network.layer)) / 1e6
    return compared(
        name,
        Values((published_mb,), f"{published_mb} MB, {layers} layers"),
        Values((ours_mb,), f"{ours_mb:.1f} MB, {len(network.layers)} layers"),
        COMPUTED,
        within=[0.01 * published_mb],
        because=(
            f"our network has {len(network.layers)} layers, each with its inputs and outputs, and "
            f"{weights_mb:.1f} MB of float32 weights; the paper does not say what it counts"
            + (" (it is less than the weights at 16 bits)" if weights_mb / 2 > published_mb else "")
        ),
    )


BOTH = "reaches both"


def _reaches(published: Published, saving: float, speedup: float) -> str:
    short = [
        column
        for column, misses in (
            ("memory", saving < published.saving_percent - ROUNDED[0]),
            ("speed", speedup < published.speedup - ROUNDED[1]),
        )
        if misses
    ]
    return f"misses {' and '.join(short)}" if short else BOTH


def _reaching(rows: Iterable[Row]) -> int:
    return sum(row.ours.endswith(BOTH) for row in rows)


def _predicted(name: str, count: int, strategy: str, objective: Objective) -> Row:
    problem = problem_of(name, count, objective)
    solution = find_strategy(strategy).solve(problem)
    plan = plan_solution(problem, solution, strategy)
    alone = plan_alone(problem)
    saving = saved_percent(fullest_eq2_bytes(plan), fullest_eq2_bytes(alone))
    speedup = alone.period_s / plan.period_s
    split = ", layers split" if plan.rewrites else ""
    return _both_columns(
        name, count, saving, speedup, f"{len(plan.phases)} phases{split}", predicted=True
    )


def _both_columns(
    name: str, count: int, saving: float, speedup: float, detail: str, *, predicted: bool
) -> Row:
    published = PAPER[name][count]
    beta = layer_beta_bytes(model_of(name).network)
    largest = 100 * float(beta.max() / beta.sum())
    plateau = max(each.saving_percent for each in PAPER[name].values())
    reaches = _reaches(published, saving, speedup)
    row = compared(
        f"{count} devices",
        Values.of([published.saving_percent, published.speedup], "{:.1f} %, {:.1f}×"),
        Values.of([saving, speedup], "{:.1f} %, {:.2f}×"),
        COMPUTED if predicted else MEASURED,
        within=[POINTS, SPEEDUP * published.speedup],
        because=(
            f"the networks are not the same (our largest layer is {largest:.1f} % of Eq. 2, theirs "
            f"at most {100 - plateau:.1f} %)"
        ),
        null=null_models(name, count) if predicted else "",
    )
    return replace(row, ours=f"{row.ours} ({detail}); {reaches}")


@cache
def null_models(name: str, count: int) -> str:
    """Return both columns of assignments that no method has chosen."""
    problem = problem_of(name, count)
    beta, rng = layer_beta_bytes(problem.network), np.random.default_rng(0)
    drawn = random_population(rng, RANDOM, problem.pinned, count)
    best = drawn[beta_bytes(beta, drawn, count).max(axis=1).argmin()]
    sizes = np.repeat(beta[:, None], count, axis=1)
    largest_first = longest_first(rng, 1, sizes, problem.pinned)[0]
    equal = problem.numbers(SequentialCount().solve(problem).assignment)
    alone_s = plan_alone(problem).period_s
    shown = []
    for what, numbers in (
        (f"best of {RANDOM} random", best),
        ("longest-first", largest_first),
        ("equal counts", equal),
    ):
        row = numbers[None].astype(np.int16)
        held = beta_bytes(beta, row, count)[0]
        speedup = alone_s / float(problem.costs.evaluate(row).period_s[0])
        shown.append(f"{what} {100 * (1 - held.max() / beta.sum()):.1f} %, {speedup:.2f}×")
    return "; ".join(shown)


Stored: TypeAlias = Mapping[tuple[str, int, str], Mapping[str, Any]]
"""Network, devices, strategy → a cell of the laboratory's results, with its `file` and `date`."""


def stored_cells() -> Stored:
    """Read every plan for several boards from the laboratory's results in `MEASURED_IN`."""
    found: dict[tuple[str, int, str], Mapping[str, Any]] = {}
    for path in (FOLDER / name for name in MEASURED_IN):
        data = json.loads(path.read_text("utf-8")) if path.exists() else {"data": {"cells": []}}
        for one in data["data"]["cells"]:
            cell = one["cell"]
            if cell["devices"] > 1 and one["eq2_saving_percent"] is not None:
                how = shown_as(cell["strategy"], cell["objective"])
                kept = {**one, "file": path.name, "date": data["date"]}
                found.setdefault((cell["network"], cell["devices"], how), kept)
    return found


def measured(name: str, count: int, strategy: str, cells: Stored) -> Row:
    """Compare both columns of the paper with those of this strategy's stored plan."""
    cell = cells.get((name, count, strategy))
    if cell is None:
        published = PAPER[name][count]
        theirs = f"{published.saving_percent:.1f} %, {published.speedup:.1f}×"
        reason = "no stored laboratory run has this plan (`python -m benchmarks.table3`)"
        return impossible(f"{count} devices", theirs, reason)
    speedup = cell["efficiency"]["median"] * count
    disturbed = "; more than n times, so others disturbed the replicas" if speedup > count else ""
    return _both_columns(
        name, count, cell["eq2_saving_percent"], speedup,
        f"measured memory {cell['saving_percent']['median']:.1f} %{disturbed}; {cell['date']}, "
        f"{cell['file']}",
        predicted=False,
    )  # fmt: skip


def _others(counts: Sequence[int]) -> Iterator[Row]:
    for strategy, (called, theirs) in PUBLISHED["others"].items():
        for count in counts:
            problem = problem_of("yolov2", count)
            solution = find_strategy(strategy).solve(problem)
            plan = plan_solution(problem, solution, strategy)
            alone = plan_alone(problem)
            saving = saved_percent(fullest_eq2_bytes(plan), fullest_eq2_bytes(alone))
            yield Row(
                f"{called}, {count} devices ({strategy})",
                theirs,
                f"{saving:.1f} %, {alone.period_s / plan.period_s:.2f}×, predicted",
                "differs",
                "their figures are of other boards and links, which the paper does not describe",
            )
