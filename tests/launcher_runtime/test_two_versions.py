"""Agents of the version before the launcher's work beside present ones, in one run."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from launcher.run.runtime import RunOptions
from nodes.protocol.messages import OLDEST_PROTOCOL, PROTOCOL
from tests.launcher_runtime.clusters import Cluster, RandomFrames, free_port, results, stop

OLDER_AGENT = os.environ.get("CSDF_EDGE_OLDER_AGENT", "")
"""The `node-agent` of an installation of the version before; a stand-in where there is none."""


@contextmanager
def agents(older: set[str], names: tuple[str, ...], cache: Path) -> Iterator[dict[str, str]]:
    """One daemon per name, of the version before for those in `older`; yields their addresses."""
    started: list[subprocess.Popen[bytes]] = []
    addresses = {}
    before = [OLDER_AGENT] if OLDER_AGENT else [sys.executable, "-m", "tests.nodes.older_agent"]
    try:
        for name in names:
            addresses[name] = f"tcp://127.0.0.1:{free_port()}"
            program = before if name in older else [sys.executable, "-m", "nodes.cli"]
            arguments = ["--listen", addresses[name], "--name", name, "--cache", str(cache / name)]
            started.append(
                subprocess.Popen(
                    [*program, *arguments], stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL
                )
            )
        yield addresses
    finally:
        for process in started:
            stop(process)


@pytest.mark.parametrize(
    "older", [{"n0"}, {"n1"}, {"n0", "n1"}], ids=lambda older: "-".join(sorted(older))
)
def test_a_run_over_agents_of_both_versions_computes_what_the_whole_network_computes(
    two: Cluster, tmp_path: Path, older: set[str]
) -> None:
    taken = results()
    with agents(older, ("n0", "n1"), tmp_path) as addresses:
        outcome = two.run(RandomFrames(12), taken, RunOptions(), nodes=two.nodes(addresses))
    two.check(taken.outputs, 12)
    spoken = {name: welcome.protocol for name, welcome in outcome.welcome.items()}
    assert spoken == {name: OLDEST_PROTOCOL if name in older else PROTOCOL for name in ("n0", "n1")}
    assert sum(stats.bad_messages + stats.stale_messages for stats in outcome.stats.values()) == 0
