"""Starts all compared programs on the same boards, lets them take turns, and compares these."""

from __future__ import annotations

import contextlib
import random
import statistics
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from benchmarks.lab import Lab
from benchmarks.lab.replica import reference
from benchmarks.lab.runs import planned
from benchmarks.peers.chain import Chain, Part, chain_of
from benchmarks.peers.others import Ours, PlainZmq, TorchGloo, WholeModel
from benchmarks.peers.stages.session import save
from benchmarks.peers.turns import Peer, Turn
from benchmarks.report import Figure
from cnn.model import Model
from launcher.config.load import load_cluster
from launcher.plan.settings import read_model
from launcher.progress import open_progress
from partition.plan import Plan

FULL_FRAMES = 4
"""Results per board that are left out, while the pipeline fills."""

FEWEST_FRAMES = 8
"""The fewest results that count. The first turn has as many and is not reported: it shows how many
frames a turn takes, and warms up connections and files."""


@dataclass(frozen=True)
class Found:
    """Peer → its turns, ours first, and the plan that was run."""

    turns: Mapping[str, tuple[Turn, ...]]
    plan: Plan


def compare(lab: Lab, repetitions: int, seconds: float, torch_python: str | None) -> Found:
    """Turns of everybody, in another order each time. Raises `LauncherError`."""
    cluster = load_cluster(lab.cluster_file)
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="peers-")))
        progress = stack.enter_context(open_progress())
        model = read_model(cluster)
        made = planned(cluster, model, folder, progress)
        network = model.network
        chain = chain_of(made.plan, made.subnets, network.inputs, network.outputs)
        _prepare(model, chain, folder)
        peers: list[Peer] = [
            Ours(lab, made, chain, folder),
            stack.enter_context(PlainZmq.opened(lab, chain, folder)),
        ]
        if torch_python is not None:
            opened = TorchGloo.opened(lab, chain, folder, torch_python)
            peers.append(stack.enter_context(opened))
        peers.append(stack.enter_context(WholeModel.opened(lab, folder)))
        skipped = FULL_FRAMES * len(chain.parts)
        rates = {peer.name: peer.run(skipped + FEWEST_FRAMES, skipped).rate for peer in peers}
        turns: dict[str, list[Turn]] = {peer.name: [] for peer in peers}
        order = random.Random(0)
        for _ in range(repetitions):
            for peer in order.sample(peers, len(peers)):
                counted = max(FEWEST_FRAMES, round(rates[peer.name] * seconds))
                turns[peer.name].append(peer.run(skipped + counted, skipped))
                progress.say(f"{peer.name}: {turns[peer.name][-1].rate:.2f} frames/s")
    return Found({name: tuple(some) for name, some in turns.items()}, made.plan)


def _prepare(model: Model, chain: Chain, folder: Path) -> None:
    """The chain, the whole network as a chain of one, a frame, and what it makes of it."""
    whole = reference(model, folder)
    (frame,), (results,) = whole.frames, whole.results
    first, last = chain.parts[0], chain.parts[-1]
    chain.write(folder / "chain.json")
    Chain((Part("", whole.graph, first.inputs, last.outputs),)).write(folder / "whole.json")
    save(
        folder,
        [frame[tensor.name] for tensor in first.inputs],
        [results[tensor.name] for tensor in last.outputs],
    )


Reading: TypeAlias = Callable[[Turn], float]

READINGS: Mapping[str, tuple[str, Reading]] = {
    "rate": ("frames/s", lambda turn: turn.rate),
    "latency when full": ("s", lambda turn: turn.latency_s),
    "peak resident, largest process": ("MB", lambda turn: turn.peak_bytes / 1e6),
    "anonymous, largest process": ("MB", lambda turn: turn.anonymous_bytes / 1e6),
    "CPU per frame, all boards": ("ms", lambda turn: 1000 * turn.cpu_s),
}

HELD = ("rate", "peak resident, largest process", "anonymous, largest process")
"""In what ours is to be no worse than the best of the others."""


def figures(turns: Mapping[str, tuple[Turn, ...]]) -> list[Figure]:
    """How ours, the first, stands to the best of the others; then everybody's readings."""
    readings = [
        Figure.of(f"{name}: {what}", map(read, some), unit)
        for name, some in turns.items()
        for what, (unit, read) in READINGS.items()
    ]
    return [*(_ratio(turns, what) for what in HELD), *readings]


def _ratio(turns: Mapping[str, tuple[Turn, ...]], what: str) -> Figure:
    """Ours ÷ the other whose median is best, each turn by that of the same round."""
    (ours, own), *others = turns.items()
    more_is_better, read = what == "rate", READINGS[what][1]
    choose = max if more_is_better else min
    best, best_turns = choose(others, key=lambda item: statistics.median(map(read, item[1])))
    values = [read(one) / read(other) for one, other in zip(own, best_turns, strict=True)]
    asked = {"at_least" if more_is_better else "at_most": 1.0}
    return Figure.of(f"{ours}: {what} ÷ that of {best}, the best", values, "×", **asked)
