"""Execute the prologue of static orders on demand, firing by firing.

To bring a processor past its prologue, the engine fires the next entry of its order, and before it
whatever that entry waits for, but nothing else. If these demands close a cycle, no order of
firing helps: the orders deadlock, and the waits around the cycle explain why.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from csdf.errors import DeadlockError, TooLargeError
from csdf.execution.token_state import TokenState
from csdf.model.graph import Graph
from csdf.model.lowered import Arc, Origin, lower
from csdf.model.order_entries import Slot, State

FIRING_LIMIT = 2_000_000
"""Firings of a prologue at most."""


@dataclass
class PrologueRun:
    """A prologue under way; `passed` counts the entries behind each processor, skipped or not."""

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
        """Fire `what` once, a processor or an actor in no order, and all that it waits for first.

        Raises `DeadlockError` and `TooLargeError`.
        """
        asked: list[str | int] = [what]
        because: list[str] = []
        while asked:
            actor = self._next_actor(asked[-1])
            blocker, reason = self._blocker(asked[-1], actor)
            if blocker is None:
                self._fire(actor)
                asked.pop()
                if because:
                    because.pop()
                continue
            because.append(reason)
            if blocker in asked:
                cycle = "; ".join(because[asked.index(blocker) :][:6])
                raise DeadlockError(f"the orders deadlock: {cycle}")
            asked.append(blocker)

    def _next_actor(self, who: str | int) -> int:
        if isinstance(who, int):
            return who
        order = self.orders[who]
        return self._number[order[self.passed[who] % len(order)].actor]

    def _blocker(self, who: str | int, actor: int) -> tuple[str | int | None, str]:
        """Return who has to fire before `actor` can fire for `who`, and why; None if nobody."""
        firing = self._state.phase(actor)
        if isinstance(who, str):
            order = self.orders[who]
            wanted = order[self.passed[who] % len(order)].firing
            if wanted != firing:
                name = self._names[actor]
                return self._who_fires(actor), (
                    f"firing {wanted} of {name!r} waits for firing {firing} of {name!r}"
                )
        for number, _ in self._state.missing(actor)[:1]:
            arc = self._lowered.arcs[number]
            return self._who_fires(arc.source), self._reason(actor, arc)
        return None, ""

    def _who_fires(self, actor: int) -> str | int:
        firing = self._state.phase(actor)
        return self._owner.get((actor, firing), actor)

    def _reason(self, actor: int, arc: Arc) -> str:
        what = "room" if arc.origin is Origin.SPACE else "tokens"
        channel = arc.channel.name if arc.channel is not None else ""
        other = self._who_fires(arc.source)
        comes = "" if isinstance(other, int) else f", whose turn on {other!r} has not come"
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
        """Pass the entries whose iteration would be a negative one."""
        order = self.orders[processor]
        while self.passed[processor] // len(order) < order[self.passed[processor] % len(order)].lag:
            self.passed[processor] += 1
