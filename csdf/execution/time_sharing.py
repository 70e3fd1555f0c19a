"""A simulated machine whose threads take turns on its CPUs, as under Linux's scheduler (EEVDF).

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

from dataclasses import dataclass, field
from fractions import Fraction

from csdf.execution.shared_machine import Machine


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
class _Cpu:
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
        self._cpus = [_Cpu() for _ in number]
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


def _wanted(cpu: _Cpu) -> int:
    return sum(thread.firing >= 0 for thread in cpu.threads)


def _next(cpu: _Cpu) -> _Thread | None:
    """Return the thread that has the CPU from now on; None if no thread wants it."""
    wanting = [thread for thread in cpu.threads if thread.firing >= 0]
    if len(wanting) < 2:
        return wanting[0] if wanting else None
    if cpu.running is not None and cpu.running.firing >= 0:
        return cpu.running
    total = sum(thread.runtime for thread in wanting)
    eligible = [thread for thread in wanting if thread.runtime * len(wanting) <= total]
    return min(eligible, key=lambda thread: thread.deadline)
