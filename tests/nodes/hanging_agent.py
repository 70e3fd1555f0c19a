"""A `node-agent` whose engine hangs in native code: `python -m tests.nodes.hanging_agent …`.

Its engine has one subnet, which adds one to its input. The subnet's file says where and how the
engine hangs, and for firings the first number of the frame does. In the environment, `PATIENCE_S`
replaces the least time limits of a firing and of unloading, and `STOP_S` the time for which an
agent that ends waits for its engine. Before the engine hangs, it writes a line to standard error.
With `ENGINE=real` the agent has its usual engine.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from nodes import agent, cli
from nodes.core import watchdog
from nodes.executors import engines
from nodes.executors.base import LoadOptions, OnPrepared, TensorSpec
from nodes.protocol.payload import Array

SHAPE = (2,)
LOADING, REHEARSING, FIRING = b"hangs when it is loaded", b"hangs when it is tried", b"adds one"
"""What a subnet's file may say; the last one hangs where a frame says so."""

HANGS, HANGS_WITH_INTERPRETER = 7.0, 8.0
"""The first number of a frame in which it hangs; the second way lets no Python run any more."""


HANGING = "the engine hangs now"


def hang(*, with_interpreter: bool = False) -> NoReturn:
    library = ctypes.PyDLL(None) if with_interpreter else ctypes.CDLL(None)
    sys.stderr.write(f"{HANGING}\n")
    sys.stderr.flush()
    while True:
        library.pause()  # returns only if a signal is handled in this thread


class AddsOne:
    def __init__(self, kind: bytes) -> None:
        self.inputs = {"x": TensorSpec("float32", SHAPE)}
        self.outputs = {"y": TensorSpec("float32", SHAPE)}
        self._kind = kind

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        x = inputs["x"]
        if self._kind == REHEARSING or x[0] == HANGS:
            hang()
        if x[0] == HANGS_WITH_INTERPRETER:
            hang(with_interpreter=True)
        return {"y": x + 1}

    def close(self) -> None:
        pass


class Engine:
    """As an engine that cannot be interrupted."""

    def describe(self) -> str:
        return "hangs"

    def prepare(
        self, graphs: Sequence[Path], options: LoadOptions, on_done: OnPrepared | None = None
    ) -> None:
        pass

    def load(self, graph: Path, options: LoadOptions) -> AddsOne:
        kind = graph.read_bytes()
        if kind == LOADING:
            hang()
        return AddsOne(kind)

    def interrupt(self) -> None:
        pass

    def resume(self) -> None:
        pass

    def close(self) -> None:
        pass


if __name__ == "__main__":
    if "PATIENCE_S" in os.environ:
        patience_s = float(os.environ["PATIENCE_S"])
        watchdog.FIRING_AT_LEAST_S = watchdog.UNLOADING_AT_LEAST_S = patience_s
        watchdog.UNLOADING_UNLOADED_S = patience_s
        watchdog.CHECK_PERIOD_S = patience_s / 5
    agent.STOP_S = float(os.environ.get("STOP_S", agent.STOP_S))
    if os.environ.get("ENGINE") != "real":
        engines.open_chosen = lambda *_: Engine()
    sys.exit(cli.main())
