"""Write the certificate of a graph: what another program needs to check its analysis.

A certificate has no claim that its own data does not prove (docs/certificates.md has the format;
`csdf.certificates.check` is a checker). The analyser's results are turned into statements that the
definitions can check: an untimed execution into a schedule, the critical cycle of the event graph
of all firings (`csdf.timing.event_graph`) into firings with their numbers, and its potentials into
start times.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from csdf.errors import InconsistentGraphError, TooLargeError
from csdf.execution.untimed import STEP_LIMIT, Execution, waiting_cycle
from csdf.model.channels import reverse_channels
from csdf.model.consistency import repetition_vector
from csdf.model.graph import Channel, Graph
from csdf.model.lowered import Lowered, lower, readable
from csdf.timing import event_graph
from csdf.timing.cycle_ratio import EFFORT, CycleRatio, maximum_cycle_ratio
from csdf.timing.event_graph import EventGraph
from csdf.timing.throughput import overtaking

FORMAT = "csdf-certificate 1"


@dataclass(frozen=True)
class Certificate:
    """A certificate, as a value for `json.dumps`, and sentences on what it leaves out and why."""

    content: dict[str, Any]
    left_out: tuple[str, ...] = ()

    @property
    def live(self) -> bool:
        """Whether it certifies that the graph is live, or that of a plan in all orders."""
        orders = self.content.get("orders", {"": self.content})
        return all("live" in order for order in orders.values())


def certify(graph: Graph, file: bytes, effort: int = EFFORT) -> Certificate:
    """Return the certificate of `graph`, which `file` contains as JSON.

    `effort` bounds the constraints between firings that are looked at to certify the period and the
    capacities, which are left out beyond. Raises `TooLargeError` if an iteration cannot be executed
    within `csdf.execution.untimed.STEP_LIMIT` steps.

    >>> from csdf import Actor, Channel
    >>> from csdf.formats import json_format
    >>> actors = Actor("a", (Fraction(2),), 1), Actor("b", (Fraction(3),), 1)
    >>> pair = Graph("pair", actors, (Channel("c", "a", "b", (1,), (1,), capacity=1),))
    >>> found = certify(pair, json_format.write(pair).encode()).content
    >>> found["live"], found["period"]["value"]
    ([['a', 1], ['b', 1]], '5')
    """
    head = {"format": FORMAT, "graph": hashlib.sha256(file).hexdigest()}
    try:
        repetitions = repetition_vector(graph)
    except InconsistentGraphError as error:
        return Certificate({**head, "inconsistent": list(error.channels)})
    counts = [repetitions[actor.name] for actor in graph.actors]
    return Certifier(graph, counts, effort).certificate(head, ("period", "capacities"))


class Certifier:
    """Certifies one consistent graph; `counts` is its repetition vector."""

    def __init__(self, graph: Graph, counts: Sequence[int], effort: int) -> None:
        self._graph, self._counts, self._effort = graph, counts, effort
        self._lowered = lower(graph)
        self._firings = [
            q * len(times) for q, times in zip(counts, self._lowered.times, strict=True)
        ]
        self._left = effort

    def certificate(self, head: dict[str, Any], claims: Collection[str]) -> Certificate:
        """Return `head` with whether the graph is live and, if it is, with these `claims`."""
        names = self._lowered.names
        content = {**head, "repetitions": dict(zip(names, self._counts, strict=True))}
        schedule, waits = self._executed(self._lowered)
        if waits is not None:
            return Certificate({**content, "deadlock": {"fired": schedule, "waits": waits}})
        content["live"] = schedule
        if not claims:
            return Certificate(content)
        left_out = []
        unordered = overtaking(self._lowered)
        work = event_graph.Builder(self._lowered, self._counts).work(self._counts)
        period: Fraction | None = None
        if unordered:
            left_out.append(
                f"the period, because firings of {names[min(unordered)]!r} may overtake each other"
            )
        elif work > self._effort:
            left_out.append(
                f"the period, because an iteration has {readable(work)} constraints between "
                f"firings; at most {self._effort} are examined (--effort)"
            )
        else:
            period, content["period"] = self._period()
        if "capacities" not in claims:
            return Certificate(content, tuple(left_out))
        capacities = {}
        for smaller in self._one_less():
            try:
                reason = self._too_small(smaller, period, work)
            except TooLargeError as error:
                left_out.append(f"capacities from {smaller.name!r} on, because {error}")
                break
            if reason is not None:
                capacities[smaller.name] = reason
        return Certificate({**content, "capacities": capacities}, tuple(left_out))

    def _executed(
        self, graph: Lowered, limit: int = STEP_LIMIT
    ) -> tuple[list[list[Any]], list[list[Any]] | None]:
        """Return a schedule, and the waits of a deadlock (None if it is a whole iteration)."""
        execution = Execution(graph, self._firings, limit)
        execution.schedule = []
        live = execution.run()
        schedule = [[graph.names[actor], count] for actor, count in execution.schedule]
        if live:
            return schedule, None
        around = waiting_cycle(execution)
        waits = [[graph.names[actor], *_kind(graph, arc)] for actor, arc, _ in around]
        return schedule, waits

    def _period(self) -> tuple[Fraction, dict[str, Any]]:
        """Return the period, and its certificate."""
        events, found = self._critical(self._lowered)
        assert found.ratio is not None  # noqa: S101 (the graph is live)
        period = found.ratio / events.time_unit
        starts = self._starts(events, found, period)
        every = [1] * len(self._counts)
        if self._counts != every:  # K = 1 is brief, where it is as fast
            few = event_graph.build(self._lowered, self._counts, every)
            ratio = period * few.time_unit / few.delay_unit
            brief = _solved(few, ratio)
            if brief.ratio == ratio:
                starts = self._starts(few, brief, period)
        cycle = self._cycle(self._lowered, events, found) if found.cycle else None
        return period, {"value": str(period), **starts, "cycle": cycle}

    def _critical(self, graph: Lowered) -> tuple[EventGraph, CycleRatio]:
        events = event_graph.build(graph, self._counts, self._counts)
        return events, _solved(events, Fraction(0))

    def _starts(self, events: EventGraph, found: CycleRatio, period: Fraction) -> dict[str, Any]:
        """Return the start times that the potentials of the event graph are, in whole units."""
        assert found.ratio is not None  # noqa: S101 (the graph is live)
        own = events.time_unit * found.ratio.denominator
        lengths = [len(events.firings(actor)) for actor in range(len(events.first))]
        turns = [
            (period * length / firings).denominator
            for length, firings in zip(lengths, self._firings, strict=True)
        ]
        unit = math.lcm(own, *turns)
        values = [int(value) * (unit // own) for value in found.potentials]
        return {
            "unit": unit,
            "starts": {
                name: values[first : first + length]
                for name, first, length in zip(
                    self._lowered.names, events.first, lengths, strict=True
                )
            },
        }

    def _cycle(self, graph: Lowered, events: EventGraph, found: CycleRatio) -> dict[str, Any]:
        """Return the critical cycle, of which each firing waits for the one before."""
        edges = list(reversed(found.cycle))  # potentials are walks to firings, so edges are too
        steps, iteration = [], 0
        for edge in edges:
            source = int(events.source[edge])
            actor = int(events.actors(events.source[edge : edge + 1])[0])
            firing = source - events.first[actor] + iteration * self._firings[actor]
            arc = int(events.arc[edge])
            kind = [None, "order"] if arc < 0 else _kind(graph, arc)
            steps.append([graph.names[actor], firing, *kind])
            iteration += int(events.delay[edge])
        return {"iterations": iteration, "steps": steps}

    def _one_less(self) -> Iterator[Channel]:
        """Yield the channels with one place less, or one token if they stand for a capacity."""
        reverse = reverse_channels(self._graph)
        for channel in self._graph.channels:
            if channel.name in reverse and channel.initial_tokens:
                yield replace(channel, initial_tokens=channel.initial_tokens - 1)
            elif channel.capacity is not None and channel.capacity > channel.initial_tokens:
                yield replace(channel, capacity=channel.capacity - 1)

    def _too_small(
        self, smaller: Channel, period: Fraction | None, work: int
    ) -> dict[str, Any] | None:
        """Return why this channel fails, None if it does not. Raises `TooLargeError`."""
        channels = tuple(smaller if c.name == smaller.name else c for c in self._graph.channels)
        less = lower(replace(self._graph, channels=channels))
        schedule, waits = self._executed(less, max(1, self._left))
        self._left -= len(schedule) + len(less.arcs)
        if waits is not None:
            return {"deadlock": {"fired": schedule, "waits": waits}}
        if period is None:
            return None
        if self._left < work:
            raise TooLargeError(f"{self._effort} constraints have been examined (--effort)")
        self._left -= work
        events, found = self._critical(less)
        assert found.ratio is not None  # noqa: S101 (it is live)
        if found.ratio / events.time_unit <= period:
            return None
        return {"cycle": self._cycle(less, events, found)}


def _solved(events: EventGraph, at_least: Fraction) -> CycleRatio:
    """Return the critical cycle; edges are reversed, so potentials are walks to each firing."""
    edges = events.nodes, events.target, events.source, events.time, events.delay
    return maximum_cycle_ratio(*edges, at_least=at_least)


def _kind(graph: Lowered, number: int) -> list[str | None]:
    arc = graph.arcs[number]
    return [None if arc.channel is None else arc.channel.name, arc.origin.value]
