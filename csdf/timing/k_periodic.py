"""Find the fastest K-periodic schedule: an actor repeats the start times of K cycles of phases.

The period of an actor is λ × K / q if it fires its phases q times in an iteration of period λ. With
K = 1 for all actors such a schedule is called strictly periodic, or 1-periodic. It is the easiest
to store and to keep, but may be slower: λ is an upper bound on the period of self-timed execution,
and equals it if each K is a multiple of q. K need not divide q. With few tokens or places, a live
graph may have no such schedule.

Sources: A. Benabid-Najjar, C. Hanen, O. Marchetti, A. Munier-Kordon, "Periodic schedules for
bounded timed weighted event graphs", IEEE Transactions on Automatic Control, 2012, for K = 1; B.
Bodin et al., "Optimal and fast throughput evaluation of CSDF", DAC 2016, for any K.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from csdf.errors import CsdfError, TooLargeError
from csdf.model.consistency import repetition_vector
from csdf.model.graph import Graph
from csdf.model.lowered import lower, readable
from csdf.timing import event_graph
from csdf.timing.cycle_ratio import EFFORT, maximum_cycle_ratio
from csdf.timing.throughput import require_live, require_order


@dataclass(frozen=True, slots=True)
class KPeriodic:
    """A K-periodic schedule: actor a starts at `starts[a]`, and repeats that every `turns[a]`.

    `period` is λ, the time of an iteration. `starts[a]` has `cycles[a]` cycles of a's phases; the
    earliest start of all is 0.
    """

    period: Fraction
    cycles: Mapping[str, int]
    starts: Mapping[str, tuple[Fraction, ...]]
    turns: Mapping[str, Fraction]


def k_periodic_schedule(graph: Graph, cycles: int | Mapping[str, int] = 1) -> KPeriodic | None:
    """Return the fastest schedule with `cycles` cycles of each actor, or None if there is none.

    With a mapping, actors that it leaves out have one cycle. The graph must be live.

    Raises `InconsistentGraphError`, `DeadlockError`, `TooLargeError`, `OvertakingError` if an
    actor's firings may overlap and have different times, and `CsdfError` for a wrong K or name.

    >>> from csdf import Actor, Channel
    >>> actors = Actor("a", (Fraction(2),), 1), Actor("b", (Fraction(1), Fraction(3)), 1)
    >>> graph = Graph("g", actors, (Channel("c", "a", "b", (2,), (1, 1), capacity=3),))
    >>> found = k_periodic_schedule(graph)
    >>> str(found.period), [str(one) for one in found.starts["b"]]
    ('4', ['2', '3'])
    """
    chosen = _chosen(graph, cycles)
    repetitions = repetition_vector(graph)
    lowered = lower(graph)
    require_live(graph)
    require_order(lowered)
    # Each K divides the number of cycles in this number of iterations.
    iterations = math.lcm(*(k // math.gcd(k, repetitions[name]) for name, k in chosen.items()))
    counts = [iterations * repetitions[name] for name in lowered.names]
    builder = event_graph.Builder(lowered, counts)
    work = builder.work(list(chosen.values()))
    if work > EFFORT:
        raise TooLargeError(
            f"a schedule with these cycles has {readable(work)} constraints, and at most {EFFORT} "
            "are allowed; give fewer cycles"
        )
    events = builder.build(list(chosen.values()))
    # Edges are reversed so that the potentials are walks to, not from, each firing.
    edges = events.nodes, events.target, events.source, events.time, events.delay
    result = maximum_cycle_ratio(*edges)
    if result.ratio is None:
        return None
    period = result.ratio * Fraction(events.delay_unit, events.time_unit) / iterations
    unit = events.time_unit * result.ratio.denominator
    times = [Fraction(int(value), unit) for value in result.potentials]
    earliest = min(times, default=Fraction(0))
    return KPeriodic(
        period,
        chosen,
        {
            name: tuple(times[firing] - earliest for firing in events.firings(actor))
            for actor, name in enumerate(lowered.names)
        },
        {name: period * k / repetitions[name] for name, k in chosen.items()},
    )


def _chosen(graph: Graph, cycles: int | Mapping[str, int]) -> dict[str, int]:
    given = dict.fromkeys(graph.actor, cycles) if isinstance(cycles, int) else cycles
    for name, k in given.items():
        if name not in graph.actor:
            raise CsdfError(f"cycles are given for {name!r}, which is not an actor")
        if k < 1:
            raise CsdfError(f"actor {name!r} has {k} cycles; give 1 or more")
    return {name: given.get(name, 1) for name in graph.actor}
