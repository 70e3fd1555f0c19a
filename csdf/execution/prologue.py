"""Compute the state of a graph after the prologue of pipelined static orders.

In period n of a processor, an entry with offset l fires for iteration n − l. In the first l periods
there is no such iteration, and the entry is skipped; these periods are the **prologue**. After it,
each processor repeats a fixed list for ever. So the state after the prologue is that of a graph
with an ordinary static order, of which all long-run properties are the same.

The preferred state is one in which all processors are at the first entry of their lists, since
phases keep their numbers then (`_Periods`). Counting gives the number of periods that each
processor must have completed: each channel bounds how far its producer must be ahead, or its
consumer, for space. The least numbers that satisfy all bounds are taken. If the order is live from
that state on, it can also be kept from the beginning: whatever is fired in a period could have been
fired in every earlier one, and leaving out firings of negative iterations delays no other firing.

If there are no such numbers, the prologue is executed on demand (`PrologueRun`): to bring a
processor past its prologue, it fires the next entry of the order, and first whatever that entry
waits for, but nothing else. If these demands close a cycle, no order of firing helps: the orders
deadlock, and the waits around the cycle explain why.

Source: C. E. Leiserson and J. B. Saxe, "Retiming synchronous circuitry", Algorithmica, 1991; for
dataflow graphs, P. Murthy and E. A. Lee, "On the optimal blocking factor for blocked,
non-overlapped schedules", Asilomar, 1994.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from csdf.errors import DeadlockError, TooLargeError
from csdf.execution.token_state import TokenState
from csdf.model.graph import Graph
from csdf.model.lowered import Arc, Origin, lower, moved

FIRING_LIMIT = 2_000_000
"""Largest number of firings of a prologue."""

ROUNDS = 100
"""Increases of each number of periods, on average, after which the search gives up."""


@dataclass(frozen=True, slots=True)
class Slot:
    """An entry of an order: a firing of an actor, `lag` iterations behind the processor's period.

    `firing` is its index among the actor's firings of an iteration.
    """

    actor: str
    firing: int
    lag: int


@dataclass(frozen=True)
class State:
    """Firings by actor, tokens by channel, and the index of the next slot by processor."""

    fired: Mapping[str, int]
    tokens: Mapping[str, int]
    next: Mapping[str, int]


@dataclass
class PrologueRun:
    """A prologue in progress; `passed` counts the entries that each processor fired or skipped."""

    graph: Graph
    orders: Mapping[str, Sequence[Slot]]
    passed: dict[str, int] = field(init=False)

    def __post_init__(self) -> None:
        self._lowered = lower(self.graph, concurrency=False)
        self._names = self._lowered.names
        self._number = {name: i for i, name in enumerate(self._names)}
        self._state = TokenState(self._lowered)
        self._firings = 0
        self._owner = {
            (self._number[slot.actor], slot.firing): processor
            for processor, order in self.orders.items()
            for slot in order
        }
        self.passed = dict.fromkeys(self.orders, 0)
        for processor in self.orders:
            self._skip(processor)

    def state(self) -> State:
        """Return the state that has been reached."""
        tokens = {
            arc.channel.name: held
            for arc, held in zip(self._lowered.arcs, self._state.tokens, strict=True)
            if arc.channel is not None and arc.origin is Origin.TOKENS
        }
        fired = dict(zip(self._names, self._state.fired, strict=True))
        place = {p: self.passed[p] % len(order) for p, order in self.orders.items()}
        return State(fired, tokens, place)

    def demand(self, what: str | int) -> None:
        """Fire `what` once, after everything that it waits for.

        `what` is a processor, for the next entry of its order, or an actor in no order. Raises
        `DeadlockError` and `TooLargeError`.
        """
        demands: list[str | int] = [what]
        reasons: list[str] = []
        while demands:
            actor = self._next_actor(demands[-1])
            blocker, reason = self._blocker(demands[-1], actor)
            if blocker is None:
                self._fire(actor)
                demands.pop()
                if reasons:
                    reasons.pop()
                continue
            reasons.append(reason)
            if blocker in demands:
                cycle = "; ".join(reasons[demands.index(blocker) :][:6])
                raise DeadlockError(f"the orders deadlock: {cycle}")
            demands.append(blocker)

    def _next_actor(self, what: str | int) -> int:
        if isinstance(what, int):
            return what
        order = self.orders[what]
        return self._number[order[self.passed[what] % len(order)].actor]

    def _blocker(self, what: str | int, actor: int) -> tuple[str | int | None, str]:
        """Return what has to fire before `actor` can fire for `what`, and why; None if nothing."""
        firing = self._state.phase(actor)
        if isinstance(what, str):
            order = self.orders[what]
            wanted = order[self.passed[what] % len(order)].firing
            if wanted != firing:
                name = self._names[actor]
                return self._what_fires(actor), (
                    f"firing {wanted} of {name!r} waits for firing {firing} of {name!r}"
                )
        for number, _ in self._state.missing(actor)[:1]:
            arc = self._lowered.arcs[number]
            return self._what_fires(arc.source), self._reason(actor, arc)
        return None, ""

    def _what_fires(self, actor: int) -> str | int:
        firing = self._state.phase(actor)
        return self._owner.get((actor, firing), actor)

    def _reason(self, actor: int, arc: Arc) -> str:
        what = "room" if arc.origin is Origin.SPACE else "tokens"
        channel = arc.channel.name if arc.channel is not None else ""
        other = self._what_fires(arc.source)
        comes = "" if isinstance(other, int) else f", which is not yet next on {other!r}"
        by = self._names[arc.source]
        return f"{self._names[actor]!r} waits for {what} in {channel!r} from {by!r}{comes}"

    def _fire(self, actor: int) -> None:
        phase = self._state.phase(actor)
        owner = self._owner.get((actor, phase))
        self._state.consume(actor)
        self._state.produce(self._state.produces[actor][phase])
        self._firings += 1
        if self._firings > FIRING_LIMIT:
            raise TooLargeError(f"the prologue of the orders has more than {FIRING_LIMIT} firings")
        if owner is not None:
            self.passed[owner] += 1
            self._skip(owner)

    def _skip(self, processor: str) -> None:
        """Skip the entries of negative iterations."""
        order = self.orders[processor]
        while self.passed[processor] // len(order) < order[self.passed[processor] % len(order)].lag:
            self.passed[processor] += 1


def after_prologue(graph: Graph, orders: Mapping[str, Sequence[Slot]]) -> State:
    """Return the state of `graph` after the prologues of `orders`.

    An actor that is in an order must have one cycle of phases per iteration. Raises
    `DeadlockError` and `TooLargeError`.
    """
    state = _Periods(graph, orders).state()
    if state is not None:
        return state
    run = PrologueRun(graph, orders)
    for processor, order in orders.items():
        past = len(order) * max(slot.lag for slot in order)
        while run.passed[processor] < past:
            run.demand(processor)
    return run.state()


class _Periods:
    """The least number of periods that each processor must complete for a common boundary.

    For an actor in no order, a period is a cycle of its phases.
    """

    def __init__(self, graph: Graph, orders: Mapping[str, Sequence[Slot]]) -> None:
        self._lowered = lower(graph, concurrency=False)
        self._orders = orders
        number = {name: a for a, name in enumerate(self._lowered.names)}
        # Per actor: its processor (or itself), and the firings by which its offsets delay it.
        self._block: list[str | int] = list(range(len(number)))
        self._behind = [0] * len(number)
        self._ordered = [0] * len(number)
        self._split = False
        for processor, order in orders.items():
            for slot in order:
                actor = number[slot.actor]
                self._split |= self._block[actor] not in (actor, processor)
                self._block[actor] = processor
                self._behind[actor] += slot.lag
                self._ordered[actor] += 1
        for actor, ordered in enumerate(self._ordered):
            self._split |= ordered not in (0, len(self._lowered.times[actor]))
        self._periods: dict[str | int, int] = dict.fromkeys(self._block, 0)
        for processor, order in orders.items():
            self._periods[processor] = max(slot.lag for slot in order)

    def state(self) -> State | None:
        """Return the state at the least numbers of periods; None if there are none."""
        if self._split or not self._satisfied():
            return None
        fired = [self._fired(actor) for actor in range(len(self._block))]
        tokens = {
            arc.channel.name: _held(arc, fired[arc.source], fired[arc.target])
            for arc in self._lowered.arcs
            if arc.channel is not None and arc.origin is Origin.TOKENS
        }
        names = self._lowered.names
        return State(dict(zip(names, fired, strict=True)), tokens, dict.fromkeys(self._orders, 0))

    def _fired(self, actor: int) -> int:
        per_period = len(self._lowered.times[actor])
        return self._periods[self._block[actor]] * per_period - self._behind[actor]

    def _satisfied(self) -> bool:
        """Increase the periods until no channel holds less than 0; return False if that fails."""
        leads: dict[str | int, list[tuple[Arc, int]]] = {block: [] for block in self._periods}
        for arc in self._lowered.arcs:
            room = _held(arc, -self._behind[arc.source], -self._behind[arc.target])
            if self._block[arc.source] != self._block[arc.target]:
                leads[self._block[arc.target]].append((arc, room))
            elif room < 0:
                return False
        waiting = list(self._periods)
        queued = set(waiting)
        for block in waiting:  # grows meanwhile
            queued.discard(block)
            if len(waiting) > ROUNDS * len(self._periods):
                return False
            for arc, room in leads[block]:
                taken = sum(arc.consumption) * self._periods[block]
                other = self._block[arc.source]
                wanted = -(-(taken - room) // sum(arc.production))
                if wanted > self._periods[other]:
                    self._periods[other] = wanted
                    if other not in queued:
                        queued.add(other)
                        waiting.append(other)
        return True


def _held(arc: Arc, source_firings: int, target_firings: int) -> int:
    """Return the tokens in `arc` after these numbers of firings of its ends; may be negative."""
    put = moved(arc.production, source_firings)
    return arc.tokens + put - moved(arc.consumption, target_firings)
