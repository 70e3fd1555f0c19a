"""Does the costly part of loading in a child process that exits.

Optimising a subnet or building an engine holds the weights once more, and what it leaves in the
heap does not come back: in the agent itself it would count for ever. One child does any number of
subnets, one after the other, so its peak is that of the largest. Where memory runs out it is the
child that is killed, and its work then goes to another that needs less (`Job.lighter`).

The child, a fork (`fork_server`) or `python -m nodes.executors.preparing`, reads one JSON line from
its standard input, `{"engine": …, "cache": directory, "options": {…}, "jobs": [[graph, subnet name,
key, whether light], …]}`, answers each job with a JSON line, `{"done": key}` or `{"failed": key,
"reason": sentence}`, and exits when it is done or when its input is closed, so that it never
outlives the agent that started it.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal, TextIO, TypeAlias

from nodes.executors.base import ExecutorError, LoadOptions
from nodes.executors.fork_server import Child, ForkServer
from nodes.executors.heap import give_back_at_once, give_back_free_memory
from nodes.executors.prepared import Job, PreparedFiles
from nodes.time_slice import ask_for_usual_slices

Engine: TypeAlias = Literal["onnxruntime", "tensorrt"]

log = logging.getLogger("node-agent")


class KilledError(ExecutorError):
    """The child was killed, most likely for want of memory."""


class PreparingProcess:
    """Runs children for one engine, forked from `server` if there is one."""

    def __init__(
        self, engine: Engine, cache: PreparedFiles, server: ForkServer | None = None
    ) -> None:
        self._engine = engine
        self._cache = cache
        self._server = server
        self._children: set[Child] = set()
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

        If that is killed, those that are left are made once more in the way that takes less memory.
        Raises ExecutorError at the first that fails, and if the child dies.
        """
        left = list(jobs)

        def made(_: Job) -> None:
            on_done(left.pop(0))

        try:
            self._make(left.copy(), options, made)
        except KilledError as error:
            if any(job.lighter is None for job in left):
                raise
            log.warning("%s; prepared with less memory instead, which computes more slowly", error)
            lighter = [job.lighter for job in left if job.lighter is not None]
            self._make(lighter, options, made)

    def _make(
        self, jobs: Sequence[Job], options: LoadOptions, on_done: Callable[[Job], None]
    ) -> None:
        request = {
            "engine": self._engine,
            "cache": str(self._cache.root.resolve()),
            "options": asdict(options),
            "jobs": [(str(job.graph.resolve()), job.subnet, job.key, job.is_light) for job in jobs],
        }
        child = self._begin()
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

    def _begin(self) -> Child:
        if self._server is not None:
            with contextlib.suppress(OSError):  # it is gone: nobody else's affair
                return self._server.fork()
        return subprocess.Popen(
            [sys.executable, "-m", "nodes.executors.preparing"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={**os.environ, "PYTHONPATH": _python_path()},
        )

    def _talk(
        self,
        child: Child,
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
                raise self._end_of(child, job)
            answer = json.loads(line)
            if "failed" in answer:
                raise ExecutorError(answer["reason"])
            on_done(job)

    def _end_of(self, child: Child, job: Job) -> ExecutorError:
        """What to raise on account of a child that has ended before it had done `job`."""
        what = f"subnet {job.subnet}: the process that prepares it"
        if self._is_interrupted:
            return ExecutorError(f"{what} was stopped")
        code = child.wait()
        if code == -signal.SIGKILL:
            return KilledError(
                f"{what} was killed, most likely for want of memory; give the node a smaller subnet"
            )
        return ExecutorError(f"{what} ended unexpectedly (exit code {code})")

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
        if self._server is not None:
            self._server.close()


def _end(child: Child) -> None:
    """Kill and reap it, and close its pipes, also when what was last written to it never left."""
    child.kill()
    child.wait()
    for pipe in (child.stdin, child.stdout):
        if pipe is not None:
            with contextlib.suppress(BrokenPipeError):
                pipe.close()


def _python_path() -> str:
    """Where the child finds this package, whatever directory the agent was started in."""
    here = str(Path(__file__).resolve().parents[2])
    return os.pathsep.join(filter(None, (here, os.environ.get("PYTHONPATH"))))


def _maker(engine: str, *, is_light: bool) -> Callable[[Job, LoadOptions, PreparedFiles], Any]:
    if engine == "tensorrt":
        from nodes.executors.tensor_rt_build import build  # noqa: PLC0415 - one engine per child

        return build
    if is_light:
        from nodes.executors.onnx_light import optimise_lightly  # noqa: PLC0415

        return optimise_lightly
    from nodes.executors.onnx_optimise import optimise  # noqa: PLC0415

    return optimise


def work(input_: TextIO, output: TextIO) -> None:
    """What the child does."""
    line = input_.readline()
    if not line:
        return
    _volunteer()
    ask_for_usual_slices()
    give_back_at_once()
    request = json.loads(line)
    threading.Thread(target=_exit_with_parent, args=(input_,), daemon=True).start()
    cache = PreparedFiles(Path(request["cache"]))
    options = LoadOptions(**request["options"])
    for graph, subnet, key, is_light in request["jobs"]:
        try:
            make = _maker(request["engine"], is_light=is_light)
            make(Job(Path(graph), subnet, key, is_light), options, cache)
            answer = {"done": key}
        except ExecutorError as error:
            answer = {"failed": key, "reason": str(error)}
        print(json.dumps(answer), flush=True, file=output)
        give_back_free_memory()
    os._exit(0)


def _volunteer() -> None:
    """Where memory runs out, let this process be killed and not the agent."""
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000", "ascii")


def _exit_with_parent(input_: TextIO) -> None:
    input_.read()
    os._exit(1)


if __name__ == "__main__":
    work(sys.stdin, sys.stdout)
