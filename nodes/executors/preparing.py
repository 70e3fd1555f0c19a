"""Does the costly part of loading in a child process that exits.

Optimising a subnet or building an engine holds the weights two to three times over, and what it
leaves in the heap does not come back: in the agent itself it would count for ever. One child does
any number of subnets, one after the other, so its peak is that of the largest.

The child, `python -m nodes.executors.preparing`, reads one JSON line from its standard input,
`{"engine": …, "cache": directory, "options": {…}, "jobs": [[graph, subnet name, key], …]}`, answers
each job with a JSON line, `{"done": key}` or `{"failed": key, "reason": sentence}`, and exits when
it is done or when its input is closed, so that it never outlives the agent that started it.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal, TypeAlias

from nodes.executors.base import ExecutorError, LoadOptions
from nodes.executors.heap import give_back_free_memory
from nodes.executors.prepared import Job, PreparedFiles

Engine: TypeAlias = Literal["onnxruntime", "tensorrt"]


class PreparingProcess:
    """Runs children for one engine."""

    def __init__(self, engine: Engine, cache: PreparedFiles) -> None:
        self._engine = engine
        self._cache = cache
        self._children: set[subprocess.Popen[str]] = set()
        self._is_interrupted = False
        self._is_closed = False

    def prepare(
        self, jobs: Iterable[Job], options: LoadOptions, on_done: Callable[[Job], None]
    ) -> None:
        """Make what the cache lacks; `on_done` for each job, in order, as soon as it is there.

        Raises ExecutorError at the first that fails.
        """
        waiting = list(jobs)
        missing = {job.key: job for job in waiting if self._cache.find(job.key) is None}

        def report_ready() -> None:
            while waiting and waiting[0].key not in missing:
                on_done(waiting.pop(0))

        def made(job: Job) -> None:
            del missing[job.key]
            report_ready()

        report_ready()
        if missing:
            self.make(list(missing.values()), options, made)

    def make(
        self, jobs: Sequence[Job], options: LoadOptions, on_done: Callable[[Job], None]
    ) -> None:
        """Make `jobs` in order in one child, whatever the cache holds.

        Raises ExecutorError at the first that fails, and if the child dies.
        """
        request = {
            "engine": self._engine,
            "cache": str(self._cache.root.resolve()),
            "options": asdict(options),
            "jobs": [(str(job.graph.resolve()), job.subnet, job.key) for job in jobs],
        }
        child = subprocess.Popen(
            [sys.executable, "-m", "nodes.executors.preparing"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={**os.environ, "PYTHONPATH": _python_path()},
        )
        self._children.add(child)
        if self._is_interrupted:  # asked for only after it was added: `interrupt` sees it then
            child.kill()
        try:
            self._talk(child, request, jobs, on_done)
        finally:
            self._children.discard(child)
            _end(child)
            with contextlib.suppress(OSError):
                self._cache.clear_leftovers()

    def _talk(
        self,
        child: subprocess.Popen[str],
        request: object,
        jobs: Sequence[Job],
        on_done: Callable[[Job], None],
    ) -> None:
        assert child.stdin is not None  # noqa: S101 - they are pipes
        assert child.stdout is not None  # noqa: S101
        with contextlib.suppress(BrokenPipeError):  # it has died; that shows below
            child.stdin.write(json.dumps(request) + "\n")
            child.stdin.flush()
        for job in jobs:
            line = child.stdout.readline()
            if not line:
                fate = "was stopped" if self._is_interrupted else _fate(child.wait())
                raise ExecutorError(f"subnet {job.subnet}: the process that prepares it {fate}")
            answer = json.loads(line)
            if "failed" in answer:
                raise ExecutorError(answer["reason"])
            on_done(job)

    def interrupt(self) -> None:
        """End the children that run, and those begun before `resume`; from any thread.

        Who waits for them gets an ExecutorError.
        """
        self._is_interrupted = True
        for child in tuple(self._children):
            child.kill()

    def resume(self) -> None:
        """Children may run again, unless this is closed."""
        self._is_interrupted = self._is_closed

    def close(self) -> None:
        """Interrupt for good."""
        self._is_closed = True
        self.interrupt()


def _end(child: subprocess.Popen[str]) -> None:
    """Kill and reap it, and close its pipes, also when what was last written to it never left."""
    child.kill()
    child.wait()
    for pipe in (child.stdin, child.stdout):
        if pipe is not None:
            with contextlib.suppress(BrokenPipeError):
                pipe.close()


def _fate(code: int) -> str:
    if code == -9:
        return "was killed, most likely for want of memory; give the node a smaller subnet"
    return f"ended unexpectedly (exit code {code})"


def _python_path() -> str:
    """Where the child finds this package, whatever directory the agent was started in."""
    here = str(Path(__file__).resolve().parents[2])
    return os.pathsep.join(filter(None, (here, os.environ.get("PYTHONPATH"))))


def _maker(engine: str) -> Callable[[Job, LoadOptions, PreparedFiles], Any]:
    if engine == "tensorrt":
        from nodes.executors.tensor_rt_build import build  # noqa: PLC0415 - one engine per child

        return build
    from nodes.executors.onnx_optimise import optimise  # noqa: PLC0415

    return optimise


def _exit_with_parent() -> None:
    sys.stdin.read()
    os._exit(1)


def main() -> None:
    """The child."""
    line = sys.stdin.readline()
    if not line:
        return
    request = json.loads(line)
    threading.Thread(target=_exit_with_parent, daemon=True).start()
    cache = PreparedFiles(Path(request["cache"]))
    options = LoadOptions(**request["options"])
    make = _maker(request["engine"])
    for graph, subnet, key in request["jobs"]:
        try:
            make(Job(Path(graph), subnet, key), options, cache)
            answer = {"done": key}
        except ExecutorError as error:
            answer = {"failed": key, "reason": str(error)}
        print(json.dumps(answer), flush=True)  # noqa: T201 - this is how it answers
        give_back_free_memory()
    os._exit(0)


if __name__ == "__main__":
    main()
