"""A launcher that would run for ever: `python -m tests.launcher_runtime.endless DIRECTORY CACHE`.

Prints the process ids of its agents on one line, then, once results come, their temporary
directory on another.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from launcher.processes import start_agents
from launcher.runtime import RunOptions
from tests.launcher_runtime.clusters import RandomFrames, make_cluster


def say(*words: object) -> None:
    sys.stdout.write(" ".join(str(word) for word in words) + "\n")
    sys.stdout.flush()


def main(directory: Path, cache: Path) -> None:
    cluster = make_cluster(directory, 2)
    with start_agents(cluster.nodes(), cache) as agents:
        say(*(agent.pid for agent in agents.values()))
        sockets = agents["n0"].address

        def take(frame: int, _: Mapping[str, np.ndarray]) -> None:
            if frame == 3:
                say(Path(sockets.removeprefix("ipc://")).parent)

        cluster.run(RandomFrames(10**9), take, RunOptions(), agents=agents)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # even if pytest itself ignores it
    main(Path(sys.argv[1]), Path(sys.argv[2]))
