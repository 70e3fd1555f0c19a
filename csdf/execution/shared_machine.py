"""Simulate machines whose CPUs several processors share, and the progress of each firing on them.

A processor of a simulation, such as a thread or a device, runs one firing at a time. The firings of
the processors of one machine share its CPUs, of which each firing uses one. They are threads, which
take turns on a CPU as under Linux's scheduler (EEVDF). Each thread has a virtual runtime v, the
time that it has run, and a deadline, v plus its *slice*. A thread is *eligible* if its v is not
beyond the mean of all threads that want the CPU. The eligible thread with the earliest deadline
runs next. It runs until its deadline, or until it has nothing left to do, unless an eligible thread
with a shorter slice wakes up. A thread that wakes up starts at the mean.

CPUs may slow each other down, as the hyperthreads of a core do: `speeds[k − 1]` is the speed of
each CPU when k are busy. Time is counted in whole ticks.

Source: Stoica & Abdel-Wahab, "Earliest eligible virtual deadline first", 1995; protection until the
deadline and preemption by shorter slices are those of Linux 6.12 (kernel/sched/fair.c), with equal
weights, slices that end exactly, and no lag carried over from one sleep to the next.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction

from csdf.errors import CsdfError

FINENESS = 720_720
"""By how much ticks are finer where speeds and spreads divide the times of firings."""


@dataclass(frozen=True)
class Machine:
    """A machine: its CPUs, and those that each processor may use, by name.

    Each processor has a slice, a time. `speeds` are above 0, relative to the execution times of
    actors; beyond the length of the list the last one holds, and without any the speed is 1. An
    idle CPU takes the time `rouse` to wake up.

    >>> from fractions import Fraction
    >>> from csdf import Actor, Graph, simulate
    >>> two = Graph("two", (Actor("a", (Fraction(1),), 1), Actor("b", (Fraction(1),), 1)), ())
    >>> slices = {"A": Fraction(1, 4), "B": Fraction(1, 4)}
    >>> board = Machine(("cpu0",), {"A": ("cpu0",), "B": ("cpu0",)}, slices)
    >>> simulate(two, 1, {"a": "A", "b": "B"}, platform=Platform((board,))).end
    Fraction(2, 1)
    """

    cpus: tuple[str, ...]
    processors: Mapping[str, tuple[str, ...]]
    slices: Mapping[str, Fraction]
    speeds: tuple[Fraction, ...] = ()
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
        if self.slices.keys() != self.processors.keys():
            raise CsdfError("a machine needs a slice for each of its processors, and for no others")
        if any(share <= 0 for share in self.slices.values()):
            raise CsdfError("a slice is 0 or less; give times above 0")
        if any(speed <= 0 for speed in self.speeds):
            raise CsdfError("a CPU's speed is 0 or less; give speeds above 0")


@dataclass(frozen=True)
class Platform:
    """How processors differ from ideal ones, by processor; `ranks` are by actor.

    - The processors of each of the `machines` share its CPUs.
    - A processor that was idle takes the time in `wakes` to begin a firing.
    - `ahead` is how many firings a processor chooses while another still runs, as an agent does to
      keep its executor busy. These firings consume their tokens at once, and what they produce for
      actors of the same processor arrives at once as well.
    - A firing takes more or less time than its actor's by up to `spread` (a share from 0 to 1),
      drawn at random from `seed`. Without spread, firings fall into a lockstep that does not occur
      in practice.
    - A processor fires actors of the lowest rank in `ranks` first, and of these the one that was
      enabled first. Actors without a rank have rank 0, and the oldest iteration goes first.
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
"""Processors that take exactly the actors' times and choose a firing when the last has ended."""


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
    """The firings in progress on one machine whose threads take turns; `now` must not fall.

    A tick is 1 / `unit`. Threads are scheduled only when time passes, so a thread whose next firing
    begins at the end of the last one keeps the CPU.
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
        """Begin a firing of `work` ticks; the caller has taken all firings that ended by `now`."""
        self._advance(now)
        thread = self._threads[processor]
        thread.firing, thread.left = firing, work
        if thread.asleep:
            self._wake(thread)

    def next_end(self) -> int | None:
        """Return when a firing or a slice ends if no other begins; None if none is in progress."""
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
