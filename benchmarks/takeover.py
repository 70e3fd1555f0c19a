"""Kills a launcher while frames stream, and measures how soon the next one streams again.

    python -m benchmarks.takeover [--model onnx-wheel:resnet50] [--repetitions 5] [--json]

Two agents run independently on this machine. In each repetition a first launcher, a process of its
own, streams frames until it is killed; then a second one runs the same plan at once. `greeted` is
when all agents had answered the second one, `deployed` when all had loaded their parts and frames
began to stream, `first_result` when the first result arrived: all in seconds from the call of
`run`. The agents have the subnets already.
"""

from __future__ import annotations

import argparse
import contextlib
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.report import Figure, print_json, report
from benchmarks.two_nodes import OneFrame, plan_for
from cnn import Model, read
from launcher.run.frame_list import listed
from launcher.run.runner import run
from launcher.run.runtime import Node, RunOptions, SubnetFiles, Update

FRAMES = 6
"""How many the second launcher runs."""

SOON_S = 3.0
"""Until the first result, as for any second deployment of the same subnets."""

WHAT = {
    "greeted_s": "agents answer",
    "deployed_s": "frames stream again",
    "first_result_s": "first result",
}

TOLD = "streaming"
"""What the first one writes once it has results."""


@dataclass(frozen=True)
class Measured:
    """One takeover, in seconds; see the module's docstring."""

    greeted_s: float
    deployed_s: float
    first_result_s: float


@contextlib.contextmanager
def agents(names: tuple[str, ...], cache: Path) -> Iterator[dict[str, str]]:
    """An agent per name on a port of this machine; name → address."""
    processes, addresses = [], {}
    try:
        for name in names:
            with socket.create_server(("127.0.0.1", 0)) as probe:
                addresses[name] = f"tcp://127.0.0.1:{probe.getsockname()[1]}"
            command = [sys.executable, "-m", "nodes.cli", "--listen", addresses[name]]
            command += ["--name", name, "--cache", str(cache / name), "--log-level", "error"]
            processes.append(
                subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            )
        yield addresses
    finally:
        for process in processes:
            process.send_signal(signal.SIGTERM)
            process.wait()


class Cluster:
    """The model cut once over the nodes `cpu0` and `cpu1` at these addresses."""

    def __init__(self, model: Model, place: Path, addresses: dict[str, str]) -> None:
        self.model = model
        self.plan = plan_for(model.network, model.digest, "sequential")
        self.nodes = tuple(Node(name, address) for name, address in addresses.items())
        self.subnets = {}
        for phase in self.plan.phases:
            cut = model.cut(phase.layers, phase.inputs, phase.outputs, place / "subnets")
            self.subnets[phase.name] = SubnetFiles(cut.graph, cut.weights)

    def stream_until_killed(self) -> None:
        """Run for ever, and say so once there are results."""

        def take(frame: int, _: object) -> None:
            if frame == FRAMES:
                sys.stdout.write(f"{TOLD}\n")
                sys.stdout.flush()

        frames = OneFrame(self.model.network, 10**9)
        run(self.plan, self.nodes, self.subnets, listed(frames, take), lambda _: None, RunOptions())

    def stream_again(self) -> Measured:
        """Run a few frames, and measure."""
        began_s = time.monotonic()
        at_s: dict[str, float] = {}

        def note(update: Update) -> None:
            if update.stage != "connecting" or update.done == update.total:
                at_s.setdefault(update.stage, time.monotonic() - began_s)

        frames = listed(OneFrame(self.model.network, FRAMES), lambda _, __: None)
        result = run(self.plan, self.nodes, self.subnets, frames, note, RunOptions())
        return Measured(at_s["connecting"], at_s["streaming"], result.first_result_s)


def killed_while_streaming(options: argparse.Namespace, place: Path, where: dict[str, str]) -> None:
    """A first launcher's life, from its start to SIGKILL in the middle of a frame."""
    command = [sys.executable, "-m", "benchmarks.takeover", "--model", options.model]
    command += ["--first", str(place), *where.values()]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as first:
        try:
            if first.stdout is None or first.stdout.readline().strip() != TOLD:
                sys.exit("the first launcher got no result")
        finally:
            first.kill()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="onnx-wheel:resnet50")
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--json", action="store_true", help="one JSON object and nothing else")
    parser.add_argument("--first", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    model = read(options.model)
    names = ("cpu0", "cpu1")
    if options.first:
        place, *addresses = options.first
        Cluster(model, Path(place), dict(zip(names, addresses, strict=True))).stream_until_killed()
        return
    found = []
    with (
        tempfile.TemporaryDirectory(prefix="takeover-") as place,
        agents(names, Path(place)) as where,
    ):
        cluster = Cluster(model, Path(place), where)
        for _ in range(options.repetitions):
            killed_while_streaming(options, Path(place), where)
            found.append(cluster.stream_again())
            if not options.json:
                times_text = ", ".join(f"{name} {s:.2f}" for name, s in asdict(found[-1]).items())
                print(times_text, flush=True)
    every = {name: [getattr(one, name) for one in found] for name in asdict(found[0])}
    if options.json:
        figures = [
            Figure(
                f"{WHAT[name]}, from the second launcher's start",
                statistics.median(values),
                "s",
                at_most=SOON_S if name == "first_result_s" else None,
                low=min(values),
                high=max(values),
            )
            for name, values in every.items()
        ]
        settings = {"model": options.model, "repetitions": options.repetitions}
        title = "A launcher that is killed, and the next one"
        print_json(report("takeover", title, figures, settings=settings))
    else:
        for name, values in every.items():
            print(f"{name}: median {statistics.median(values):.2f} s, worst {max(values):.2f} s")


if __name__ == "__main__":
    main()
