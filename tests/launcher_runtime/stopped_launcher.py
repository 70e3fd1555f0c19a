"""A launcher that streams through two local daemons, and stops itself until a test continues it.

`python -m tests.launcher_runtime.stopped_launcher FOLDER FRAMES LEASE_S` prints `streaming` once
frames stream, stops by SIGSTOP, and prints at the end a line for each change of epochs. It raises
an exception unless every frame has exactly one result, in order and correct.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from launcher.config.run import RecoveryConfig, RunConfig
from launcher.run.runtime import RunOptions
from tests.launcher_runtime.clusters import RandomFrames, Results, daemons, make_cluster, results
from tests.launcher_runtime.test_recovery import Dealer


class Told:
    """Takes results; stops this process at the twentieth."""

    def __init__(self) -> None:
        self.results: Results = results()

    def __call__(self, frame: int, outputs: Mapping[str, np.ndarray]) -> None:
        self.results(frame, outputs)
        if frame == 20:
            print("streaming", flush=True)  # noqa: T201 - for the test
            os.kill(os.getpid(), signal.SIGSTOP)


def main(folder: Path, frames: int, lease_s: float) -> None:
    """See the module's docstring."""
    cluster = make_cluster(folder, nodes=2)
    replan = Dealer(cluster, folder / "again")
    take = Told()
    with daemons(cluster.names, folder / "cache") as running:
        nodes = cluster.nodes({name: address for name, (address, _) in running.items()})
        options = RunOptions(RunConfig(lease_s=lease_s), RecoveryConfig(adapt=False), replan)
        found = cluster.run(RandomFrames(frames), take, options, nodes=nodes)
    cluster.check(take.results.outputs, frames)
    for past in found.recoveries:
        print("; ".join(past.reasons))  # noqa: T201 - for the test


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]))
