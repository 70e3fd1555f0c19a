"""Compares a release with its whole model before it serves."""

from __future__ import annotations

from pathlib import Path

from launcher.config.cluster import RANDOM, InputConfig
from launcher.config.load import Cluster
from launcher.inputs.frames import Inputs, open_inputs
from launcher.progress import ProgressDisplay
from launcher.results.collecting import Results
from launcher.results.comparison.agreement import FirstResults, worst_of
from launcher.results.networks import network_numbers
from launcher.results.whole import ExecutedPlans, compare_all
from launcher.streaming.job import Live
from launcher.streaming.live_cluster import LiveModel

FRAMES = 3
"""Frames of random numbers that are compared."""


def disagreement(
    live: Live, network: LiveModel, cluster: Cluster, folder: Path, progress: ProgressDisplay
) -> str:
    """Return how a release's results differ from its whole model's; empty if they agree.

    `folder` is for temporary files. Raises `LauncherError` if either cannot be computed.
    """
    model = live.model
    described = open_inputs(
        model.network,
        InputConfig(files=(RANDOM,)),
        folder,
        frames=FRAMES,
        seed=cluster.config.seed,
        is_classifier=False,
        where="the check",
    )
    inputs = Inputs(described.items[:FRAMES], FRAMES, described.description)
    results = Results(
        inputs,
        model.network.outputs,
        None,
        FirstResults(folder / "first", network_numbers(model)),
        (),
        checked=False,
        constants=model.constant_outputs,
    )
    futures = [network.submit(inputs[number]) for number in range(FRAMES)]
    for number, future in enumerate(futures):
        results.on_result(number, future.result())

    def show(done: int, total: int) -> None:
        progress.update("comparing with the whole model", done, total)

    ran = ExecutedPlans(live.plan, live.subnets)
    found = worst_of(
        compare_all(model, results, folder, show, cluster.config.tolerance, ran).values()
    )
    return "" if found is None or found.agrees else found.disagreement
