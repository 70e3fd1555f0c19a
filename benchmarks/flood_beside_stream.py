"""A host without keys attacks every port while frames stream and launchers come and go.

    python -m benchmarks.flood_beside_stream [--minutes 30] [--connections 256] [--json]

Four guarded agents on loopback. Two compute a stream without end; to the other two comes one
launcher after the other, each a process of its own with a few frames. Processes without keys hold
`--connections` silent connections to each port and open each anew as soon as it is closed
(`benchmarks.chaos.keyless`).

Quiet times and floods alternate. Each round measures the stream's rate in two windows of
`WINDOW_S`, one quiet and one flooded, without other launchers, and divides the second by the first.
The benchmark reports the median over all rounds. For the rest of each flood the other two agents
are flooded too, and launchers come to them; all must succeed. The agents' resident memory is read
after `WARM_S` of streaming and after every flood. `--minutes` is the time of floods in all; quiet
times come on top. All processes share this machine's processors, so what the attacker takes counts
against the stream.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.report import Figure, print_json, report
from benchmarks.two_nodes import OneFrame, plan_for
from cnn import read
from launcher.commands.make_keys import make_keys
from launcher.errors import LauncherError
from launcher.run.access import Access
from launcher.run.frame_list import listed
from launcher.run.runner import run
from launcher.run.runtime import Node, RunOptions, SubnetFiles

NAMES = ("cpu0", "cpu1")
"""The nodes of both clusters, as the plan calls them."""

STREAMED, LAUNCHED = "streamed", "launched"

WARM_S, WINDOW_S, FLOOD_S, SETTLE_S = 5.0, 10.0, 60.0, 1.0
LAUNCHED_FRAMES = 5
LEAST_OF_RATE, MOST_OF_MEMORY = 0.95, 1.2


@dataclass
class Measured:
    """What was counted: rates (frames/s) of quiet and flooded windows in pairs, launches and why
    some failed, the agents' memory before the first flood and the most after any (bytes)."""

    quiet: list[float] = field(default_factory=list)
    flooded: list[float] = field(default_factory=list)
    launches: int = 0
    failed: list[str] = field(default_factory=list)
    opened: int = 0
    before_bytes: list[int] = field(default_factory=list)
    most_bytes: list[int] = field(default_factory=list)

    @property
    def shares(self) -> list[float]:
        """Of each round, what a flood leaves of the stream's rate."""
        return [
            with_it / without for without, with_it in zip(self.quiet, self.flooded, strict=True)
        ]

    @property
    def growth(self) -> float:
        """The most memory of an agent after any flood ÷ that before."""
        return max(m / b for m, b in zip(self.most_bytes, self.before_bytes, strict=True))


def stream(place: Path, model: str, addresses: list[str], count: int) -> None:
    """Run `count` frames on two guarded agents; a byte on standard output for each result."""
    read_model = read(model)
    plan = plan_for(read_model.network, read_model.digest, "sequential")
    subnets = {}
    for phase in plan.phases:
        cut = read_model.cut(phase.layers, phase.inputs, phase.outputs, place / "subnets")
        subnets[phase.name] = SubnetFiles(cut.graph, cut.weights)
    access = Access(place / "keys", is_named=True)
    nodes = tuple(
        Node(name, address, access=access) for name, address in zip(NAMES, addresses, strict=True)
    )
    frames = OneFrame(read_model.network, count)

    def take(_: int, __: object) -> None:
        os.write(1, b".")

    try:
        run(plan, nodes, subnets, listed(frames, take), lambda _: None, RunOptions())
    except LauncherError as error:
        sys.exit(str(error))


class Agents:
    """Two guarded agents on loopback, each with two ports side by side."""

    def __init__(self, place: Path, cluster: str) -> None:
        self.addresses: list[str] = []
        self.processes: list[subprocess.Popen[bytes]] = []
        for name in NAMES:
            port = _two_ports()
            self.addresses.append(f"tcp://127.0.0.1:{port}")
            command = [sys.executable, "-m", "nodes.cli", "--listen", self.addresses[-1]]
            command += [
                "--data",
                f"tcp://127.0.0.1:{port + 1}",
                "--keys",
                str(place / "keys" / name),
            ]
            command += ["--cache", str(place / cluster / name), "--log-level", "error"]
            self.processes.append(subprocess.Popen(command, stdin=subprocess.DEVNULL))

    @property
    def ports(self) -> list[str]:
        """The addresses of all of them."""
        found = []
        for address in self.addresses:
            head, _, port = address.rpartition(":")
            found += [address, f"{head}:{int(port) + 1}"]
        return found

    def rss_bytes(self) -> list[int]:
        """Of each, now."""
        pages = [
            int(Path(f"/proc/{one.pid}/statm").read_text("ascii").split()[1])
            for one in self.processes
        ]
        return [count * os.sysconf("SC_PAGE_SIZE") for count in pages]

    def end(self) -> None:
        for one in self.processes:
            one.send_signal(signal.SIGTERM)
        for one in self.processes:
            one.wait()


def _two_ports() -> int:
    """A free port whose successor is free too."""
    while True:
        with socket.create_server(("127.0.0.1", 0)) as first, contextlib.suppress(OSError):
            port: int = first.getsockname()[1]
            with socket.create_server(("127.0.0.1", port + 1)):
                return port


class Counter:
    """Counts the results of a stream, in a thread, for as long as it runs."""

    def __init__(self, stream: subprocess.Popen[bytes]) -> None:
        self.results = 0
        self._stream = stream
        threading.Thread(target=self._count, daemon=True).start()

    def _count(self) -> None:
        assert self._stream.stdout is not None
        while some := os.read(self._stream.stdout.fileno(), 4096):
            self.results += len(some)

    def rate(self, seconds: float) -> float:
        """Frames per second over the next so many."""
        began, began_s = self.results, time.monotonic()
        time.sleep(seconds)
        rate = (self.results - began) / (time.monotonic() - began_s)
        if not rate:
            sys.exit("the stream has stopped")
        return rate


def _streaming(options: argparse.Namespace, place: Path, to: Agents, frames: int) -> list[str]:
    command = [sys.executable, "-m", "benchmarks.flood_beside_stream", "--model", options.model]
    return [*command, "--stream", str(place), str(frames), *to.addresses]


@contextlib.contextmanager
def _flood(ports: list[str], connections: int, found: Measured) -> Iterator[None]:
    command = [sys.executable, "-m", "benchmarks.chaos.keyless", "--connections", str(connections)]
    flood = subprocess.Popen([*command, *ports], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert flood.stdout is not None
        flood.stdout.readline()  # every connection has been opened
        yield
    finally:
        count, _ = flood.communicate(b"stop")
        found.opened += int(count or 0)


def _launch(command: list[str], found: Measured) -> None:
    ended = subprocess.run(command, capture_output=True, check=False)
    found.launches += 1
    if ended.returncode or len(ended.stdout) != LAUNCHED_FRAMES:
        found.failed.append(ended.stderr.decode(errors="replace").strip())


def measure(options: argparse.Namespace, place: Path) -> Measured:
    """Alternate quiet times and floods."""
    make_keys(place / "keys", dict.fromkeys(NAMES))
    found = Measured()
    with contextlib.ExitStack() as stack:
        clusters = {cluster: Agents(place, cluster) for cluster in (STREAMED, LAUNCHED)}
        for agents in clusters.values():
            stack.callback(agents.end)
        endless = _streaming(options, place, clusters[STREAMED], 10**9)
        streaming = subprocess.Popen(endless, stdout=subprocess.PIPE)
        stack.callback(streaming.wait)
        stack.callback(streaming.kill)
        counter = Counter(streaming)
        launch = _streaming(options, place, clusters[LAUNCHED], LAUNCHED_FRAMES)
        subprocess.run(launch, stdout=subprocess.DEVNULL, check=True)
        while not counter.results:
            time.sleep(0.1)
        time.sleep(WARM_S)
        every = list(clusters.values())
        found.before_bytes = [size for agents in every for size in agents.rss_bytes()]
        found.most_bytes = found.before_bytes
        until_s = 60 * options.minutes
        while FLOOD_S * len(found.flooded) < until_s:
            time.sleep(SETTLE_S)
            found.quiet.append(counter.rate(WINDOW_S))
            with _flood(clusters[STREAMED].ports, options.connections, found):
                ends_s = time.monotonic() + FLOOD_S
                time.sleep(SETTLE_S)
                found.flooded.append(counter.rate(WINDOW_S))
                with _flood(clusters[LAUNCHED].ports, options.connections, found):
                    while time.monotonic() < ends_s:
                        _launch(launch, found)
            now = [size for agents in every for size in agents.rss_bytes()]
            found.most_bytes = [max(pair) for pair in zip(found.most_bytes, now, strict=True)]
            print(
                f"round {len(found.flooded)}: {found.quiet[-1]:.1f} frames/s quiet, "
                f"{found.flooded[-1]:.1f} flooded, {len(found.failed)} of {found.launches} "
                f"launches failed, {[round(size / 1e6) for size in now]} MB",
                file=sys.stderr,
                flush=True,
            )
    return found


def figures(found: Measured) -> list[Figure]:
    """For the table of results."""
    shares = found.shares
    return [
        Figure("time of floods", FLOOD_S * len(shares) / 60, "min"),
        Figure("keyless connections opened", found.opened),
        Figure(
            "stream's rate with a flood ÷ without", round(statistics.median(shares), 3),
            at_least=LEAST_OF_RATE, low=round(min(shares), 3), high=round(max(shares), 3),
            note=f"{statistics.median(found.quiet):.1f} frames/s without",
        ),
        Figure("launches beside the flood", found.launches, at_least=1),
        Figure(
            "launches that failed", len(found.failed), at_most=0, note="; ".join(found.failed[:1])
        ),
        Figure(
            "agents' memory after floods ÷ before", round(found.growth, 3), at_most=MOST_OF_MEMORY,
            note=f"{max(found.most_bytes) / 1e6:.0f} MB at most",
        ),
    ]  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.flood_beside_stream",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--model", default="onnx-wheel:squeezenet")
    parser.add_argument("--minutes", type=float, default=30.0, help="of floods (%(default)g)")
    parser.add_argument("--connections", type=int, default=256, help="to each port (%(default)s)")
    parser.add_argument("--json", action="store_true", help="one JSON object and nothing else")
    parser.add_argument("--stream", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.stream:
        place, count, *addresses = options.stream
        stream(Path(place), options.model, addresses, int(count))
        return 0
    with tempfile.TemporaryDirectory(prefix="flood-") as place:
        found = measure(options, Path(place))
    rows = figures(found)
    if options.json:
        settings = {
            "minutes": options.minutes, "connections": options.connections, "model": options.model,
        }  # fmt: skip
        title = "A flood of keyless connections beside a stream"
        rounds = {"quiet": found.quiet, "flooded": found.flooded, "failed": found.failed}
        print_json(report("flood", title, rows, settings=settings, data=rounds))
    else:
        for row in rows:
            print(f"{row.what:<40}{row.measured:>10} {row.unit:<4}{row.note}".rstrip())
    return int(any(row.holds is False for row in rows))


if __name__ == "__main__":
    sys.exit(main())
