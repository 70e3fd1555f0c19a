"""Check networks in several worker processes, any of which may die at any time.

A worker gets one seed at a time and reports whose turn it is while it works. If it dies (an engine
that crashes takes its process with it), the seed and the model that was running are known. Another
worker replaces it.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import TypeAlias

from tests.agreement.drawn.check import Outcome, check
from tests.agreement.drawn.network import draw
from tests.agreement.drawn.planned import planned

PATIENCE_S = 120.0
"""For one network; an engine that hangs is ended then."""


Work: TypeAlias = Callable[[int, Path, Callable[[str], None]], Outcome]
"""What becomes of a seed: with a folder for files, and whom to tell whose turn it is."""


def check_seed(seed: int, folder: Path, tell: Callable[[str], None]) -> Outcome:
    """Draw a network and check it."""
    return check(draw(seed), folder, tell)


def check_planned(seed: int, folder: Path, tell: Callable[[str], None]) -> Outcome:
    """Draw a network, divide it by a strategy, and check it."""
    return check(draw(seed), folder, tell, planned)


def check_bodies(seed: int, folder: Path, tell: Callable[[str], None]) -> Outcome:
    """Draw a network with bodies, and check it with subnets prepared as agents do."""
    return check(draw(seed, with_bodies=True), folder, tell, prepared=True)


def checked(seeds: Sequence[int], workers: int, work: Work = check_seed) -> Iterator[Outcome]:
    """Yield the outcomes in the order of completion. `work` is a function of a module."""
    left = list(reversed(seeds))
    at_work = [_Worker(work, left.pop()) for _ in range(min(workers, len(seeds)))]
    try:
        while at_work:
            ready = set(wait([worker.pipe for worker in at_work], timeout=1.0))
            for worker in tuple(at_work):
                outcome = worker.outcome(is_ready=worker.pipe in ready)
                if outcome is None:
                    continue
                yield outcome
                if left and worker.process.is_alive():
                    worker.give(left.pop())
                    continue
                at_work.remove(worker)
                worker.end()
                if left:
                    at_work.append(_Worker(work, left.pop()))
    finally:
        for worker in at_work:
            worker.process.kill()


class _Worker:
    """A process, the seed that it works on, and whose turn it is."""

    def __init__(self, work: Work, seed: int) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, its = context.Pipe()
        self.process = context.Process(target=_live, args=(its, work), daemon=True)
        self.process.start()
        its.close()
        self.give(seed)

    def give(self, seed: int) -> None:
        self.seed, self.turn, self.since_s = seed, "", time.monotonic()
        self.pipe.send(seed)

    def outcome(self, *, is_ready: bool) -> Outcome | None:
        """Return the worker's outcome, or one that describes its death or time-out."""
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
        return Outcome(self.seed, whose, f"{how} at {self.turn or 'drawing'}")

    def end(self) -> None:
        self.pipe.close()
        self.process.join(timeout=5.0)
        self.process.kill()


def _live(pipe: Connection, work: Work) -> None:
    """The main loop of a worker, without engines' messages, which would break the progress bar."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())
    memory = Path("/dev/shm")  # files are many, small and short-lived
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as name:
        while True:
            try:
                seed = pipe.recv()
            except EOFError:
                return
            with tempfile.TemporaryDirectory(dir=name) as folder:
                outcome = work(seed, Path(folder), pipe.send)
            pipe.send(outcome)
