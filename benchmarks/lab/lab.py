"""Brings a laboratory up and down, and causes faults in it: `with Lab(config) as lab:`."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

from benchmarks.lab import cluster_file, disk, faults, machine, plans, state, traces
from benchmarks.lab.actions import Action
from benchmarks.lab.config import LabConfig
from benchmarks.lab.layout import Layout, Place, separate_cpus
from benchmarks.lab.readings import is_stopped, processes, thread_called
from benchmarks.lab.shell import LabError, end, perform, suppress_errors, wait_until
from benchmarks.lab.status import LabStatus, look
from launcher.commands.make_keys import make_keys
from launcher.errors import BadInputError
from nodes.execution.worker import THREAD_NAME

READY = b"ready: control"
"""What an agent says when it listens."""

READY_S = 120.0
BEGIN_S = 2.0
"""After which a board without a process has lost it."""

FREEZE_S = 5.0
CLUSTER = "cluster.yaml"


class Lab:
    """A laboratory. Not up until `up` or the `with` statement."""

    def __init__(
        self,
        config: LabConfig,
        *,
        plain: bool = False,
        base: Path | None = None,
        files: Path | None = None,
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        """`plain`: processes only, even where more is possible. `base` is where its folder is
        made, whose name must be that of `machine.base()`. Paths in the configuration's `cluster`
        are relative to `files`. `say` hears of progress."""
        self._config = config
        self._plain = plain
        self._base = machine.base() if base is None else base
        self._files = Path() if files is None else files
        self._say = say
        self._state: state.State | None = None

    @classmethod
    def attach(cls, name: str, base: Path | None = None) -> Lab:
        """One that is up already; raises `BadInputError` if it is not."""
        base = machine.base() if base is None else base
        known = state.read(base / name)
        lab = cls(known.layout.config, base=base)
        lab._state = known
        return lab

    # ------------------------------------------------------------ up and down

    def __enter__(self) -> Lab:
        self.up()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.down()

    def up(self) -> None:
        """Make everything and wait until every agent listens; removes all again if that fails.

        Raises `BadInputError` if a laboratory of this name exists or `launch` would not take its
        cluster, `LabError` if the machine refuses something.
        """
        folder = self._base / self._config.name
        cluster_file.check_cluster(self._config, self._files)
        there_is_one = BadInputError(
            f"a laboratory {self._config.name!r} is there already: "
            f"`python -m benchmarks.lab down {self._config.name}`, or give this one another name"
        )
        if traces.find(self._config.name, folder, machine.here()):
            raise there_is_one
        found = machine.Machine(None, None, ("it was asked for plain processes",))
        if not self._plain:
            found = machine.look(self._config)
        boards = sum(line.count for line in self._config.devices)
        ports = _free_ports(boards) if found.network is None else ()
        cpus = separate_cpus(self._config, os.sched_getaffinity(0)) if found.network else None
        layout = Layout(self._config, folder, found.network, found.found, ports, cpus)
        self._state = state.State(layout, found.missing)
        self._base.mkdir(mode=0o755, exist_ok=True)
        try:
            folder.mkdir()  # from here on the name is ours
        except FileExistsError:
            raise there_is_one from None
        try:
            state.write(self._state)
            self._say(f"making {boards} boards")
            if self._config.keys:
                make_keys(layout.keys, dict.fromkeys(layout.places))
            perform(plans.up(layout))
            self._settle(layout.places.values())
            self.cluster_file.write_text(cluster_file.text(layout, self._files), "utf-8")
        except BaseException:
            with suppress_errors():
                self.down()
            raise

    def down(self) -> traces.Traces:
        """Remove every trace; may be called again. Returns what there was."""
        self._state = None
        return down(self._config.name, self._base)

    def _settle(self, places: Iterable[Place]) -> None:
        """Wait for agents; then their threads go where they belong, and the quotas hold."""
        began_s = time.monotonic()
        for place in places:
            self._say(f"waiting for the agent of {place.slice.name}")
            wait_until(
                lambda place=place: self._is_ready(place, began_s),  # type: ignore[misc]
                READY_S,
                lambda place=place: _last_words(place, "is not ready"),  # type: ignore[misc]
            )
            if self.layout.isolated:
                perform(plans.settle(self.layout, place, self._executor(place)))

    def _is_ready(self, place: Place, began_s: float) -> bool:
        if READY in place.log.read_bytes():
            return True
        late = time.monotonic() - began_s > BEGIN_S
        if late and not processes(self.layout, place):
            raise LabError(_last_words(place, "has ended"))
        return False

    def _executor(self, place: Place) -> int:
        """The id of the thread that computes; it may name itself a moment later."""
        found: list[int] = []

        def look_for_it() -> bool:
            thread = thread_called(processes(self.layout, place), THREAD_NAME)
            found.extend([] if thread is None else [thread])
            return bool(found)

        wait_until(look_for_it, BEGIN_S, lambda: _last_words(place, f"has no {THREAD_NAME} thread"))
        return found[0]

    # ------------------------------------------------------------ what there is

    @property
    def layout(self) -> Layout:
        """Names, addresses and places. Raises `BadInputError` while it is not up."""
        return self._known.layout

    @property
    def missing(self) -> tuple[str, ...]:
        """What was missing for emulated boards; empty where they are emulated."""
        return self._known.missing

    @property
    def _known(self) -> state.State:
        if self._state is None:
            raise BadInputError(f"the laboratory {self._config.name!r} is not up")
        return self._state

    @property
    def addresses(self) -> dict[str, str]:
        """Board → address of its agent."""
        return {name: place.address for name, place in self.layout.places.items()}

    @property
    def cluster_file(self) -> Path:
        """The `cluster.yaml` that `launch` takes."""
        return self.layout.folder / CLUSTER

    def place(self, device: str) -> Place:
        """Where a board is; raises `BadInputError` if there is none of that name."""
        try:
            return self.layout.places[device]
        except KeyError:
            known = ", ".join(self.layout.places)
            raise BadInputError(f"there is no device {device!r}; there are {known}") from None

    def status(self, over_s: float = 0.5) -> LabStatus:
        """Every board: alive, its bounds, and its use in these seconds and in all."""
        return look(self.layout, self.missing, over_s)

    def popen(
        self, device: str, argv: tuple[str, ...], *, compute: bool = False, **options: Any
    ) -> subprocess.Popen[str]:
        """A program of ours on a board, under its bounds; with `compute`, all of it in the slice.

        `options` are `subprocess.Popen`'s. Only where boards are emulated.
        """
        if not self.layout.isolated:
            raise BadInputError(f"device {device!r} is no more than a process: nothing runs on it")
        command = plans.inside(self.layout, self.place(device), argv, compute=compute)
        return subprocess.Popen(command, text=True, **options)

    @contextmanager
    def beside(self) -> Iterator[None]:
        """While inside, this thread and what it starts leave to the boards the CPUs on which
        they compute."""
        before = os.sched_getaffinity(0)
        if self.layout.cpus is not None:
            os.sched_setaffinity(0, self.layout.cpus.rest)
        try:
            yield
        finally:
            os.sched_setaffinity(0, before)

    # ------------------------------------------------------------ faults

    def cut(self, device: str) -> None:
        """Pull the board's cable."""
        self._do(device, faults.cut)

    def restore(self, device: str) -> None:
        """Cable, link rate and CPU quota as `lab.yaml` says."""
        self._do(device, faults.restore)
        perform(faults.starve(self.layout, self.place(device), self.place(device).slice.cpu))

    def slow(self, device: str, bytes_per_s: float) -> None:
        """Another link rate, in both directions."""
        perform(faults.slow(self.layout, self.place(device), bytes_per_s))

    def starve(self, device: str, cores: float) -> None:
        """Another CPU quota."""
        perform(faults.starve(self.layout, self.place(device), cores))

    def pause(self, device: str) -> None:
        """Stop everything that runs on the board."""
        self._freeze(device, True)

    def resume(self, device: str) -> None:
        """Let it go on."""
        self._freeze(device, False)

    def kill(self, device: str) -> None:
        """SIGKILL the board's processes, and wait until they are gone."""
        place = self.place(device)
        self._freeze(device, False)
        while pids := processes(self.layout, place):
            end(pids)

    def restart(self, device: str) -> None:
        """Start the agent of a board that was killed; raises `BadInputError` if it still runs."""
        place = self.place(device)
        if processes(self.layout, place):
            raise BadInputError(f"device {device!r} runs: kill it first")
        place.log.write_bytes(b"")
        perform(plans.start(self.layout, place))
        self._settle((place,))

    def renew(
        self, keep: Collection[int] = (), meanwhile: Callable[[], None] = lambda: None
    ) -> None:
        """End all processes on the boards except `keep`, and start every agent again.

        `meanwhile` is called while no agent runs.
        """
        places = tuple(self.layout.places.values())
        for place in places:
            while pids := processes(self.layout, place) - set(keep):
                end(pids)
        meanwhile()
        for place in places:
            place.log.write_bytes(b"")
            perform(plans.start(self.layout, place))
        self._settle(places)

    def fill_disk(self, device: str) -> int:
        """Leave no room on the board's disk; returns the bytes that were free."""
        return disk.fill(self._with_disk(device).cache)

    def free_disk(self, device: str) -> None:
        """Give the room back."""
        disk.free(self._with_disk(device).cache)

    def _with_disk(self, device: str) -> Place:
        place = self.place(device)
        if not self.layout.isolated or place.slice.disk is None:
            raise BadInputError(
                f"device {device!r} has no disk of its own: give it one, disk: 64MB"
            )
        return place

    def _do(self, device: str, fault: Callable[[Layout, Place], Iterable[Action]]) -> None:
        perform(fault(self.layout, self.place(device)))

    def _freeze(self, device: str, frozen: bool) -> None:
        place = self.place(device)
        actions = faults.freeze(self.layout, place, frozen=frozen)
        if actions is None:
            for pid in processes(self.layout, place):
                os.kill(pid, signal.SIGSTOP if frozen else signal.SIGCONT)
        else:
            perform(actions)
        wait_until(
            lambda: is_stopped(self.layout, place) is frozen or not processes(self.layout, place),
            FREEZE_S,
            lambda: f"{device!r} does not {'stop' if frozen else 'go on'}",
        )


def down(name: str, base: Path | None = None) -> traces.Traces:
    """Remove every trace of a laboratory, whatever became of it; returns what there was."""
    return traces.remove(name, (machine.base() if base is None else base) / name, machine.here())


def _last_words(place: Place, what: str) -> str:
    lines = place.log.read_text("utf-8", "replace").strip().splitlines()[-3:]
    said = f"; it said: {' / '.join(lines)}" if lines else ""
    return f"the agent of {place.slice.name!r} {what}{said}"


def _free_ports(count: int) -> tuple[int, ...]:
    """Ports of loopback whose successors are free as well: an agent has two."""
    with ExitStack() as held:
        found: list[int] = []
        while len(found) < count:
            pair = [held.enter_context(socket.socket()) for _ in range(2)]
            pair[0].bind(("127.0.0.1", 0))
            port = pair[0].getsockname()[1]
            try:
                pair[1].bind(("127.0.0.1", port + 1))
            except (OSError, OverflowError):
                continue
            found.append(port)
    return tuple(found)
