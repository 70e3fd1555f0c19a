"""Starts all compared programs on the same boards and lets them take turns."""

from __future__ import annotations

import argparse
import contextlib
import random
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from benchmarks.lab import Lab
from benchmarks.lab.turns import planned, reference
from benchmarks.peers.boards import Boards
from benchmarks.peers.chain import Chain, Part, chain_of
from benchmarks.peers.others import PlainZmq, TorchGloo, WholeModel
from benchmarks.peers.ours import Ours
from benchmarks.peers.stages.frames import save
from benchmarks.peers.turns import Peer, Turn
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
    """Peer → its turns, and what was run. `ours` is the name of ours."""

    turns: Mapping[str, tuple[Turn, ...]]
    ours: str
    plan: Plan
    emulated: bool
    missing: tuple[str, ...]
    deploying_peak_bytes: Mapping[str, int]


def compare(lab: Lab, options: argparse.Namespace, with_torch: bool) -> Found:
    """Turns of everybody, in another order each time. Raises `LauncherError`."""
    boards = Boards(lab)
    cluster = load_cluster(lab.cluster_file)
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="peers-")))
        progress = stack.enter_context(open_progress())
        model = read_model(cluster)
        plan, subnets = planned(cluster, model, folder, progress)
        network = model.network
        chain = chain_of(plan, subnets, network.inputs, network.outputs)
        _prepare(model, chain, folder)
        ours = Ours(boards, cluster, plan, subnets, chain, folder)
        peers: list[Peer] = [
            ours,
            stack.enter_context(PlainZmq.opened(boards, chain, folder, options.hwm)),
        ]
        if with_torch:
            python, microbatches = options.torch_python, options.microbatches
            opened = TorchGloo.opened(boards, chain, folder, python, microbatches)
            peers.append(stack.enter_context(opened))
        peers.append(stack.enter_context(WholeModel.opened(boards, folder)))
        skipped = FULL_FRAMES * len(chain.parts)
        rates = {peer.name: peer.run(skipped + FEWEST_FRAMES, skipped).rate for peer in peers}
        turns: dict[str, list[Turn]] = {peer.name: [] for peer in peers}
        order = random.Random(0)
        for _ in range(options.repetitions):
            for peer in order.sample(peers, len(peers)):
                counted = max(FEWEST_FRAMES, round(rates[peer.name] * options.seconds))
                turns[peer.name].append(peer.run(skipped + counted, skipped))
                progress.say(f"{peer.name}: {turns[peer.name][-1].rate:.2f} frames/s")
    return Found(
        turns={name: tuple(some) for name, some in turns.items()},
        ours=ours.name,
        plan=plan,
        emulated=boards.emulated,
        missing=lab.missing,
        deploying_peak_bytes=ours.deploying_peak_bytes,
    )


def _prepare(model: Model, chain: Chain, folder: Path) -> None:
    """The chain, the whole network as a chain of one, a frame, and what it makes of it."""
    whole = reference(model, folder)
    first, last = chain.parts[0], chain.parts[-1]
    chain.write(folder / "chain.json")
    Chain((Part("", whole.graph, first.inputs, last.outputs),)).write(folder / "whole.json")
    save(
        folder,
        [whole.inputs[tensor.name] for tensor in first.inputs],
        [whole.outputs[tensor.name] for tensor in last.outputs],
    )
