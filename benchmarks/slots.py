"""Measures what the slots of a node cost, and what one deployment notices of another:

    python -m benchmarks.slots [--model onnx-wheel:squeezenet] [--repetitions 5] [--seconds 6]
                               [--json]

One `node-agent --slots 2` runs on this machine.

- **memory**: resident and anonymous memory of the parent; what an idle agent adds; what a first and
  a second deployment of the same model add. The last three are proportional shares (`Pss`), in
  which pages that processes share are divided among them; they include programs and libraries.
- **Welcome**: from the connection to the answer to `Hello`, where the slot's agent does not run and
  where it does.
- **beside**: the frames/s of a run of the whole model on slot 1, with nothing on slot 2, and while
  another run loads the same model there and closes, again and again. Such periods alternate.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

import csdf_edge
from benchmarks.report import Figure, print_json, report
from launcher.core.events import MessageReceived
from launcher.run.connections import Connections
from launcher.run.runner import greeting
from nodes.protocol.messages import Bye

IDLE_S = 1.0
ANSWER_S = 60.0
PARENT_BYTES = 16e6
"""The most that the parent may hold."""


@dataclass
class Node:
    """The node that is measured: its parent's PID and its address."""

    pid: int
    address: str

    @property
    def agents(self) -> list[int]:
        """The PIDs of its agents."""
        children = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()
        return [int(child) for child in children]

    def pss_bytes(self) -> int:
        """The proportional memory of all agents."""
        return sum(_field(Path(f"/proc/{agent}/smaps_rollup"), "Pss:") for agent in self.agents)


@dataclass
class Measured:
    """What was measured, a value per repetition."""

    idle_bytes: list[int] = field(default_factory=list)
    first_bytes: list[int] = field(default_factory=list)
    second_bytes: list[int] = field(default_factory=list)
    asleep_s: list[float] = field(default_factory=list)
    awake_s: list[float] = field(default_factory=list)
    alone_hz: list[float] = field(default_factory=list)
    beside_hz: list[float] = field(default_factory=list)
    loads: int = 0


def _field(file: Path, name: str) -> int:
    found = re.search(rf"^{name}\s+(\d+) kB", file.read_text(), re.MULTILINE)
    return int(found[1]) * 1024 if found else 0


@contextlib.contextmanager
def started(cache: Path, *arguments: str) -> Iterator[Node]:
    """`node-agent --slots 2` on free ports of this machine."""
    command = [sys.executable, "-m", "nodes.cli", "--slots", "2", "--listen", "tcp://127.0.0.1:0"]
    with subprocess.Popen(
        [*command, "--cache", str(cache), "--name", "board", *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stderr is not None
            for line in process.stderr:
                if (ready := re.search(r"ready: 2 slots at (\S+),", line)) is not None:
                    break
            else:
                raise SystemExit("the node did not start")
            threading.Thread(target=process.stderr.read, daemon=True).start()
            yield Node(process.pid, ready[1])
        finally:
            process.terminate()


def welcome_s(node: Node) -> float:
    """Seconds until slot 1 has answered, over a new connection, and has been left again."""
    with Connections() as connections:
        began_s = time.monotonic()
        connections.open_control("board", node.address)
        connections.send("board", greeting(ANSWER_S))
        while (passed_s := time.monotonic() - began_s) < ANSWER_S:
            for arrival in connections.wait(ANSWER_S - passed_s):
                if isinstance(arrival, MessageReceived):
                    connections.send("board", Bye())
                    return time.monotonic() - began_s
    raise SystemExit("the slot's agent did not answer")


def await_no_agent(node: Node) -> None:
    """Return once all slots sleep."""
    while node.agents:
        threading.Event().wait(0.02)


def measure_memory(cluster: Path, node: Node, measured: Measured) -> None:
    await_no_agent(node)
    welcome_s(node)
    measured.idle_bytes.append(node.pss_bytes())
    with csdf_edge.open(cluster) as one:
        one.infer(_frame(one))
        first = node.pss_bytes()
        measured.first_bytes.append(first)
        with csdf_edge.open(cluster) as two:
            two.infer(_frame(two))
            measured.second_bytes.append(node.pss_bytes() - first)


def measure_beside(cluster: Path, seconds: float, measured: Measured) -> None:
    """The rate of one run for so many seconds, without and with loading beside it."""
    with csdf_edge.open(cluster) as one:
        stream = one.stream(itertools.repeat(_frame(one)))
        for _ in range(3):
            next(stream)
        measured.alone_hz.append(_rate_hz(stream, seconds))
        over = threading.Event()

        def load() -> None:
            while not over.is_set():
                with csdf_edge.open(cluster) as two:
                    two.infer(_frame(two))
                measured.loads += 1

        thread = threading.Thread(target=load)
        thread.start()
        try:
            measured.beside_hz.append(_rate_hz(stream, seconds))
        finally:
            over.set()
            while thread.is_alive():
                next(stream)


def _rate_hz(stream: Iterator[object], seconds: float) -> float:
    began_s, count = time.monotonic(), 0
    while (passed_s := time.monotonic() - began_s) < seconds:
        next(stream)
        count += 1
    return count / passed_s


def _frame(cluster: csdf_edge.LiveCluster) -> dict[str, np.ndarray]:
    return {name: np.zeros(info.shape, info.dtype) for name, info in cluster.inputs.items()}


def write_cluster(place: Path, model: str, address: str) -> Path:
    """A cluster of the one node."""
    file = place / "cluster.yaml"
    file.write_text(
        f"model: {model}\nnodes:\n  - {{name: board, address: '{address}', slots: 2}}\n"
        "strategy: sequential\nverify: false\n"
    )
    return file


def measure(options: argparse.Namespace, place: Path) -> tuple[Measured, int, int]:
    """All measurements, and the parent's resident and anonymous memory in bytes."""
    measured = Measured()
    with started(place / "cache", "--exit-idle", str(IDLE_S)) as node:
        cluster = write_cluster(place, options.model, node.address)
        with csdf_edge.open(cluster) as one:  # fills the cache
            one.infer(_frame(one))
        for _ in range(options.repetitions):
            await_no_agent(node)
            measured.asleep_s.append(welcome_s(node))
            measured.awake_s.append(welcome_s(node))
            measure_memory(cluster, node, measured)
            measure_beside(cluster, options.seconds, measured)
        status = Path(f"/proc/{node.pid}/status")
        return measured, _field(status, "VmRSS:"), _field(status, "RssAnon:")


def figures(measured: Measured, rss_bytes: int, anonymous_bytes: int) -> list[Figure]:
    """What is reported."""
    kept = [b / a for a, b in zip(measured.alone_hz, measured.beside_hz, strict=True)]
    return [
        Figure("parent, resident", rss_bytes / 1e6, "MB", at_most=PARENT_BYTES / 1e6),
        Figure("parent, anonymous", anonymous_bytes / 1e6, "MB"),
        _figure("an idle agent", measured.idle_bytes, "MB", 1e-6),
        _figure("an agent with the model", measured.first_bytes, "MB", 1e-6),
        _figure("a second agent with the same model adds", measured.second_bytes, "MB", 1e-6),
        _figure("Welcome of a slot that slept", measured.asleep_s, "s"),
        _figure("Welcome of a slot that was awake", measured.awake_s, "s"),
        _figure("rate alone", measured.alone_hz, "frames/s"),
        _figure("rate while another run loads and closes", measured.beside_hz, "frames/s"),
        _figure("rate kept", kept, "of that alone", note=f"{measured.loads} loads"),
    ]


def _figure(
    what: str, values: Sequence[float], unit: str, scale: float = 1.0, note: str = ""
) -> Figure:
    scaled = [value * scale for value in values]
    return Figure(
        what, statistics.median(scaled), unit, low=min(scaled), high=max(scaled), note=note
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the figures."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.slots", description=__doc__)
    parser.add_argument("--model", default="onnx-wheel:squeezenet")
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=6.0)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as place:
        found = figures(*measure(options, Path(place)))
    if options.json:
        settings = {key: value for key, value in vars(options).items() if key != "json"}
        print_json(report("slots", "Slots of a node", found, settings=settings))
        return 0
    for each in found:
        between = "" if each.low is None else f" ({each.low:.3g}–{each.high:.3g})"
        sys.stdout.write(f"{each.what}: {each.measured:.3g} {each.unit}{between} {each.note}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
