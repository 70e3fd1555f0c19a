"""Runs a plan with the shipped agents of the laboratory and `launch`'s own run."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path

from benchmarks.lab.turns import OneFrame
from benchmarks.peers.boards import Boards
from benchmarks.peers.chain import Chain
from benchmarks.peers.stages.frames import difference, read_frame, read_results
from benchmarks.peers.turns import Counting, Turn, family_bytes
from launcher.config.load import Cluster
from launcher.plan.devices import nodes_of
from launcher.plan.settings import run_options
from launcher.run.frame_list import listed
from launcher.run.runner import run
from launcher.run.runtime import Array, SubnetFiles
from partition.plan import Plan

LOOK_EVERY_S = 0.02


class Ours:
    """Deployed anew for each turn, as every `launch` does; nodes keep the optimised files."""

    name = "csdf-edge"

    def __init__(
        self,
        boards: Boards,
        cluster: Cluster,
        plan: Plan,
        subnets: Mapping[str, SubnetFiles],
        chain: Chain,
        folder: Path,
    ) -> None:
        self._boards, self._cluster, self._plan, self._subnets = boards, cluster, plan, subnets
        self._inputs = [tensor.name for tensor in chain.parts[0].inputs]
        self._outputs = [tensor.name for tensor in chain.parts[-1].outputs]
        self._frame = dict(zip(self._inputs, read_frame(folder), strict=True))
        self._wanted = read_results(folder)
        self.deploying_peak_bytes: dict[str, int] = {}
        """Agent and the children that optimise for it together, while the first turn deployed."""

    def run(self, frames: int, skipped: int) -> Turn:
        """See `Peer`."""
        counting = Counting(self._boards.agents, [os.getpid()])
        worst = 0.0

        def take(number: int, outputs: Mapping[str, Array]) -> None:
            nonlocal worst
            if number == skipped:
                counting.full()
            worst = max(worst, difference([outputs[name] for name in self._outputs], self._wanted))
            if number == frames - 1:  # the agents still have everything
                counting.done()

        with self._watched():
            result = run(
                self._plan,
                nodes_of(self._cluster),
                self._subnets,
                listed(OneFrame(self._frame, frames), take),
                lambda _: None,
                run_options(self._cluster),
            )
        return counting.turn(result.sent_s, result.received_s, skipped, worst)

    @contextlib.contextmanager
    def _watched(self) -> Iterator[None]:
        """Watches memory during the first turn, which optimises."""
        if self.deploying_peak_bytes:
            yield
            return
        self.deploying_peak_bytes = dict.fromkeys(self._boards.agents, 0)
        ended = threading.Event()

        def look() -> None:
            while not ended.wait(LOOK_EVERY_S):
                for name, pid in self._boards.agents.items():
                    now = family_bytes(pid)
                    self.deploying_peak_bytes[name] = max(now, self.deploying_peak_bytes[name])

        thread = threading.Thread(target=look)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()
