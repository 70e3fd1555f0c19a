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
import resource
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.processes import children, times_s
from benchmarks.report import Figure, arguments, report, show
from benchmarks.service.server import Up, answers, frames, write_cluster, write_version
from benchmarks.serving.clients import Answer, Asked, Clients, quantile_s

FRAMES, VERSIONS, NODES = 100, (1, 2), 2
PAUSE_S = 0.1
CHANGES = {
    "apply": "while another version is applied",
    "rollback": "while it is rolled back",
    "add": "while a second model is added",
    "remove": "while it is removed",
}


class Run:
    """One service, its clients, and what was measured."""

    def __init__(self, folder: Path, calm_s: float) -> None:
        self.folder, self.calm_s = folder, calm_s
        self.cluster = folder / "cluster.yaml"
        self.spans: dict[str, list[tuple[float, float]]] = {}
        for version in VERSIONS:
            write_version(folder, version)

    def write(self, *models: tuple[str, int]) -> None:
        """Write the cluster.yaml with these models."""
        write_cluster(self.folder, *models, count=NODES)

    def start(self, cluster: Path | None = None) -> Up:
        """Start the service; return once its first model serves."""
        up = Up(self.folder, cluster)
        up.read_until("of digits serves")
        return up

    def clients(self, up: Up, each: int = 4) -> Clients:
        """Clients of the model `digits`."""
        wanted = {v: answers(self.folder / f"digits{v}.onnx", FRAMES) for v in VERSIONS}
        addresses = [("http", up.http), ("grpc", up.grpc)] * each
        return Clients(addresses, "digits", frames(FRAMES), wanted, pause_s=PAUSE_S)

    async def change(self, what: str, up: Up, *command: str) -> None:
        """Carry out a command and note how long it took."""
        begin_s = time.monotonic()
        await asyncio.to_thread(self.carry_out, up, *command)
        self.spans.setdefault(what, []).append((begin_s, time.monotonic()))
        await asyncio.sleep(1.0)

    def carry_out(self, up: Up, *command: str) -> None:
        """Carry out a command, which must succeed."""
        code, answer = up.command(*command)
        if code:
            raise SystemExit(f"{command[0]}: {answer}")

    def unloaded_s(self, up: Up) -> tuple[float, ...]:
        """Apply another version and roll it back without clients; return the processor seconds of
        one change: of the commands, of the server, and of the processes that it starts."""
        changes = []
        for command in (("apply", str(self.cluster)), ("rollback",)) * 2:
            self.write(("digits", 2))
            before = processor_s(up.process.pid)
            self.carry_out(up, *command)
            after = processor_s(up.process.pid)
            changes.append([b - a for a, b in zip(before, after, strict=True)])
        return tuple(median(values) for values in zip(*changes, strict=True))

    async def measure(self, up: Up, rounds: int) -> Asked:
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
        return asking.asked

    def during(self, asked: Asked, *what: str) -> list[Answer]:
        """The answers to what was sent while these were under way."""
        return [a for each in what for span in self.spans[each] for a in asked.between(*span)]

    def time_to_return_s(self, up: Up) -> float:
        """Kill the service, start it again, and return the time to its first answer."""
        killed_s = time.monotonic()
        up.kill()
        again = self.start()

        async def first_s() -> float:
            async with self.clients(again, each=1) as asking:
                while (came_s := asking.asked.first_after(killed_s)) is None:
                    await asyncio.sleep(0.01)
            return came_s

        came_s = asyncio.run(first_s())
        if again.end():
            raise SystemExit("the service did not end well")
        return came_s - killed_s


def processor_s(server: int) -> tuple[float, float, float]:
    """The processor seconds so far: of the commands, which are the processes that this one has
    waited for, of the server itself, and of the processes that it starts."""
    waited = resource.getrusage(resource.RUSAGE_CHILDREN)
    own_s, ended_s = times_s(server)
    running_s = sum(sum(times_s(child)) for child in children(server))
    return waited.ru_utime + waited.ru_stime, own_s, ended_s + running_s


def measure(options: argparse.Namespace) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        run = Run(Path(folder), options.seconds)
        run.write(("digits", 1))
        up = run.start(run.cluster)
        commands_s, server_s, children_s = run.unloaded_s(up)
        asked = asyncio.run(run.measure(up, options.rounds))
        return_s = run.time_to_return_s(up)
    before = run.during(asked, "before")
    base_s = quantile_s(before, 0.99)
    failed = asked.errors.total() + asked.refusals
    during_s = quantile_s(run.during(asked, *CHANGES), 0.99)
    figures = [
        Figure("requests that failed", failed, at_most=0),
        Figure("answers that are not those of the version that they name", asked.wrong, at_most=0),
        Figure("requests answered", len(asked.answers)),
        Figure("p99 before any change", round(base_s * 1e3, 2), "ms"),
        Figure("median before any change", round(quantile_s(before, 0.5) * 1e3, 2), "ms"),
        *(_slowed(run, asked, what, base_s) for what in CHANGES),
        Figure("p99 while anything is changed, relative to before", round(during_s / base_s, 2),
               "times", at_most=2.0),
        Figure("processor time of a change without load: the command", round(commands_s, 2), "s"),
        Figure("of the server, which plans and checks", round(server_s, 2), "s"),
        Figure("of agents and the whole model", round(children_s, 2), "s"),
        Figure("from kill -9 to the next answer", round(return_s, 2), "s", at_most=10.0),
    ]  # fmt: skip
    settings = {"clients": 8, "nodes": NODES, "pause": f"{PAUSE_S} s", "rounds": options.rounds}
    return report(
        "service", "A service under load: versions and models change", figures, settings=settings
    )


def _slowed(run: Run, asked: Asked, what: str, base_s: float) -> Figure:
    """The latency while a change is under way."""
    took_s = median(end_s - begin_s for begin_s, end_s in run.spans[what])
    p99_s = quantile_s(run.during(asked, what), 0.99)
    note = f"{p99_s / base_s:.2f} times that before; a change took {took_s:.1f} s"
    return Figure(f"p99 {CHANGES[what]}", round(p99_s * 1e3, 2), "ms", note=note)


def main() -> None:
    parser = arguments("benchmarks.service", __doc__)
    parser.add_argument("--seconds", type=float, default=20.0, help="before the first change")
    parser.add_argument("--rounds", type=int, default=5, help="of all four changes")
    options = parser.parse_args()
    show(measure(options), as_json=options.json)


if __name__ == "__main__":
    main()
