"""Lets ONNX Runtime optimise subnets for this CPU, in a child process that exits.

Optimising holds the weights two to three times over, and what it leaves in the heap does not come
back: in the agent itself it would count for ever. One child does any number of subnets, one after
the other, so its peak is that of the largest.

The child, `python -m nodes.executors.onnx_optimise`, reads one JSON line from its standard input,
`{"cache": directory, "jobs": [[graph, subnet name, key], …]}`, answers each job with a JSON line,
`{"done": key}` or `{"failed": key, "reason": sentence}`, and exits when it is done or when its
input is closed, so that it never outlives the agent that started it.
"""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from nodes.executors.base import ExecutorError
from nodes.executors.onnx_sessions import engine_errors, import_onnxruntime, optimising_options
from nodes.executors.prepared import PreparedFiles

MODEL = "model.onnx"
"""The optimised model's name in its entry."""

_WEIGHTS = "model.weights"


@dataclass(frozen=True, slots=True)
class Job:
    """A subnet to optimise, and the key that the result gets."""

    graph: Path
    subnet: str
    key: str


def optimise(job: Job, cache: PreparedFiles) -> None:
    """Optimise one subnet in this process; raises ExecutorError if ONNX Runtime cannot."""
    ort = import_onnxruntime()
    with cache.making(job.key) as folder, engine_errors(ort, job.subnet, "optimise"):
        ort.InferenceSession(
            str(job.graph),
            optimising_options(ort, folder / MODEL, _WEIGHTS),
            providers=["CPUExecutionProvider"],
        )


class OptimiserProcess:
    """Runs children; at most one at a time per instance is meant, but nothing breaks with more."""

    def __init__(self, cache: PreparedFiles) -> None:
        self._cache = cache
        self._children: set[subprocess.Popen[str]] = set()

    def run(self, jobs: Sequence[Job], on_done: Callable[[Job], None]) -> None:
        """Optimise `jobs` in order in one child, calling `on_done` after each.

        Raises ExecutorError at the first that fails, and if the child dies.
        """
        request = {
            "cache": str(self._cache.root.resolve()),
            "jobs": [(str(job.graph.resolve()), job.subnet, job.key) for job in jobs],
        }
        with subprocess.Popen(
            [sys.executable, "-m", "nodes.executors.onnx_optimise"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={**os.environ, "PYTHONPATH": _python_path()},
        ) as child:
            self._children.add(child)
            try:
                self._talk(child, request, jobs, on_done)
            finally:
                self._children.discard(child)
                child.kill()

    def _talk(
        self,
        child: subprocess.Popen[str],
        request: object,
        jobs: Sequence[Job],
        on_done: Callable[[Job], None],
    ) -> None:
        assert child.stdin is not None  # noqa: S101 - they are pipes
        assert child.stdout is not None  # noqa: S101
        try:
            child.stdin.write(json.dumps(request) + "\n")
            child.stdin.flush()
        except BrokenPipeError:
            pass  # it has died; that shows below
        for job in jobs:
            line = child.stdout.readline()
            if not line:
                raise ExecutorError(
                    f"subnet {job.subnet}: the process that optimises it {_fate(child.wait())}"
                )
            answer = json.loads(line)
            if "failed" in answer:
                raise ExecutorError(answer["reason"])
            on_done(job)

    def close(self) -> None:
        """End the children that still run."""
        for child in tuple(self._children):
            child.kill()


def _fate(code: int) -> str:
    if code == -9:
        return "was killed, most likely for want of memory; give the node a smaller subnet"
    return f"ended unexpectedly (exit code {code})"


def _python_path() -> str:
    """Where the child finds this package, whatever directory the agent was started in."""
    here = str(Path(__file__).resolve().parents[2])
    return os.pathsep.join(filter(None, (here, os.environ.get("PYTHONPATH"))))


def _exit_with_parent() -> None:
    sys.stdin.read()
    os._exit(1)


def main() -> None:
    """The child."""
    request = json.loads(sys.stdin.readline())
    threading.Thread(target=_exit_with_parent, daemon=True).start()
    libc = ctypes.CDLL(None)
    cache = PreparedFiles(Path(request["cache"]))
    for graph, subnet, key in request["jobs"]:
        try:
            optimise(Job(Path(graph), subnet, key), cache)
            answer = {"done": key}
        except ExecutorError as error:
            answer = {"failed": key, "reason": str(error)}
        print(json.dumps(answer), flush=True)  # noqa: T201 - this is how it answers
        if hasattr(libc, "malloc_trim"):
            libc.malloc_trim(0)
    os._exit(0)


if __name__ == "__main__":
    main()
