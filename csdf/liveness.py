"""Liveness: whether a graph can be executed for ever, and if not, why and what would help.

A consistent graph that completes one iteration is back where it started, so it can go on for ever;
one that cannot complete it deadlocks. The state in which it stops is the same for every order of
firing. In it, every actor that has not finished waits for tokens or space that only one other actor
can give, which waits too: following the waits leads round a cycle. Whatever frees the graph must
give something to a channel of that cycle.
"""

from __future__ import annotations

from dataclasses import dataclass

from csdf.consistency import repetition_vector
from csdf.graph import Channel, Graph
from csdf.lowered import Arc, Lowered, Origin, lower
from csdf.reverse_channels import mirrors
from csdf.untimed import STEP_LIMIT, Execution


@dataclass(frozen=True, slots=True)
class Wait:
    """`actor` cannot fire its `phase` (counted from 0): it lacks tokens, or space, in `channel`.

    `missing` counts tokens (or places); only a firing of `on` could provide them.
    """

    actor: str
    phase: int
    channel: str
    for_space: bool
    missing: int
    on: str

    def __str__(self) -> str:
        """A clause of a sentence."""
        what = "place" if self.for_space else "token"
        plural = "" if self.missing == 1 else "s"
        return (
            f"{self.actor!r} waits in phase {self.phase} for {self.missing} more {what}{plural} "
            f"in channel {self.channel!r}, which {self.on!r} would have to "
            f"{'free' if self.for_space else 'produce'}"
        )


@dataclass(frozen=True, slots=True)
class Remedy:
    """A change of one channel that makes the whole graph live, the smallest for that channel.

    `is_capacity` tells whether the numbers are its capacity or its initial tokens. Where the graph
    writes a capacity as a reverse channel, `reverse` names that: its initial tokens are to grow by
    `needed` − `now`.
    """

    channel: str
    is_capacity: bool
    now: int
    needed: int
    reverse: str | None = None

    def __str__(self) -> str:
        """A sentence."""
        if self.is_capacity:
            return (
                f"Channel {self.channel!r} needs a capacity of {self.needed} instead of {self.now}."
            )
        return (
            f"Channel {self.channel!r} would have to start with {self.needed} tokens "
            f"instead of {self.now}."
        )


@dataclass(frozen=True, slots=True)
class Deadlock:
    """Why a graph cannot complete an iteration.

    `waits` is all that the stuck actors wait for, `cycle` a part of it that closes on itself:
    each actor waits for the next, the last for the first. `remedies` are the single-channel changes
    that free the graph, the best first: larger capacities before more initial tokens (which change
    what the graph computes), then the smallest change. It is empty if no single channel can.
    """

    waits: tuple[Wait, ...]
    cycle: tuple[Wait, ...]
    remedies: tuple[Remedy, ...]

    def __str__(self) -> str:
        """The diagnosis in a few sentences."""
        story = "; ".join(map(str, self.cycle))
        if self.remedies:
            return f"Deadlock: {story}. {self.remedies[0]}"
        return f"Deadlock: {story}. No change of a single channel frees it."


def check_liveness(graph: Graph, step_limit: int = STEP_LIMIT) -> Deadlock | None:
    """None if `graph` is live, else the diagnosis.

    Raises `InconsistentGraphError`, and `TooLargeError` after `step_limit` steps, each of which is
    a firing or a batch of whole cycles of phases.
    """
    repetitions = repetition_vector(graph)
    lowered = lower(graph, concurrency=False)
    wanted = [repetitions[actor.name] * actor.phases for actor in graph.actors]
    execution = Execution(lowered, wanted, step_limit)
    if execution.run():
        return None
    mirrored = mirrors(graph)
    cycle = waiting_cycle(execution)
    remedies = [
        _describe_remedy(lowered.arcs[arc], amount, mirrored)
        for _, arc, _ in cycle
        if (amount := _needed(execution, arc, wanted)) is not None
    ]
    return Deadlock(
        tuple(
            _wait(lowered, execution.phase(actor), actor, arc, missing)
            for actor in execution.stuck
            for arc, missing in execution.missing(actor)
        ),
        tuple(
            _wait(lowered, execution.phase(actor), actor, arc, missing)
            for actor, arc, missing in cycle
        ),
        tuple(sorted(remedies, key=lambda r: (not r.is_capacity, r.needed - r.now, r.channel))),
    )


def _wait(graph: Lowered, phase: int, actor: int, number: int, missing: int) -> Wait:
    arc = graph.arcs[number]
    assert arc.channel is not None  # noqa: S101 (bounds on concurrency are not lowered here)
    for_space = arc.origin is Origin.SPACE
    on = graph.names[arc.source]
    return Wait(graph.names[actor], phase, arc.channel.name, for_space, missing, on)


def waiting_cycle(execution: Execution) -> list[tuple[int, int, int]]:
    """(actor, arc, missing) around a cycle of waits, starting at the actor of lowest number."""
    path: list[tuple[int, int, int]] = []
    place: dict[int, int] = {}
    actor = execution.stuck[0]
    while actor not in place:
        place[actor] = len(path)
        arc, missing = execution.missing(actor)[0]
        path.append((actor, arc, missing))
        actor = execution.graph.arcs[arc].source
    cycle = path[place[actor] :]
    first = cycle.index(min(cycle))
    return cycle[first:] + cycle[:first]


def _needed(stuck: Execution, arc: int, wanted: list[int]) -> int | None:
    """The fewest tokens more in `arc` that let the iteration complete; None if none do."""
    execution = Execution(stuck.graph, wanted)
    execution.tokens = list(stuck.tokens)
    execution.fired = list(stuck.fired)
    added = 0
    while True:
        # A change of one channel helps only if that channel is in every cycle of waits.
        missing = next(
            (missing for _, found, missing in waiting_cycle(execution) if found == arc), None
        )
        if missing is None:
            return None
        added += missing
        execution.tokens[arc] += missing
        if execution.run():
            return added


def _describe_remedy(arc: Arc, amount: int, mirrors: dict[str, Channel]) -> Remedy:
    channel = arc.channel
    assert channel is not None  # noqa: S101 (bounds on concurrency are not lowered here)
    if arc.origin is Origin.SPACE:
        assert channel.capacity is not None  # noqa: S101 (or there were no such arc)
        return Remedy(channel.name, True, channel.capacity, channel.capacity + amount)
    if channel.name in mirrors:
        forward = mirrors[channel.name]
        now = channel.initial_tokens + forward.initial_tokens
        return Remedy(forward.name, True, now, now + amount, channel.name)
    tokens = channel.initial_tokens
    return Remedy(channel.name, False, tokens, tokens + amount)
