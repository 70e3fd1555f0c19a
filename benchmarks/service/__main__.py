"""Measures what clients of a service notice of its changes: `python -m benchmarks.service --json`.

Eight of Triton's clients, four over HTTP and four over gRPC, ask the digits network all the time,
each with a pause behind every answer, so that the machine has processors left for changes. The
latencies are those of requests that were sent while a change was under way, beside those before
any. Then the server is killed and started again at once. Before the clients begin, one version
after the other is applied, for the processor time that a change takes without any load.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from dataclasses import astuple
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.report import Figure, arguments, report, show
from benchmarks.service.load import Answer, Clients, Load, quantile_s
from benchmarks.service.processors import ProcessorTime, processor_time
from benchmarks.service.server import Up, images, whole, write_cluster, write_version

FRAMES = 100
VERSIONS = (1, 2)


class Run:
    """One service, its clients, and what was measured."""

    def __init__(self, folder: Path, *, nodes: int, calm_s: float, pause_s: float) -> None:
        self.folder = folder
        self.cluster = folder / "cluster.yaml"
        self.nodes = nodes
        self.calm_s = calm_s
        self.pause_s = pause_s
        self.spans: dict[str, list[tuple[float, float]]] = {}
        for version in VERSIONS:
            write_version(folder, version)

    def write(self, *models: tuple[str, int]) -> None:
        """Write the cluster.yaml with these models."""
        write_cluster(self.folder, *models, count=self.nodes)

    def start(self, cluster: Path | None = None) -> Up:
        """Start the service; return once its first model serves."""
        up = Up(self.folder, cluster)
        up.read_until("of digits serves")
        return up

    def clients(self, up: Up, each: int = 4) -> Clients:
        """Clients of the model `digits`."""
        wanted = {v: whole(self.folder / f"digits{v}.onnx", FRAMES) for v in VERSIONS}
        addresses = {"http": up.http, "grpc": up.grpc}
        frames = list(images()[:FRAMES])
        return Clients(addresses, "digits", frames, wanted, each=each, pause_s=self.pause_s)

    async def change(self, what: str, up: Up, *command: str) -> None:
        """Carry out a command and note how long it took."""
        begin_s = time.monotonic()
        code, answer = await asyncio.to_thread(up.command, *command)
        if code:
            raise SystemExit(f"{what}: {answer}")
        self.spans.setdefault(what, []).append((begin_s, time.monotonic()))
        await asyncio.sleep(1.0)

    def unloaded(self, up: Up) -> ProcessorTime:
        """Apply another version and roll it back without clients; return what one change took."""
        changes: list[ProcessorTime] = []
        for command in (("apply", str(self.cluster)), ("rollback",)) * 2:
            self.write(("digits", 2))
            before = processor_time(up.process.pid)
            code, answer = up.command(*command)
            if code:
                raise SystemExit(f"{command[0]}: {answer}")
            changes.append(processor_time(up.process.pid) - before)
        middle = [median(values) for values in zip(*map(astuple, changes), strict=True)]
        return ProcessorTime(*middle)

    async def measure(self, up: Up, rounds: int) -> Load:
        """Make all changes again and again while clients ask."""
        async with self.clients(up) as asking:
            await asyncio.sleep(self.calm_s / 4)  # connections are made
            begin_s = time.monotonic()
            await asyncio.sleep(self.calm_s)
            self.spans["before"] = [(begin_s, time.monotonic())]
            for _ in range(rounds):
                self.write(("digits", 2))
                await self.change("apply", up, "apply", str(self.cluster))
                await self.change("rollback", up, "rollback")
                self.write(("digits", 1), ("other", 2))
                await self.change("add", up, "apply", str(self.cluster))
                self.write(("digits", 1))
                await self.change("remove", up, "apply", str(self.cluster))
        return asking.load

    def during(self, load: Load, what: str) -> list[Answer]:
        """The answers to what was sent while that was under way."""
        return [answer for span in self.spans[what] for answer in load.between(*span)]

    def time_to_return_s(self, up: Up) -> float:
        """Kill the service, start it again, and return the time to its first answer."""
        killed_s = time.monotonic()
        up.kill()
        again = self.start()

        async def first() -> Answer:
            async with self.clients(again, each=1) as asking:
                while not asking.load.answers:
                    await asyncio.sleep(0.01)
            return min(asking.load.answers, key=lambda a: a.sent_s + a.took_s)

        answer = asyncio.run(first())
        if again.end():
            raise SystemExit("the service did not end well")
        return answer.sent_s + answer.took_s - killed_s


def _s(seconds: float) -> float:
    return round(seconds, 2)


def measure(options: argparse.Namespace) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        run = Run(
            Path(folder), nodes=options.nodes, calm_s=options.seconds, pause_s=options.pause / 1000
        )
        run.write(("digits", 1))
        up = run.start(run.cluster)
        taken = run.unloaded(up)
        load = asyncio.run(run.measure(up, options.rounds))
        return_s = run.time_to_return_s(up)
    before = run.during(load, "before")
    base_s = quantile_s(before, 0.99)
    names = {
        "apply": "while another version is applied",
        "rollback": "while it is rolled back",
        "add": "while a second model is added",
        "remove": "while it is removed",
    }
    figures = [
        Figure("requests that failed", len(load.errors), at_most=0),
        Figure("answers that are not those of the version that they name", load.wrong, at_most=0),
        Figure("requests answered", len(load.answers)),
        Figure("p99 before any change", round(base_s * 1e3, 2), "ms"),
        Figure("median before any change", round(quantile_s(before, 0.5) * 1e3, 2), "ms"),
    ]
    for key, what in names.items():
        during = run.during(load, key)
        took_s = median(end_s - begin_s for begin_s, end_s in run.spans[key])
        p99_s = quantile_s(during, 0.99)
        figures.append(
            Figure(
                f"p99 {what}",
                round(p99_s * 1e3, 2),
                "ms",
                note=f"{p99_s / base_s:.2f} times that before; a change took {took_s:.1f} s",
            )
        )
    during = [answer for key in names for answer in run.during(load, key)]
    figures += [
        Figure(
            "p99 while anything is changed, relative to before",
            round(quantile_s(during, 0.99) / base_s, 2),
            "times",
            at_most=2.0,
        ),
        Figure("processor time of a change without load: the command", _s(taken.commands_s), "s"),
        Figure("of the server, which plans and checks", _s(taken.server_s), "s"),
        Figure("of agents and the whole model", _s(taken.children_s), "s"),
        Figure("from kill -9 to the next answer", round(return_s, 2), "s", at_most=10.0),
    ]
    settings = {
        "clients": 8,
        "nodes": options.nodes,
        "pause": f"{options.pause} ms",
        "rounds": options.rounds,
    }
    return report(
        "service", "A service under load: versions and models change", figures, settings=settings
    )


def main() -> None:
    parser = arguments("benchmarks.service", __doc__)
    parser.add_argument("--nodes", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=20.0, help="before the first change")
    parser.add_argument("--rounds", type=int, default=5, help="of all four changes")
    parser.add_argument("--pause", type=float, default=100.0, help="ms between two of a client")
    options = parser.parse_args()
    show(measure(options), as_json=options.json)


if __name__ == "__main__":
    main()
