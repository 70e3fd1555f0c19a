"""Run all analyses of a graph that the command `csdf analyze` prints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from fractions import Fraction

from csdf.errors import (
    CsdfError,
    DeadlockError,
    InconsistentGraphError,
    PeriodBoundsError,
    TooLargeError,
)
from csdf.execution.liveness import (
    Deadlock,
    DiagnosedError,
    Remedy,
    live_actors,
    remedies_together,
)
from csdf.model.consistency import connected_parts, firings, repetition_vector
from csdf.model.graph import Graph
from csdf.timing.cycle_ratio import EFFORT
from csdf.timing.latency import Latency
from csdf.timing.slack import slack
from csdf.timing.throughput import (
    EXECUTED_AT_FIRST,
    EXECUTION_LIMIT,
    CycleStep,
    accumulating_channels,
    actor_periods,
    require_live,
    throughput,
)

SLACK_WORK = 300_000
"""Work up to which `analyze` computes slack (see `csdf.timing.slack`)."""


@dataclass(frozen=True)
class Analysis:
    """The result of `analyze`.

    - An inconsistent graph has an `inconsistency`, which is a sentence, and no `repetitions`.
    - A graph that deadlocks has a `deadlock` and no `period`. If the diagnosis would take too many
      steps, `deadlock` is only a sentence.
    - If the exact period would take too many steps, `unknown` is a sentence that says so, and
      `bounds` are proved bounds on the period (upper one None: not known). Without `bounds`, not
      even liveness is known.
    - `slack` is as in `csdf.timing.slack`; None if it was not computed. `latency` is None unless
      the caller adds it.
    - `parts` are the parts of the graph that no channel joins, if it has several: each is its
      actors and its period. Their iterations have nothing to do with each other.
    - `throughput` has, for graphs of several parts or where the caller asks for it, the firings of
      each actor per unit of time in the long run (None: nothing bounds them).
    - `accumulating` are the channels in which tokens pile up without end in self-timed execution,
      where `throughput` is known.
    - `live_actors` are, of a graph that deadlocks, the actors that fire for ever nevertheless.
    - `untimed` are actors without execution times. If there are any, only consistency and liveness
      are analysed.
    """

    inconsistency: str | None
    repetitions: Mapping[str, int] | None
    phase_firings: int | None
    deadlock: Deadlock | str | None
    period: Fraction | None
    critical: tuple[CycleStep, ...]
    slack: Mapping[str, Fraction | None] | None = None
    latency: Latency | None = None
    unknown: str | None = None
    bounds: tuple[Fraction, Fraction | None] | None = None
    untimed: Sequence[str] = ()
    parts: Sequence[tuple[Sequence[str], Fraction]] = ()
    throughput: Mapping[str, Fraction | None] | None = None
    accumulating: Sequence[str] | None = None
    live_actors: Sequence[str] = ()

    @property
    def live(self) -> bool | None:
        """Whether the graph can be executed for ever; None if that is not known."""
        if self.unknown is not None and self.bounds is None:
            return None
        if self.untimed:
            return self.inconsistency is None and self.deadlock is None
        return self.period is not None or self.bounds is not None

    def as_json(self) -> dict[str, object]:
        """Return what the command `csdf` writes; the keys are part of its interface."""
        return {
            "consistent": self.inconsistency is None,
            "inconsistency": self.inconsistency,
            "repetition_vector": self.repetitions,
            "phase_firings": self.phase_firings,
            "live": self.live,
            "period": self.period,
            "period_bounds": self.bounds
            and dict(zip(("at_least", "at_most"), self.bounds, strict=True)),
            "critical_cycle": list(map(asdict, self.critical)),
            "slack": self.slack,
            "latency": self.latency and asdict(self.latency),
            "parts": [{"actors": actors, "period": period} for actors, period in self.parts],
            "throughput": self.throughput,
            "accumulating": self.accumulating,
            "live_actors": self.live_actors,
            "deadlock": _deadlock_as_json(self.deadlock),
            "untimed": self.untimed,
        }


def analyze(
    graph: Graph,
    slack_work: int = SLACK_WORK,
    effort: int = EFFORT,
    untimed: Sequence[str] = (),
    *,
    each_actor: bool = False,
) -> Analysis:
    """Analyse consistency, liveness, throughput and, within `slack_work` steps, slack of `graph`.

    `effort` is as in `csdf.timing.throughput`. If the actors `untimed` have no execution times,
    only consistency and liveness are analysed. The throughput of each actor is computed if
    `each_actor`, or if the graph has several parts that no channel joins.

    Raises `TooLargeError` if the numbers of the repetition vector are too large for any analysis.

    >>> from fractions import Fraction
    >>> from csdf import Actor, Channel, Graph
    >>> actors = Actor("p", (Fraction(2),), 1), Actor("c", (Fraction(1), Fraction(3)), 1)
    >>> graph = Graph("pair", actors, (Channel("t", "p", "c", (2,), (1, 1), capacity=2),))
    >>> found = analyze(graph)
    >>> found.live, found.period, found.slack
    (True, Fraction(6, 1), {'p': Fraction(0, 1), 'c': Fraction(0, 1)})
    >>> stuck = Graph("pair", actors, (Channel("t", "p", "c", (2,), (1, 1), capacity=1),))
    >>> print(analyze(stuck).deadlock.remedies[0])
    Channel 't' needs a capacity of 2 instead of 1.
    """
    try:
        repetitions = repetition_vector(graph)
    except InconsistentGraphError as error:
        return Analysis(str(error), None, None, None, None, ())
    count = firings(graph, repetitions)
    if untimed:
        return _untimed(graph, Analysis(None, repetitions, count, None, None, (), untimed=untimed))
    try:
        found = throughput(graph, effort=effort)
    except DeadlockError as error:
        return _dead(graph, Analysis(None, repetitions, count, None, None, ()), error)
    except TooLargeError as error:
        bounds = (error.at_least, error.at_most) if isinstance(error, PeriodBoundsError) else None
        return Analysis(None, repetitions, count, None, None, (), unknown=str(error), bounds=bounds)
    result = Analysis(
        None,
        repetitions,
        count,
        None,
        found.period,
        found.critical,
        _slack(graph, slack_work, found.period),
    )
    joined = connected_parts(graph)
    if len(joined) == 1 and not each_actor:
        return result
    try:
        periods = actor_periods(graph, effort)
    except PeriodBoundsError as error:  # of a component that is not the slowest
        return replace(result, unknown=str(error), bounds=(found.period, found.period))
    rates = {
        actor.name: repetitions[actor.name] * actor.phases / periods[actor.name]
        if periods[actor.name]
        else None
        for actor in graph.actors
    }
    parts = [(names, max(periods[name] for name in names)) for names in joined]
    return replace(
        result,
        throughput=rates,
        accumulating=accumulating_channels(graph, periods),
        parts=parts if len(parts) > 1 else (),
    )


def _untimed(graph: Graph, consistent: Analysis) -> Analysis:
    """Return `consistent`, the analysis so far, completed by whether the graph is live."""
    try:
        require_live(graph)
    except DeadlockError as error:
        return _dead(graph, consistent, error)
    except TooLargeError as error:
        return replace(consistent, unknown=str(error))
    return consistent


def stuck(graph: Graph, sentence: str) -> Analysis:
    """Return the analysis of a consistent graph that deadlocks, for the reason in `sentence`."""
    repetitions = repetition_vector(graph)
    return Analysis(None, repetitions, firings(graph, repetitions), sentence, None, ())


def _slack(graph: Graph, work: int, period: Fraction) -> Mapping[str, Fraction | None] | None:
    try:
        return slack(graph, work, period)
    except CsdfError:  # too large, or firings that overtake each other
        return None


def _dead(graph: Graph, consistent: Analysis, error: DeadlockError) -> Analysis:
    """Return `consistent`, the analysis so far, completed by the deadlock.

    Where no execution reached the deadlock within its limit, which a proof has shown, none is
    attempted that takes long.
    """
    deadlock: Deadlock | str = str(error)
    steps = EXECUTED_AT_FIRST
    if isinstance(error, DiagnosedError):
        deadlock, steps = _remedied(graph, error.deadlock), EXECUTION_LIMIT
    try:
        alive = live_actors(graph, steps)
    except TooLargeError:
        alive = []
    return replace(consistent, deadlock=deadlock, live_actors=alive)


def _remedied(graph: Graph, deadlock: Deadlock) -> Deadlock:
    """Add changes of several channels together where no change of a single channel helps."""
    return deadlock if deadlock.remedies else replace(deadlock, together=remedies_together(graph))


def _deadlock_as_json(deadlock: Deadlock | str | None) -> object:
    if deadlock is None:
        return None
    if isinstance(deadlock, str):
        return {"diagnosis": deadlock, "waits": [], "cycle": [], "remedies": [], "together": []}
    return {
        "diagnosis": str(deadlock),
        "waits": list(map(asdict, deadlock.waits)),
        "cycle": list(map(asdict, deadlock.cycle)),
        "remedies": _remedies_as_json(deadlock.remedies),
        "together": _remedies_as_json(deadlock.together),
    }


def _remedies_as_json(remedies: Sequence[Remedy]) -> list[dict[str, object]]:
    return [
        {
            "channel": remedy.channel,
            "change": "capacity" if remedy.is_capacity else "initial tokens",
            "now": remedy.now,
            "needed": remedy.needed,
            "reverse_channel": remedy.reverse,
            "capacity_needed": remedy.room,
        }
        for remedy in remedies
    ]
