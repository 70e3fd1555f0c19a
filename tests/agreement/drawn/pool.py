"""Networks checked in several processes, of which each may die at any time.

A worker is given one seed at a time and says whose turn it is while it works, so that the death of
one (an engine that crashes takes its process with it) is known with its seed, and by whose model.
Another worker takes its place.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path

from tests.agreement.drawn.check import Outcome, check
from tests.agreement.drawn.network import draw

PATIENCE_S = 120.0
"""For one network; an engine that hangs is ended then."""


def checked(seeds: Sequence[int], workers: int) -> Iterator[Outcome]:
    """The outcomes, in the order in which they come."""
    context = multiprocessing.get_context("spawn")
    left = list(reversed(seeds))
    at_work = [_Worker.start(context) for _ in range(min(workers, len(seeds)))]
    for worker in at_work:
        worker.give(left.pop())
    try:
        while at_work:
            ready = set(wait([worker.pipe for worker in at_work], timeout=1.0))
            for worker in list(at_work):
                outcome = worker.outcome(is_ready=worker.pipe in ready)
                if outcome is None:
                    continue
                yield outcome
                if not worker.process.is_alive() or not left:
                    at_work.remove(worker)
                    worker.end()
                    if left:
                        worker = _Worker.start(context)
                        at_work.append(worker)
                if left:
                    worker.give(left.pop())
    finally:
        for worker in at_work:
            worker.process.kill()


@dataclass
class _Worker:
    process: multiprocessing.process.BaseProcess
    pipe: Connection
    seed: int = -1
    turn: str = ""
    since_s: float = 0.0

    @staticmethod
    def start(context: multiprocessing.context.SpawnContext) -> _Worker:
        ours, its = context.Pipe()
        process = context.Process(target=_work, args=(its,), daemon=True)
        process.start()
        its.close()
        return _Worker(process, ours)

    def give(self, seed: int) -> None:
        self.seed, self.turn, self.since_s = seed, "", time.monotonic()
        self.pipe.send(seed)

    def outcome(self, *, is_ready: bool) -> Outcome | None:
        """What the worker says, or what is to be said of one that died or hangs."""
        if is_ready:
            try:
                said = self.pipe.recv()
            except EOFError:
                self.process.join()
                return self._died(f"the process ended with {self.process.exitcode}")
            if isinstance(said, Outcome):
                return said
            self.turn = said
        elif time.monotonic() - self.since_s > PATIENCE_S:
            self.process.kill()
            self.process.join()
            return self._died(f"no end after {PATIENCE_S:.0f} s")
        return None

    def _died(self, how: str) -> Outcome:
        whose = "skipped" if self.turn == "original" else "fails"
        return Outcome(self.seed, whose, f"{how} at the {self.turn or 'drawing'}")

    def end(self) -> None:
        self.pipe.close()
        self.process.join(timeout=5.0)
        self.process.kill()


def _work(pipe: Connection) -> None:
    """A worker's life. What engines say on standard error would tear the progress bar."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())
    memory = Path("/dev/shm")  # noqa: S108 - files are many, small and short-lived
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as name:
        while True:
            try:
                seed = pipe.recv()
            except EOFError:
                return
            with tempfile.TemporaryDirectory(dir=name) as folder:
                outcome = check(draw(seed), Path(folder), pipe.send)
            pipe.send(outcome)
