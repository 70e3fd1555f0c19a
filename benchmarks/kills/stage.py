"""Sets up what is struck: a service, three agents with slots, a long run with a journal, clients
and an operator; strikes them at random; and takes all of it down again."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from benchmarks.daemon import Daemon
from benchmarks.kills.draws import AGENTS, HUNTED, SERVER, STREAM, candidates, draw_target
from benchmarks.kills.family import Family, adopt_orphans
from benchmarks.kills.kept_stream import KeptStream
from benchmarks.kills.operating import Operator, Versions
from benchmarks.processes import command_of, sizes
from benchmarks.service.server import LAUNCH, answers, frames, write_cluster, write_version
from benchmarks.serving.clients import PAUSE_S, Asked, Clients
from benchmarks.serving.server import DIGITS
from launcher.errors import LauncherError
from launcher.service.control import ServiceClient
from launcher.service.store import DATABASE, DRAFT, FILES, LOCK, open_state
from launcher.service.up import add_file

FRAMES = 100
RATE = 10.0
"""Frames per second of the long run."""

SLOTS = 5
WATCHDOG_S = 5.0
"""As in the unit that `launch up --install` writes."""

HUNT_S = 12.0
"""How long a process that lives for a moment is waited for, before another is struck."""

START_S, SETTLED_S = 90.0, 150.0
"""How long the service may take at first, and after the last strike with all that was applied."""

LOOK_S = 0.2

CHANGE_EVERY_S = 12.0
"""The mean time between two changes."""

MOST_REST_S = 4.0
"""The longest time for which an agent stays down."""

KEPT = (DATABASE, LOCK, FILES)
"""What the folder of the service's state has once the service has ended."""

ORPHANS_S = 15.0
"""How long what a killed process has left may go on."""


@dataclass(frozen=True)
class Strike:
    """What was done to which process, and when on the monotonic clock."""

    at_s: float
    kind: str
    stop_s: float | None
    command: str

    def __str__(self) -> str:
        how = "killed" if self.stop_s is None else f"stopped for {self.stop_s:g} s"
        return f"{self.kind} {how}"


class Stage:
    """All processes; use it in a `with` statement, which ends them."""

    def __init__(self, folder: Path, chance: random.Random, say: Callable[[str], None]) -> None:
        self.folder, self.chance, self.say = folder, chance, say
        self.strikes: list[Strike] = []
        self.disturbed_s: list[float] = []
        """When something was struck, went on, or came back after all agents were away."""
        self.most_bytes: dict[str, int] = {}
        self.digits, self.other = Asked(), Asked()
        self.kept = KeptStream(folder / "kept")
        self.left: list[str] = []
        """Processes and files that are still there after the end."""
        self.codes: dict[str, int] = {}
        self.wanted: dict[int, list[dict[str, Any]]] = {}
        self.operator = Operator(folder, self._write, self._learn, random.Random(chance.random()))
        self._pace = random.Random(chance.random())
        self._frames = frames(FRAMES)
        self._ports = dict(zip(("http", "grpc", *AGENTS), _free_ports(), strict=True))
        self._resuming: set[asyncio.Task[None]] = set()
        self._were_away = False

    # ------------------------------------------------------------ up and down

    def __enter__(self) -> Stage:
        adopt_orphans()
        for name in ("tmp", "home"):
            (self.folder / name).mkdir()
        write_version(self.folder, 1)
        self._learn(1)
        daemons = [self._agent(name) for name in AGENTS]
        path = self._write({"digits": "1"})
        daemons.append(self._server(path))
        daemons.append(self._stream())
        self.family = Family(daemons)
        return self

    def __exit__(self, *_: object) -> None:
        for daemon in reversed(self.family.daemons):  # agents last: others hold them
            self.codes[daemon.name] = daemon.end()
        until_s = time.monotonic() + ORPHANS_S
        while self.family.look() and time.monotonic() < until_s:
            time.sleep(LOOK_S)
        self.left = [f"process {pid}: {' '.join(command_of(pid))}" for pid in self.family.look()]
        for pid in self.family.look():
            os.kill(pid, signal.SIGKILL)
        self.left += [f"file {path.name}" for path in (self.folder / "tmp").iterdir()]
        state = self.operator.state
        self.left += [f"file {path.name}" for path in state.iterdir() if path.name not in KEPT]
        self.left += [f"file {path.name}" for path in (state / FILES).glob(f"{DRAFT}*")]

    def _daemon(self, name: str, command: list[str], **given: Any) -> Daemon:
        environment = {
            "TMPDIR": str(self.folder / "tmp"),
            "HOME": str(self.folder / "home"),
            "XDG_CACHE_HOME": str(self.folder / "home" / "cache"),
        }
        return Daemon(name, command, self.folder, environment, **given)

    def _agent(self, name: str) -> Daemon:
        command = [sys.executable, "-m", "nodes.cli", "--listen", self._address(name)]
        command += ["--name", name, "--slots", str(SLOTS), "--cache", str(self.folder / name)]
        chance = random.Random(self.chance.random())
        rest_s = lambda: chance.uniform(0.1, MOST_REST_S)  # noqa: E731
        return self._daemon(name, command, rest_s=rest_s, watchdog_s=120.0)

    def _server(self, path: Path) -> Daemon:
        with open_state(self.operator.state) as store:  # as `launch up --install` does
            add_file(store, path)
        self.operator.acknowledged = self.operator.generations()
        command = [*LAUNCH, "up", "--state", str(self.operator.state)]
        return self._daemon(SERVER, command, rest_s=lambda: 0.1, watchdog_s=WATCHDOG_S)

    def _stream(self) -> Daemon:
        path = self.folder / "stream.yaml"
        data = {
            "nodes": self._nodes(),
            "strategy": "sequential",
            "model": {"path": "digits1.onnx", "name": "digits"},
            "input": str(DIGITS / "test_images.npy"),
            "rate": RATE,
            "frames": 10**6,
            "journal": str(self.kept.folder),
        }
        path.write_text(yaml.safe_dump(data), encoding="utf-8")
        command = [*LAUNCH, str(path), "--resume"]
        return self._daemon(STREAM, command, rest_s=lambda: 0.1)

    def _address(self, name: str) -> str:
        return f"tcp://127.0.0.1:{self._ports[name]}"

    def _nodes(self) -> list[dict[str, object]]:
        return [{"name": n, "address": self._address(n), "slots": SLOTS} for n in AGENTS]

    def _write(self, versions: Versions) -> Path:
        models = ((name, int(version)) for name, version in versions.items())
        serve = {kind: f"127.0.0.1:{self._ports[kind]}" for kind in ("http", "grpc")}
        return write_cluster(self.folder, *models, nodes=self._nodes(), serve=serve)

    def _learn(self, version: int) -> None:
        self.wanted[version] = answers(self.folder / f"digits{version}.onnx", FRAMES)

    # ------------------------------------------------------------ the play

    async def play(self, kills: int, minutes: float) -> None:
        """Strike `kills` times within `minutes`, while clients ask and the operator changes."""
        await self._settled(START_S)
        http, grpc = ((kind, f"127.0.0.1:{self._ports[kind]}") for kind in ("http", "grpc"))
        async with (
            self._clients("digits", (http, grpc, http), self.digits),
            self._clients("other", (grpc,), self.other),
        ):
            looking = asyncio.create_task(self._look())
            changing = asyncio.create_task(self._change())
            began_s, mean_s = time.monotonic(), 60 * minutes / kills
            for number in range(kills):
                due_s = began_s + mean_s * (number + self.chance.uniform(0.0, 1.0))
                await asyncio.sleep(max(0.0, due_s - time.monotonic()))
                await self._strike()
            await _ended(changing)
            await asyncio.gather(*self._resuming)
            await self._settled(SETTLED_S)
            await asyncio.sleep(2.0)
        await _ended(looking)
        self._observe()
        await asyncio.to_thread(self.operator.check)

    def _clients(self, model: str, whom: Sequence[tuple[str, str]], asked: Asked) -> Clients:
        return Clients(whom, model, self._frames, self.wanted, pause_s=PAUSE_S, asked=asked)

    async def _settled(self, within_s: float) -> None:
        """Wait until all that was applied last serves."""
        until_s = time.monotonic() + within_s
        found: dict[str, Any] = {}
        while time.monotonic() < until_s:
            with contextlib.suppress(LauncherError):
                found = await asyncio.to_thread(ServiceClient(self.operator.state).get, "status")
                models = found["models"]
                if found["state"] == "ok" and all(
                    model["serving"] == model["version"] and not model["previous"]
                    for model in models
                ):
                    return
            await asyncio.sleep(LOOK_S)
        raise TimeoutError(f"what was applied does not serve after {within_s:.0f} s: {found}")

    async def _change(self) -> None:
        """Change what the service is to serve, now and then; check what it said before."""
        while True:
            await asyncio.sleep(self._pace.expovariate(1 / CHANGE_EVERY_S))
            self.say(f"  {await asyncio.to_thread(self.operator.change)}")
            await asyncio.to_thread(self.operator.check)

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            self._observe()

    def _observe(self) -> None:
        """See what runs, what it holds, and what the journal has."""
        self.family.look()
        for role, pids in self.family.members().items():
            most = max(sizes(pid).get("RssAnon", 0) for pid in pids)
            self.most_bytes[role] = max(most, self.most_bytes.get(role, 0))
        are_away = not any(
            daemon.ready_s for daemon in self.family.daemons if daemon.name in AGENTS
        )
        if self._were_away and not are_away:
            self.disturbed_s.append(time.monotonic())
        self._were_away = are_away
        self.kept.look()

    # ------------------------------------------------------------ strikes

    async def _strike(self) -> None:
        while True:
            target = draw_target(self.chance)
            pid = await self._victim(target.kind)
            if pid is None:
                continue
            with contextlib.suppress(ProcessLookupError):
                handle = os.pidfd_open(pid)
                break
        with contextlib.ExitStack() as stack:
            stack.callback(os.close, handle)
            number = signal.SIGKILL if target.stop_s is None else signal.SIGSTOP
            strike = Strike(time.monotonic(), target.kind, target.stop_s, " ".join(command_of(pid)))
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(handle, number)
            self.strikes.append(strike)
            if target.kind != "stream":
                self.disturbed_s.append(strike.at_s)
            self.say(f"{len(self.strikes):4} {strike}: {strike.command[-60:]}")
            if target.stop_s is not None:
                stack.pop_all()
                task = asyncio.create_task(self._resume(handle, target.stop_s))
                self._resuming.add(task)
                task.add_done_callback(self._resuming.discard)

    async def _resume(self, handle: int, after_s: float) -> None:
        await asyncio.sleep(after_s)
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(handle, signal.SIGCONT)
            self.disturbed_s.append(time.monotonic())
        os.close(handle)

    async def _victim(self, kind: str) -> int | None:
        """A process of this kind; None if there is none, or none comes."""
        until_s = time.monotonic() + (HUNT_S if kind in HUNTED else 0.0)
        while True:
            if found := candidates(kind, self.family.members()):
                return self.chance.choice(found)
            if time.monotonic() >= until_s:
                return None
            await asyncio.sleep(0.01)

    # ------------------------------------------------------------ what came of it

    def recoveries(self) -> list[tuple[Strike, float]]:
        """Return each strike at the service with the seconds of `back_after_s`."""
        return [
            (strike, back_after_s(strike.at_s, self.disturbed_s, self.digits))
            for strike in self.strikes
            if strike.kind != "stream"
        ]


async def _ended(task: asyncio.Task[None]) -> None:
    """End a task that goes on for ever; raises what it has failed with."""
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


def back_after_s(struck_s: float, disturbed_s: Sequence[float], asked: Asked) -> float:
    """Return the seconds from a strike to the first answer to what was asked since.

    If there was another disturbance before that answer, the seconds count from the last one.
    """
    last_s = struck_s
    while (answered_s := asked.first_after(last_s)) is not None:
        later = [at_s for at_s in disturbed_s if last_s < at_s < answered_s]
        if not later:
            return answered_s - last_s
        last_s = max(later)
    return float("inf")


def _free_ports() -> Iterator[int]:
    """Ports that are free now: two of a server, and for each agent one that has as many behind it
    as its slots need."""
    with contextlib.ExitStack() as stack:
        for _ in range(2):
            probe = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
            yield int(probe.getsockname()[1])
        at = random.SystemRandom().randrange(20_000, 30_000, 100)
        yield from (at + 2 * SLOTS * number for number in range(len(AGENTS)))
