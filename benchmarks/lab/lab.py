"""Brings a laboratory up and down, and causes faults in it: `with Lab(config) as lab:`."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from benchmarks.lab import cluster_file, disk, machine, plans, state, traces
from benchmarks.lab.config import LabConfig
from benchmarks.lab.layout import Layout, Place, separate_cpus
from benchmarks.lab.readings import are_stopped, processes, thread_called, used
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

PAUSE_S = 5.0
CLUSTER = "cluster.yaml"


class Lab:
    """A laboratory. Not up until `up` or the `with` statement."""

    def __init__(self, config: LabConfig) -> None:
        self._config = config
        self._layout: Layout | None = None

    @classmethod
    def attach(cls, name: str) -> Lab:
        """One that is up already; raises `BadInputError` if it is not."""
        known = state.read(machine.base() / name)
        lab = cls(known.config)
        lab._layout = known
        return lab

    # ------------------------------------------------------------ up and down

    def __enter__(self) -> Lab:
        self.up()
        return self

    def __exit__(self, *_: object) -> None:
        self.down()

    def up(self) -> None:
        """Make everything and wait until every agent listens; removes all again if that fails.

        Raises `BadInputError` if boards cannot be emulated here, a laboratory of this name exists
        or `launch` would not take its cluster, `LabError` if the machine refuses something.
        """
        config, folder = self._config, machine.base() / self._config.name
        cluster_file.check_cluster(config)
        there_is_one = BadInputError(
            f"a laboratory {config.name!r} is there already: "
            f"`python -m benchmarks.lab down {config.name}`, or give this one another name"
        )
        if traces.find(config.name, folder, machine.here()):
            raise there_is_one
        found = machine.look(config)
        found.check()
        cpus = separate_cpus(config, os.sched_getaffinity(0))
        layout = self._layout = Layout(config, folder, found.network, found.found, cpus)
        folder.parent.mkdir(mode=0o755, exist_ok=True)
        try:
            folder.mkdir()  # from here on the name is ours
        except FileExistsError:
            raise there_is_one from None
        try:
            state.write(layout)
            if config.keys:
                make_keys(layout.keys, dict.fromkeys(layout.places))
            perform(plans.up(layout))
            self._settle(layout.places.values())
            self.cluster_file.write_text(cluster_file.text(layout), "utf-8")
        except BaseException:
            with suppress_errors():
                self.down()
            raise

    def down(self) -> traces.Traces:
        """Remove every trace; may be called again. Returns what there was."""
        self._layout = None
        return down(self._config.name)

    def _settle(self, places: Iterable[Place]) -> None:
        """Wait for agents; then their threads go where they belong, and the quotas hold."""
        began_s = time.monotonic()
        for place in places:
            wait_until(
                lambda place=place: self._is_ready(place, began_s),  # type: ignore[misc]
                READY_S,
                lambda place=place: _last_words(place, "is not ready"),  # type: ignore[misc]
            )
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
        if self._layout is None:
            raise BadInputError(f"the laboratory {self._config.name!r} is not up")
        return self._layout

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
        return look(self.layout, over_s)

    def cpu_s(self) -> float:
        """The CPU seconds that all boards together have used."""
        found = (used(self.layout.group_of(place)) for place in self.layout.places.values())
        return sum(one.slice_cpu_s + one.other_cpu_s for one in found)

    def popen(self, device: str, argv: tuple[str, ...], **options: Any) -> subprocess.Popen[str]:
        """A program of ours on a board, outside of its slice on an accelerator board; `options` are
        `subprocess.Popen`'s."""
        command = plans.inside(self.layout, self.place(device), argv)
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
        perform([plans.cable(self.layout, self.place(device), "down")])

    def restore(self, device: str) -> None:
        """Cable, link rate and CPU quota as `lab.yaml` says."""
        perform(plans.restore(self.layout, self.place(device)))

    def slow(self, device: str, bytes_per_s: float) -> None:
        """Another link rate, in both directions."""
        perform(plans.shape(self.layout, self.place(device), bytes_per_s))

    def starve(self, device: str, cores: float) -> None:
        """Another CPU quota."""
        perform(self.layout.group_of(self.place(device)).set_cpu(cores))

    def pause(self, device: str) -> None:
        """Stop everything that runs on the board (SIGSTOP)."""
        self._signal(device, signal.SIGSTOP)

    def resume(self, device: str) -> None:
        """Let it go on."""
        self._signal(device, signal.SIGCONT)

    def kill(self, device: str) -> None:
        """SIGKILL the board's processes, and wait until they are gone."""
        place = self.place(device)
        while pids := processes(self.layout, place):
            end(pids)

    def restart(self, device: str) -> None:
        """Start the agent of a board that was killed; raises `BadInputError` if it still runs."""
        place = self.place(device)
        if processes(self.layout, place):
            raise BadInputError(f"device {device!r} runs: kill it first")
        self._start((place,))

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
        self._start(places)

    def fill_disk(self, device: str) -> int:
        """Leave no room on the board's disk; returns the bytes that were free."""
        return disk.fill(self._with_disk(device).cache)

    def free_disk(self, device: str) -> None:
        """Give the room back."""
        disk.free(self._with_disk(device).cache)

    def _with_disk(self, device: str) -> Place:
        place = self.place(device)
        if place.slice.disk is None:
            raise BadInputError(
                f"device {device!r} has no disk of its own: give it one, disk: 64MB"
            )
        return place

    def _start(self, places: Collection[Place]) -> None:
        for place in places:
            place.log.write_bytes(b"")
            perform(plans.start(self.layout, place))
        self._settle(places)

    def _signal(self, device: str, number: signal.Signals) -> None:
        place, stops = self.place(device), number == signal.SIGSTOP

        def is_done() -> bool:
            pids = processes(self.layout, place)
            for pid in pids:
                with suppress(ProcessLookupError):
                    os.kill(pid, number)
            return not pids or are_stopped(pids) is stops

        wait_until(is_done, PAUSE_S, lambda: f"{device!r} does not {'stop' if stops else 'go on'}")


def down(name: str) -> traces.Traces:
    """Remove every trace of a laboratory, whatever became of it; returns what there was."""
    return traces.remove(name, machine.base() / name, machine.here())


def _last_words(place: Place, what: str) -> str:
    lines = place.log.read_text("utf-8", "replace").strip().splitlines()[-3:]
    said = f"; it said: {' / '.join(lines)}" if lines else ""
    return f"the agent of {place.slice.name!r} {what}{said}"
