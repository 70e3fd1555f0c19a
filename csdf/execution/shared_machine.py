"""A simulated machine whose CPUs several processors share, and the progress of each firing.

A processor of a simulation, such as a thread or a device, runs one firing at a time. Where several
processors stand on one machine, their firings share its CPUs. A firing runs on one CPU, and firings
on the same CPU progress equally fast (processor sharing, as by a fair scheduler). A firing starts
on the CPU with the fewest firings among those that its processor may use; a CPU that has none left
takes a firing over from one that has two or more. CPUs may slow each other down, as hyperthreads of
one core do: `speeds[k − 1]` is the speed of each CPU when k are busy.

Time is counted in whole ticks. A firing that shares its CPU ends at the first whole tick by which
it is done; one that has a CPU of speed 1 to itself ends exactly.
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
    turns as in `csdf.execution.time_sharing`, and an idle CPU takes the time `rouse` to wake up.
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
class _Cpu:
    jobs: dict[int, int] = field(default_factory=dict)
    """Firing → the work that remains, in ticks at speed 1."""


class Sharing:
    """The firings that are under way on one machine; `now` never goes back."""

    def __init__(self, machine: Machine) -> None:
        number = {name: i for i, name in enumerate(machine.cpus)}
        self._cpus = [_Cpu() for _ in number]
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
