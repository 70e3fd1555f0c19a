"""The part of an executor that is the same for every engine which prepares subnets in a child."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path

from nodes.executors.base import LoadOptions, OnPrepared
from nodes.executors.preparing.entries import Job, PreparedFiles
from nodes.executors.preparing.process import PreparingProcess


class PreparingExecutor(ABC):
    """Keeps prepared subnets under a cache, and makes those that it lacks in a child process."""

    def __init__(
        self, engine: str, maker: str, cache: PreparedFiles, *, uses_driver: bool = False
    ) -> None:
        """See `PreparingProcess`."""
        self.is_interrupted = False
        """Whether `interrupt` was called last, and not `resume`."""
        self._cache = cache
        self._child = PreparingProcess(engine, maker, cache, uses_driver=uses_driver)

    @abstractmethod
    def job(self, graph: Path, options: LoadOptions) -> Job:
        """Return what to prepare for a subnet; raises ExecutorError if that cannot be done."""

    def prepare(
        self, graphs: Sequence[Path], options: LoadOptions, on_done: OnPrepared | None = None
    ) -> None:
        """Prepare those of `graphs` that the cache lacks, in one child process."""
        done = on_done or (lambda _: None)
        jobs = [self.job(graph, options) for graph in graphs]
        self._child.prepare(jobs, options, lambda job: done(job.graph))

    def build_anew(self, job: Job, options: LoadOptions) -> None:
        """Make an entry whatever the cache holds; raises ExecutorError."""
        self._cache.discard(job.key)
        self._child.make([job], options, lambda _: None)

    def interrupt(self) -> None:
        """End the child process if one runs, and start none until `resume`."""
        self.is_interrupted = True
        self._child.interrupt()

    def resume(self) -> None:
        """Allow child processes again."""
        self.is_interrupted = False
        self._child.resume()

    def close(self) -> None:
        """End the child process permanently."""
        self._child.close()
