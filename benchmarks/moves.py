"""Measures the pause when layers move to other nodes while frames stream:

    python -m benchmarks.moves [--model onnx-wheel:squeezenet] [--slow 2] [--json]

Three agents run on this machine, and a program streams frames through them without an end. For the
cause `return`, two agents are killed and started again, and the run changes to a plan with one or
both of them (`rebalance`). For the cause `slow`, an agent is stopped by signals for a part of the
time, and the run changes to a plan that gives it less (`adapt`).

The pause is the time from the last result of one plan to the first result of the next. It contains
the latency of the first frame. The pause of the nodes goes from the halt to the moment in which all
nodes stream again. Every result must be that of its frame; lost or doubled, and wrong ones are
counted.

Pauses are longer than on as many machines, because the agents share this one's processors.
"""

from __future__ import annotations

import argparse
import os
import queue
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from benchmarks.report import Figure, print_json, report
from launcher.run import job
from launcher.run.live_cluster import live_cluster
from launcher.run.request import Request

NODES = ("left", "middle", "right")
KINDS = 8
"""Frames are of so many kinds in turn, and the first results represent the later ones."""

SHARE, CYCLE_S = 0.3, 0.02
"""The part of each cycle in which a slow agent runs."""

CALM_S = 4.0
WAIT_S = 100.0
MOST_PAUSE_S = 0.3


class Agents:
    """The agents, each a process of its own at an address of its own."""

    def __init__(self, cache: Path) -> None:
        self._cache = cache
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self.addresses: dict[str, str] = {}
        for name in NODES:
            with socket.create_server(("127.0.0.1", 0)) as probe:
                self.addresses[name] = f"tcp://127.0.0.1:{probe.getsockname()[1]}"
            self.start(name)

    def start(self, name: str) -> None:
        """Start an agent, with what it has prepared before."""
        command = [sys.executable, "-m", "nodes.cli", "--listen", self.addresses[name]]
        command += ["--name", name, "--cache", str(self._cache / name), "--log-level", "error"]
        self._processes[name] = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )

    def kill(self, name: str) -> None:
        """End an agent without a warning."""
        self._processes[name].kill()
        self._processes[name].wait()

    def slow_down(self, name: str, until: threading.Event) -> None:
        """Let an agent run for a part of the time only."""
        pid = self._processes[name].pid
        while not until.is_set():
            os.kill(pid, signal.SIGSTOP)
            until.wait(CYCLE_S * (1 - SHARE))
            os.kill(pid, signal.SIGCONT)
            until.wait(CYCLE_S * SHARE)

    def end(self) -> None:
        """End all agents."""
        for process in self._processes.values():
            process.send_signal(signal.SIGCONT)
            process.terminate()
            process.wait()


class Notices:
    """What the run says, for the thread that moves layers."""

    def __init__(self, *, aloud: bool) -> None:
        self._aloud = aloud
        self._said: queue.SimpleQueue[str] = queue.SimpleQueue()

    def __enter__(self) -> Notices:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def name_run(self, run: str) -> None:
        """See `launcher.progress.ProgressDisplay`."""

    def update(self, stage: str, done: int, total: int | None, note: str = "") -> None:
        """See `launcher.progress.ProgressDisplay`."""

    def say(self, text: str, level: str = "info", nodes: Sequence[str] = ()) -> None:  # noqa: ARG002
        """See `launcher.progress.ProgressDisplay`."""
        if self._aloud:
            sys.stderr.write(f"{time.monotonic():.3f} {text}\n")
        self._said.put(text)

    def wait_for(self, beginning: str) -> None:
        """Wait until it says something that begins so."""
        until_s = time.monotonic() + WAIT_S
        while True:
            try:
                text = self._said.get(timeout=max(0.0, until_s - time.monotonic()))
            except queue.Empty:
                raise SystemExit(f"nothing was said that begins with {beginning!r}") from None
            if text.startswith(beginning):
                return


@dataclass(frozen=True)
class Move:
    """One change of plans: its cause, the two pauses, and the median time between results."""

    cause: str
    pause_s: float
    nodes_s: float
    period_s: float


class Course:
    """Streams frames through one run, and moves its layers meanwhile."""

    def __init__(self, agents: Agents, notices: Notices, options: argparse.Namespace) -> None:
        self._agents, self._notices, self._options = agents, notices, options
        self._is_over = threading.Event()
        self._failed: list[BaseException] = []
        self._came_s: list[float] = []
        self._first: dict[int, Mapping[str, Any]] = {}
        self._sent = 0
        self.wrong = 0

    def run(self, cluster: Path) -> list[Move]:
        """Stream until all moves are made."""
        mover = threading.Thread(target=self._move)
        with job.open_live(Request(cluster), self._notices, most=8) as live:
            model = live_cluster(live, ExitStack())
            frames = _frames({n: (i.shape, i.dtype) for n, i in model.inputs.items()})
            mover.start()
            try:
                for outputs in model.stream(self._frames(frames)):
                    self._take(outputs)
            finally:
                self._is_over.set()
        mover.join()
        if self._failed:
            raise self._failed[0]
        self.lost = self._sent - len(self._came_s)
        came = self._came_s
        period_s = float(np.median(np.diff(came)))
        return [
            Move(past.cause, came[past.frame] - came[past.frame - 1], past.seconds, period_s)
            for past in live.run.ended_well().recoveries
            if past.cause in ("return", "slow")
        ]

    def _frames(self, kinds: Sequence[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
        while not self._is_over.is_set():
            self._sent += 1
            yield kinds[(self._sent - 1) % KINDS]

    def _take(self, outputs: Mapping[str, Any]) -> None:
        number = len(self._came_s)
        self._came_s.append(time.monotonic())
        first = self._first.setdefault(number % KINDS, outputs)
        alike = (np.allclose(first[n], outputs[n], rtol=1e-3, atol=1e-4) for n in first)
        self.wrong += not all(alike)

    def _move(self) -> None:
        try:
            for _ in range(self._options.slow):  # first, while every agent has a part
                self._slow_down()
            for number in range(self._options.returns):
                self._is_over.wait(CALM_S)
                lost = [name for name in NODES if name != NODES[number % len(NODES)]]
                for name in lost:
                    self._agents.kill(name)
                self._notices.wait_for("streaming again")
                for name in lost:
                    self._agents.start(name)
                self._notices.wait_for("changing to a plan")
                self._notices.wait_for("streaming again")
            self._is_over.wait(CALM_S)
        except BaseException as error:  # noqa: BLE001 - raised again by `run`
            self._failed.append(error)
        finally:
            self._is_over.set()

    def _slow_down(self) -> None:
        left_alone = threading.Event()
        slowing = threading.Thread(target=self._agents.slow_down, args=(NODES[1], left_alone))
        slowing.start()
        try:
            self._notices.wait_for("changing to a plan")
            self._notices.wait_for("streaming again")
        finally:
            left_alone.set()
            slowing.join()


def _frames(inputs: Mapping[str, tuple[tuple[int, ...], str]]) -> list[dict[str, Any]]:
    random = np.random.default_rng(0)
    return [
        {n: random.standard_normal(shape).astype(dtype) for n, (shape, dtype) in inputs.items()}
        for _ in range(KINDS)
    ]


def measure(options: argparse.Namespace) -> tuple[list[Move], Course]:
    """Make all moves once."""
    with tempfile.TemporaryDirectory(prefix="moves-") as place:
        agents = Agents(Path(place) / "cache")
        try:
            data = {
                "model": options.model,
                "nodes": [{"name": n, "address": a} for n, a in agents.addresses.items()],
                "strategy": "sequential",
                "recovery": {"rebalance": "auto", "adapt": bool(options.slow)},
            }
            cluster = Path(place) / "cluster.yaml"
            cluster.write_text(yaml.safe_dump(data), encoding="utf-8")
            course = Course(agents, Notices(aloud=options.verbose), options)
            return course.run(cluster), course
        finally:
            agents.end()


def figures(moves: Sequence[Move], course: Course) -> list[Figure]:
    """What stands in the table of results."""
    found = []
    for cause in dict.fromkeys(move.cause for move in moves):
        own = [move for move in moves if move.cause == cause]
        for what, values in (
            (f"pause of results, cause {cause}", [move.pause_s for move in own]),
            (f"pause of the nodes, cause {cause}", [move.nodes_s for move in own]),
        ):
            low, high = round(min(values), 3), round(max(values), 3)
            middle = round(statistics.median(values), 3)
            note = f"{len(own)} moves"
            found.append(
                Figure(what, middle, "s", at_most=MOST_PAUSE_S, low=low, high=high, note=note)
            )
    period_ms = round(moves[0].period_s * 1e3, 1) if moves else 0.0
    return [
        *found,
        Figure("median time between results", period_ms, "ms"),
        Figure("frames lost or doubled", course.lost, at_most=0),
        Figure("frames wrong", course.wrong, at_most=0),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="onnx-wheel:squeezenet")
    parser.add_argument("--returns", type=int, default=3, help="times that two agents are killed")
    parser.add_argument("--slow", type=int, default=1, help="times that an agent is slowed down")
    parser.add_argument("--verbose", action="store_true", help="write what the run says")
    parser.add_argument("--json", action="store_true", help="one JSON object and nothing else")
    options = parser.parse_args()
    moves, course = measure(options)
    found = figures(moves, course)
    if options.json:
        settings = {"model": options.model, "returns": options.returns, "slow": options.slow}
        data = {"moves": [asdict(move) for move in moves]}
        title = "Layers move to other nodes while frames stream"
        print_json(report("moves", title, found, settings=settings, data=data))
        return
    for one in found:
        print(f"{one.what}: {one.measured} {one.unit} ({one.low} to {one.high})")


if __name__ == "__main__":
    main()
