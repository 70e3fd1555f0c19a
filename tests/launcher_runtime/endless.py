"""A launcher with an endless run: `python -m tests.launcher_runtime.endless DIRECTORY CACHE`.

The addresses of two agents may follow; without them it starts its own. It prints the process ids of
its agents on one line and, once results come, their temporary directory on another (`-` without
one).
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from launcher.run.processes import start_agents
from launcher.run.runtime import RunOptions
from tests.launcher_runtime.clusters import RandomFrames, make_cluster


def say(*words: object) -> None:
    sys.stdout.write(" ".join(str(word) for word in words) + "\n")
    sys.stdout.flush()


def main(directory: Path, cache: Path, *addresses: str) -> None:
    cluster = make_cluster(directory, 2)
    nodes = cluster.nodes(dict(zip(cluster.names, addresses, strict=False)))
    with start_agents(nodes, cache) as agents:
        say(*(agent.pid for agent in agents.values()))
        place = Path(agents["n0"].address.removeprefix("ipc://")).parent if agents else "-"

        def take(frame: int, _: Mapping[str, np.ndarray]) -> None:
            if frame == 3:
                say(place)

        cluster.run(RandomFrames(10**9), take, RunOptions(), nodes=nodes, agents=agents)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # even if pytest itself ignores it
    main(Path(sys.argv[1]), Path(sys.argv[2]), *sys.argv[3:])
