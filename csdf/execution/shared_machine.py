"""A simulated machine whose CPUs several processors share, and the progress of each firing.

A processor of a simulation, such as a thread or a device, runs one firing at a time. Where several
processors stand on one machine, their firings share its CPUs. A firing runs on one CPU, and firings
on the same CPU progress equally fast (processor sharing, as by a fair scheduler). A firing starts
on the CPU with the fewest firings among those that its processor may use; a CPU that has none left
takes a firing over from one that has two or more. CPUs may slow each other down, as hyperthreads of
one core do: `speeds[k − 1]` is the speed of each CPU when k are busy.

Time is counted in whole ticks. A firing that shares its CPU ends at the first whole tick by which
it is done; one that has a CPU of speed 1 to itself ends exactly.

A simulated machine whose threads take turns on its CPUs, as under Linux's scheduler (EEVDF).

Where firings are as short as a thread's turn, they do not progress equally fast
(`csdf.execution.shared_machine.Sharing`): a thread that has the CPU keeps it until it has nothing
left to do or has used up its *slice*, so messages and firings come in bursts. Each thread has a
virtual runtime v, the time that it has run, and a deadline, v plus its slice. A thread is
*eligible* if its v is not beyond the mean of all threads that want the CPU; the eligible thread
with the earliest deadline runs next. It runs until its deadline, unless an eligible thread with a
shorter slice wakes up. A thread that wakes up starts at the mean.

Source: Stoica & Abdel-Wahab, "Earliest eligible virtual deadline first", 1995; protection until the
deadline and preemption by shorter slices are those of Linux 6.12 (kernel/sched/fair.c), with equal
weights, slices that end exactly, and no lag carried over from one sleep to the next.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction

from csdf.errors import CsdfError

EVEN = 720_720
"""A number of ticks that 1 to 16 firings can share evenly."""


@dataclass(frozen=True)
class Machine:
    """CPUs by name, and the CPUs that each processor may use.

    `speeds` are above 0; beyond its length the last one holds, and without any the speed is 1. With
    `slices`, one for each processor, firings do not progress equally fast: their processors take
    turns as in `csdf.execution.shared_machine`, and an idle CPU takes the time `rouse` to wake up.
    """

    cpus: tuple[str, ...]
    processors: Mapping[str, tuple[str, ...]]
    speeds: tuple[Fraction, ...] = ()
    slices: Mapping[str, Fraction] = field(default_factory=dict)
    rouse: Fraction = Fraction(0)

    def __post_init__(self) -> None:
        for processor, allowed in self.processors.items():
            unknown = [cpu for cpu in allowed if cpu not in self.cpus]
            if unknown or not allowed:
                named = f"CPU {unknown[0]!r}" if unknown else "no CPU"
                raise CsdfError(
                    f"processor {processor!r} is to run on {named}; its machine has "
                    f"{', '.join(self.cpus) or 'none'}"
                )
        if self.slices and self.slices.keys() != self.processors.keys():
            raise CsdfError("slices are for all processors of a machine or for none")
        if any(share <= 0 for share in self.slices.values()):
            raise CsdfError("a slice is 0 or less; give times above 0")
        if any(speed <= 0 for speed in self.speeds):
            raise CsdfError("a CPU's speed is 0 or less; give speeds above 0")


@dataclass(frozen=True)
class Platform:
    """How processors differ from ideal ones.

    The processors of one of the `machines` share its CPUs. A processor that was idle takes the time
    in `wakes` to begin a firing. A processor that looks `ahead` chooses so many firings while
    another still runs; they consume their tokens at once, and what they produce for actors of the
    same processor is there at once too, as an agent keeps its executor busy. A firing takes less or
    more time than its actor's by up to its processor's `spread` (a share from 0 to 1), drawn from
    `seed`: without that, firings fall into step as they never do. Among actors with `ranks`, a
    processor fires those of the lowest rank first, and of these the one that was enabled first;
    actors without a rank count as of rank 0, and the oldest iteration goes first.
    """

    machines: tuple[Machine, ...] = ()
    wakes: Mapping[str, Fraction] = field(default_factory=dict)
    ahead: Mapping[str, int] = field(default_factory=dict)
    spread: Mapping[str, Fraction] = field(default_factory=dict)
    ranks: Mapping[str, int] = field(default_factory=dict)
    seed: int = 0

    def __post_init__(self) -> None:
        machine_of: set[str] = set()
        for machine in self.machines:
            for processor in machine.processors:
                if processor in machine_of:
                    raise CsdfError(f"processor {processor!r} is to run on two machines")
                machine_of.add(processor)
        for processor, share in self.spread.items():
            if not 0 <= share <= 1:
                raise CsdfError(
                    f"processor {processor!r} has a spread of {share}; give a share from 0 to 1"
                )


IDEAL = Platform()
"""Processors that take exactly the actors' times, and choose a firing when the last has ended."""


@dataclass(slots=True)
class _SharedCpu:
    jobs: dict[int, int] = field(default_factory=dict)
    """Firing → the work that remains, in ticks at speed 1."""


class Sharing:
    """The firings that are under way on one machine; `now` never goes back."""

    def __init__(self, machine: Machine) -> None:
        number = {name: i for i, name in enumerate(machine.cpus)}
        self._cpus = [_SharedCpu() for _ in number]
        self._allowed = {
            processor: tuple(number[cpu] for cpu in allowed)
            for processor, allowed in machine.processors.items()
        }
        self._latest = {processor: allowed[0] for processor, allowed in self._allowed.items()}
        speeds = machine.speeds or (Fraction(1),)
        self._speeds = [(s.numerator, s.denominator) for s in speeds]
        self._may_use: dict[int, tuple[int, ...]] = {}
        self._since = 0

    def start(self, now: int, processor: str, firing: int, work: int) -> None:
        """Begin a firing of so much work. The caller has taken all that ended by `now`."""
        self._advance(now)
        allowed, latest = self._allowed[processor], self._latest[processor]
        cpu = min(allowed, key=lambda c: (len(self._cpus[c].jobs), c != latest))
        self._latest[processor] = cpu
        self._may_use[firing] = allowed
        self._cpus[cpu].jobs[firing] = work

    def next_end(self) -> int | None:
        """Return when the next firing ends if none begins before; None if none runs."""
        number, over = self._speed()
        found = [
            self._since + -(-min(cpu.jobs.values()) * over * len(cpu.jobs) // number)
            for cpu in self._cpus
            if cpu.jobs
        ]
        return min(found, default=None)

    def take_ended(self, now: int) -> list[int]:
        """Remove and return the firings that are done by `now`, in the order of their starts."""
        self._advance(now)
        ended = sorted(
            firing for cpu in self._cpus for firing, left in cpu.jobs.items() if left <= 0
        )
        for firing in ended:
            del self._may_use[firing]
            for cpu in self._cpus:
                cpu.jobs.pop(firing, None)
        if ended:
            self._balance()
        return ended

    def _speed(self) -> tuple[int, int]:
        busy = sum(bool(cpu.jobs) for cpu in self._cpus)
        return self._speeds[min(max(busy, 1), len(self._speeds)) - 1]

    def _advance(self, now: int) -> None:
        passed, self._since = now - self._since, now
        if not passed:
            return
        number, over = self._speed()
        for cpu in self._cpus:
            done = passed * number // (over * max(1, len(cpu.jobs)))
            for firing in cpu.jobs:
                cpu.jobs[firing] -= done

    def _balance(self) -> None:
        """Let idle CPUs take over firings of crowded ones."""
        for place, idle in enumerate(self._cpus):
            if idle.jobs:
                continue
            crowded = max(self._cpus, key=lambda cpu: len(cpu.jobs))
            if len(crowded.jobs) < 2:
                return
            moved = next((f for f in crowded.jobs if place in self._may_use[f]), None)
            if moved is not None:
                idle.jobs[moved] = crowded.jobs.pop(moved)


@dataclass(slots=True)
class _Thread:
    slice: int
    allowed: tuple[int, ...]
    cpu: int
    firing: int = -1
    """The firing that it executes; −1 if none."""
    left: int = 0
    runtime: int = 0
    deadline: int = 0
    asleep: bool = True


@dataclass(slots=True)
class _CpuInTurns:
    threads: list[_Thread] = field(default_factory=list)
    """The threads that want it, in the order in which they came."""
    running: _Thread | None = None
    """The thread that had it last; it may have nothing left to do."""


class Slicing:
    """The firings that are under way on one machine; `now` never goes back.

    A tick is 1 / `unit`. Decisions fall when time passes, so a thread whose next firing begins when
    the last one ends does not give up the CPU in between.
    """

    def __init__(self, machine: Machine, unit: int) -> None:
        number = {name: i for i, name in enumerate(machine.cpus)}
        self._cpus = [_CpuInTurns() for _ in number]
        self._threads = {}
        for name, allowed in machine.processors.items():
            places = tuple(number[cpu] for cpu in allowed)
            self._threads[name] = _Thread(
                max(1, int(machine.slices[name] * unit)), places, places[0]
            )
        speeds = machine.speeds or (Fraction(1),)
        self._speeds = [(s.numerator, s.denominator) for s in speeds]
        self._rouse = int(machine.rouse * unit)
        self._since = 0

    def start(self, now: int, processor: str, firing: int, work: int) -> None:
        """Begin a firing of so much work. The caller has taken all that ended by `now`."""
        self._advance(now)
        thread = self._threads[processor]
        thread.firing, thread.left = firing, work
        if thread.asleep:
            self._wake(thread)

    def next_end(self) -> int | None:
        """Return when a firing ends or a slice is used up, if none begins; None if none runs."""
        number, over = self._speed()
        found = []
        for cpu in self._cpus:
            thread = _next(cpu)
            if thread is None:
                continue
            needed = -(-thread.left * over // number)
            if len(cpu.threads) > 1:
                needed = min(needed, max(1, thread.deadline - thread.runtime))
            found.append(self._since + needed)
        return min(found, default=None)

    def take_ended(self, now: int) -> list[int]:
        """Remove and return the firings that are done by `now`, in the order of their starts."""
        self._advance(now)
        ended = []
        for cpu in self._cpus:
            for thread in cpu.threads:
                if thread.firing >= 0 and thread.left <= 0:
                    ended.append(thread.firing)
                    thread.firing = -1
        return sorted(ended)

    def _speed(self) -> tuple[int, int]:
        busy = sum(any(t.firing >= 0 for t in cpu.threads) for cpu in self._cpus)
        return self._speeds[min(max(busy, 1), len(self._speeds)) - 1]

    def _wake(self, thread: _Thread) -> None:
        """Put the thread on the CPU that the fewest threads want, of those that it may use."""
        thread.asleep = False
        thread.cpu = min(thread.allowed, key=lambda c: (_wanted(self._cpus[c]), c != thread.cpu, c))
        self._join(thread)

    def _join(self, thread: _Thread) -> None:
        cpu = self._cpus[thread.cpu]
        others = [other.runtime for other in cpu.threads]
        if others:
            thread.runtime = sum(others) // len(others)
        else:
            thread.left += self._rouse
        thread.deadline = thread.runtime + thread.slice
        cpu.threads.append(thread)
        running = cpu.running
        if running is not None and thread.slice < running.slice:
            cpu.running = None  # no longer protected: the thread that is due first is next

    def _advance(self, now: int) -> None:
        passed, self._since = now - self._since, now
        if not passed:
            return
        self._settle()
        number, over = self._speed()
        for cpu in self._cpus:
            thread = cpu.running = _next(cpu)
            if thread is None:
                continue
            thread.left -= passed * number // over
            thread.runtime += passed
            if thread.runtime >= thread.deadline:
                thread.deadline = thread.runtime + thread.slice
                cpu.running = None

    def _settle(self) -> None:
        """Let threads without a firing sleep, and idle CPUs take over waiting threads."""
        for cpu in self._cpus:
            for thread in [t for t in cpu.threads if t.firing < 0]:
                cpu.threads.remove(thread)
                thread.asleep = True
        for place, idle in enumerate(self._cpus):
            if idle.threads:
                continue
            crowded = max(self._cpus, key=lambda cpu: len(cpu.threads))
            if len(crowded.threads) < 2:
                return
            at = _next(crowded)
            moved = next((t for t in crowded.threads if place in t.allowed and t is not at), None)
            if moved is not None:
                crowded.threads.remove(moved)
                moved.cpu = place
                self._join(moved)


def _wanted(cpu: _CpuInTurns) -> int:
    return sum(thread.firing >= 0 for thread in cpu.threads)


def _next(cpu: _CpuInTurns) -> _Thread | None:
    """Return the thread that has the CPU from now on; None if no thread wants it."""
    wanting = [thread for thread in cpu.threads if thread.firing >= 0]
    if len(wanting) < 2:
        return wanting[0] if wanting else None
    if cpu.running is not None and cpu.running.firing >= 0:
        return cpu.running
    total = sum(thread.runtime for thread in wanting)
    eligible = [thread for thread in wanting if thread.runtime * len(wanting) <= total]
    return min(eligible, key=lambda thread: thread.deadline)
