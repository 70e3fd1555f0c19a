"""Decide whether a graph can be executed for ever; explain a deadlock and what would remove it.

A consistent graph that completes one iteration is back in its initial state, so it is live; one
that cannot complete it deadlocks. The state in which it stops is the same for every order of
firing. There, every unfinished actor waits for tokens or space that only one other actor can
provide, and that actor waits too; so following the waits leads to a cycle. Any change that removes
the deadlock adds tokens or space to a channel of that cycle.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from csdf.errors import DeadlockError, TooLargeError
from csdf.execution.untimed import STEP_LIMIT, Execution, waiting_cycle
from csdf.model.channels import reverse_channels
from csdf.model.consistency import repetition_vector
from csdf.model.graph import Channel, Graph
from csdf.model.graph_algorithms import reachable
from csdf.model.lowered import Arc, Lowered, Origin, lower

SHOWN = 8
"""Largest number of waits that a message lists."""


@dataclass(frozen=True, slots=True)
class Wait:
    """A reason why `actor` cannot fire its `phase` (counted from 0).

    It lacks `missing` tokens, or places if `for_space`, in `channel`, which only actor `on` could
    provide. If `channel` stands for the capacity of another channel, `room_in` is that one.
    """

    actor: str
    phase: int
    channel: str
    for_space: bool
    missing: int
    on: str
    room_in: str | None = None

    def __str__(self) -> str:
        """Describe the wait in a clause."""
        what = "place" if self.for_space else "token"
        plural = "" if self.missing == 1 else "s"
        room = "" if self.room_in is None else f" (room in {self.room_in!r})"
        return (
            f"{self.actor!r} waits in phase {self.phase} for {self.missing} more {what}{plural} "
            f"in channel {self.channel!r}{room}, which {self.on!r} would have to "
            f"{'free' if self.for_space else 'produce'}"
        )


@dataclass(frozen=True, slots=True)
class Remedy:
    """The smallest change of one channel that makes the whole graph live.

    The numbers are the channel's capacity if `is_capacity`, otherwise its initial tokens. If the
    capacity is expressed as a reverse channel, that is `reverse`, whose initial tokens have to grow
    by `needed` − `now`. Tokens occupy places: `room` is the capacity that the channel needs with
    its new tokens, if it is more than the present one.
    """

    channel: str
    is_capacity: bool
    now: int
    needed: int
    reverse: str | None = None
    room: int | None = None

    def __str__(self) -> str:
        """Describe the change in a sentence."""
        if self.is_capacity:
            return (
                f"Channel {self.channel!r} needs a capacity of {self.needed} instead of {self.now}."
            )
        tokens = "1 token" if self.needed == 1 else f"{self.needed} tokens"
        more = "" if self.room is None else f", and needs a capacity of {self.room} then"
        return (
            f"Channel {self.channel!r} would have to start with {tokens} instead of "
            f"{self.now}{more}."
        )


@dataclass(frozen=True, slots=True)
class Deadlock:
    """Why a graph cannot complete an iteration.

    `waits` are all waits of the unfinished actors, `cycle` those that form a cycle: each actor
    waits for the next, the last for the first. `remedies` are the changes of a single channel that
    remove the deadlock, the best first: larger capacities before more initial tokens (which change
    what the graph computes), then the smallest change. If there are none, `together` may be changes
    of several channels that do so together (`remedies_together`).
    """

    waits: tuple[Wait, ...]
    cycle: tuple[Wait, ...]
    remedies: tuple[Remedy, ...]
    together: tuple[Remedy, ...] = ()

    def __str__(self) -> str:
        """Describe the deadlock and its remedies in a few sentences."""
        more = f"; and so on, {len(self.cycle)} in all" if len(self.cycle) > SHOWN else ""
        return f"Deadlock: {'; '.join(map(str, self.cycle[:SHOWN]))}{more}. {self.advice()}"

    def advice(self) -> str:
        """Return sentences that say what would remove the deadlock."""
        if self.remedies:
            return str(self.remedies[0])
        nothing = "No change of a single channel removes it."
        if not self.together:
            return nothing
        more = f" And so on, {len(self.together)} in all." if len(self.together) > SHOWN else ""
        return f"{nothing} Together these do: {' '.join(map(str, self.together[:SHOWN]))}{more}"


class DiagnosedError(DeadlockError):
    """The analysis needs a live graph, and this one has the `deadlock`."""

    def __init__(self, deadlock: Deadlock) -> None:
        super().__init__(str(deadlock))
        self.deadlock = deadlock


def check_liveness(graph: Graph, step_limit: int = STEP_LIMIT) -> Deadlock | None:
    """Return None if `graph` is live, else the diagnosis of its deadlock.

    Raises `InconsistentGraphError`, and `TooLargeError` after `step_limit` steps of one execution,
    each of which is a firing or a batch of whole cycles of phases.

    >>> from fractions import Fraction
    >>> from csdf import Actor, Channel, Graph
    >>> actors = Actor("a", (Fraction(1),)), Actor("b", (Fraction(1),))
    >>> there = Channel("there", "a", "b", (1,), (1,))
    >>> back = Channel("back", "b", "a", (1,), (1,))
    >>> print(check_liveness(Graph("ring", actors, (there, back))).remedies[0])
    Channel 'back' would have to start with 1 token instead of 0.
    >>> back = Channel("back", "b", "a", (1,), (1,), initial_tokens=1)
    >>> check_liveness(Graph("ring", actors, (there, back))) is None
    True
    """
    lowered, wanted = _iteration(graph)
    execution = Execution(lowered, wanted, step_limit)
    if execution.run():
        return None
    bounded = reverse_channels(graph)
    cycle = waiting_cycle(execution)
    around = dict.fromkeys(arc for _, arc, _ in cycle)
    remedies = [one for arc in around for one in _remedies(execution, arc, wanted, bounded)]
    remedies = list(dict.fromkeys(remedies))  # both arcs of a channel may be on the cycle
    return Deadlock(
        tuple(
            _wait(execution, actor, arc, missing, bounded)
            for actor in execution.stuck
            for arc, missing in execution.state.missing(actor)
        ),
        tuple(_wait(execution, actor, arc, missing, bounded) for actor, arc, missing in cycle),
        tuple(sorted(remedies, key=lambda r: (not r.is_capacity, r.needed - r.now, r.channel))),
    )


def refuse_deadlock(graph: Graph, step_limit: int = STEP_LIMIT) -> None:
    """Raise `DiagnosedError` unless `graph` is live; otherwise raises as `check_liveness` does."""
    deadlock = check_liveness(graph, step_limit)
    if deadlock is not None:
        raise DiagnosedError(deadlock)


def _iteration(graph: Graph) -> tuple[Lowered, list[int]]:
    """Return the lowered graph, and how often each actor fires in an iteration."""
    repetitions = repetition_vector(graph)
    firings = [repetitions[actor.name] * actor.phases for actor in graph.actors]
    return lower(graph, concurrency=False), firings


def _wait(
    execution: Execution, actor: int, number: int, missing: int, bounded: Mapping[str, Channel]
) -> Wait:
    graph = execution.state.graph
    arc = graph.arcs[number]
    assert arc.channel is not None  # noqa: S101 (bounds on concurrency are not lowered here)
    name = arc.channel.name
    room_in = bounded[name].name if arc.origin is Origin.TOKENS and name in bounded else None
    return Wait(
        graph.names[actor],
        execution.state.phase(actor),
        name,
        arc.origin is Origin.SPACE,
        missing,
        graph.names[arc.source],
        room_in,
    )


def _remedies(
    stuck: Execution, arc: int, wanted: list[int], bounded: Mapping[str, Channel]
) -> list[Remedy]:
    """Return the changes of the channel of `arc`, which is on a cycle of waits, that free all.

    Tokens that are added to a channel of limited capacity take places from it. So the smallest
    number of tokens with the present capacity is a least fixed point: every round adds the tokens
    that are needed with the room that those of the round before have left. Where neither capacity
    nor tokens alone help, both may: then the fewest tokens, and the least capacity for these.
    """
    graph = stuck.state.graph
    channel = graph.arcs[arc].channel
    assert channel is not None  # noqa: S101 (bounds on concurrency are not lowered here)
    if channel.capacity is None:
        more = _needed(stuck, arc, wanted, {})
        return [] if more is None else [_describe_remedy(graph.arcs[arc], more, bounded)]
    tokens = arc if graph.arcs[arc].origin is Origin.TOKENS else arc - 1
    space, found = tokens + 1, []
    room = _needed(stuck, space, wanted, {})
    if room is not None:
        found.append(_describe_remedy(graph.arcs[space], room, bounded))
    free, more, before = channel.capacity - channel.initial_tokens, 0, -1
    while more != before:
        before = more
        added = _needed(stuck, tokens, wanted, {space: -more})
        if added is None or added > free:
            break
        more = added
    else:
        return [*found, _describe_remedy(graph.arcs[tokens], more, bounded)]
    if room is None:
        plenty = wanted[graph.arcs[tokens].source] * max(channel.production)
        fewest = _needed(stuck, tokens, wanted, {space: plenty})
        if fewest is not None:
            least = _needed(stuck, space, wanted, {tokens: fewest, space: -free})
            assert least is not None  # noqa: S101 (that much room is enough)
            capacity = max(channel.capacity, channel.initial_tokens + fewest + least)
            alone = _describe_remedy(graph.arcs[tokens], fewest, bounded)
            found.append(replace(alone, room=capacity))
    return found


def _needed(
    stuck: Execution, arc: int, wanted: list[int], changed: Mapping[int, int]
) -> int | None:
    """Return the fewest more tokens in `arc` that let the iteration complete; None if none do.

    Beforehand, the number of tokens in `changed` is added to each arc.
    """
    execution = Execution(stuck.state.graph, wanted, stuck.step_limit)
    if all(amount >= 0 for amount in changed.values()):  # what has been fired can still be
        execution.state.tokens = list(stuck.state.tokens)
        execution.state.fired = list(stuck.state.fired)
    for other, amount in changed.items():
        execution.state.tokens[other] += amount
    added = 0
    while not execution.run():
        # A change of one channel helps only if that channel is in every cycle of waits.
        missing = next(
            (missing for _, found, missing in waiting_cycle(execution) if found == arc), None
        )
        if missing is None:
            return None
        added += missing
        execution.state.tokens[arc] += missing
    return added


def live_actors(graph: Graph, step_limit: int = STEP_LIMIT) -> list[str]:
    """Return the actors that can fire for ever; in a live graph all of them.

    A graph with at least one is deadlock-free, which is weaker than live: where channels have no
    bounds, actors that wait for none of those in a deadlock continue without them.

    Raises as `check_liveness` does.

    >>> from fractions import Fraction
    >>> from csdf import Actor, Channel, Graph
    >>> actors = Actor("a", (Fraction(1),)), Actor("b", (Fraction(1),))
    >>> channels = Channel("c", "a", "b", (1,), (1,)), Channel("d", "b", "b", (1,), (1,))
    >>> live_actors(Graph("stuck", actors, channels))
    ['a']
    """
    lowered, wanted = _iteration(graph)
    execution = Execution(lowered, wanted, step_limit)
    execution.run()
    behind: list[list[int]] = [[] for _ in wanted]
    for arc in lowered.arcs:
        behind[arc.source].append(arc.target)
    # An actor that cannot complete an iteration never will, so no actor downstream fires for ever.
    starved = reachable(behind.__getitem__, execution.stuck)
    return [name for actor, name in enumerate(lowered.names) if actor not in starved]


def _is_capacity(arc: Arc, bounded: Mapping[str, Channel]) -> bool:
    return arc.origin is Origin.SPACE or (arc.channel is not None and arc.channel.name in bounded)


def _describe_remedy(arc: Arc, amount: int, bounded: Mapping[str, Channel]) -> Remedy:
    channel = arc.channel
    assert channel is not None  # noqa: S101 (bounds on concurrency are not lowered here)
    if arc.origin is Origin.SPACE:
        assert channel.capacity is not None  # noqa: S101 (otherwise no such arc would exist)
        return Remedy(channel.name, True, channel.capacity, channel.capacity + amount)
    if channel.name in bounded:
        forward = bounded[channel.name]
        now = channel.initial_tokens + forward.initial_tokens
        return Remedy(forward.name, True, now, now + amount, channel.name)
    tokens = channel.initial_tokens
    return Remedy(channel.name, False, tokens, tokens + amount)


def remedies_together(graph: Graph, effort: int = 1_000_000) -> tuple[Remedy, ...]:
    """Return changes of several channels that together remove a deadlock.

    First the function adds the initial tokens without which no capacities suffice, then the
    capacities that are needed with these. In both cases it adds what is missing in one channel of a
    cycle of waits after another, where least is missing, and then makes each change as small as the
    others allow, until `effort` firings are spent. It returns no change if the first part alone
    needs more firings.
    """
    lowered, wanted = _iteration(graph)
    bounded = reverse_channels(graph)
    search = _Together(lowered, wanted, effort)
    arcs = range(len(lowered.arcs))
    capacities = [arc for arc in arcs if _is_capacity(lowered.arcs[arc], bounded)]
    plenty = {arc: search.plenty(arc) for arc in capacities}
    try:
        tokens = search.smallest(sorted(set(arcs) - set(capacities)), plenty)
        # Added tokens occupy places that were free.
        occupied = {
            arc + 1: -min(amount, lowered.arcs[arc + 1].tokens)
            for arc, amount in tokens.items()
            if arc + 1 in plenty and lowered.arcs[arc + 1].origin is Origin.SPACE
        }
        room = search.smallest(capacities, {**tokens, **occupied})
    except TooLargeError:
        return ()
    described = []
    for arc, amount in tokens.items():
        one = _describe_remedy(lowered.arcs[arc], amount, bounded)
        channel = lowered.arcs[arc].channel
        if arc + 1 in occupied and channel is not None and channel.capacity is not None:
            capacity = channel.capacity + amount + occupied[arc + 1] + room.pop(arc + 1, 0)
            one = replace(one, room=capacity if capacity > channel.capacity else None)
        described.append(one)
    described += [_describe_remedy(lowered.arcs[arc], room[arc], bounded) for arc in room]
    return tuple(sorted(described, key=lambda r: (not r.is_capacity, r.needed - r.now, r.channel)))


class _Together:
    """The search for the smallest changes of several arcs; `effort` counts firings."""

    def __init__(self, graph: Lowered, wanted: Sequence[int], effort: int) -> None:
        self._graph, self._wanted = graph, wanted
        self._effort = self._left = effort

    def plenty(self, arc: int) -> int:
        """Return a number of tokens with which nothing waits for more in an iteration."""
        one = self._graph.arcs[arc]
        return self._wanted[one.target] * max(one.consumption)

    def smallest(self, arcs: Sequence[int], given: Mapping[int, int]) -> dict[int, int]:
        """Return small changes of `arcs` that let an iteration complete with the changes `given`.

        They must exist. Raises `TooLargeError`.
        """
        execution, added = self._changed(given), dict[int, int]()
        while not execution.run():
            around = [(missing, arc) for _, arc, missing in waiting_cycle(execution)]
            missing, arc = min((missing, arc) for missing, arc in around if arc in arcs)
            added[arc] = added.get(arc, 0) + missing
            execution.state.tokens[arc] += missing
        firings = sum(self._wanted)
        for arc in sorted(added, key=lambda arc: (-added[arc], arc)):
            low, high = 0, added[arc]
            while low < high and self._left >= firings:
                self._left -= firings
                added[arc] = (low + high) // 2
                if self._changed(given, added).run():
                    high = added[arc]
                else:
                    low = added[arc] + 1
            added[arc] = high
        return {arc: amount for arc, amount in added.items() if amount}

    def _changed(self, *changes: Mapping[int, int]) -> Execution:
        execution = Execution(self._graph, self._wanted, self._effort)
        for change in changes:
            for arc, amount in change.items():
                execution.state.tokens[arc] += amount
        return execution
