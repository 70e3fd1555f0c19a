"""Executes the prologue of orders on demand, firing by firing, until no entry is skipped any more.

A processor is to come past its prologue; what its next firing waits for is fired first, by whoever
has to, and nothing else. If somebody waits for himself in the end, no order of firing helps: the
orders deadlock, and the waits on the way there tell why.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from csdf.errors import DeadlockError, TooLargeError
from csdf.graph import Graph
from csdf.lowered import Arc, Origin, lower, neighbours
from csdf.slots import Slot, State

FIRING_LIMIT = 2_000_000
"""Firings of a prologue at most."""


@dataclass
class PrologueRun:
    """A prologue under way; `passed` counts, per processor, the entries that lie behind it.

    Skipped ones are included.
    """

    graph: Graph
    orders: Mapping[str, Sequence[Slot]]
    passed: dict[str, int] = field(init=False)

    def __post_init__(self) -> None:
        self._lowered = lower(self.graph, concurrency=False)
        self._about = neighbours(self._lowered)
        self._names = self._lowered.names
        self._number = {name: i for i, name in enumerate(self._names)}
        self._tokens = [arc.tokens for arc in self._lowered.arcs]
        self._fired = [0] * len(self._names)
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
        """As it is now."""
        tokens = {
            arc.channel.name: held
            for arc, held in zip(self._lowered.arcs, self._tokens, strict=True)
            if arc.channel is not None and arc.origin is Origin.TOKENS
        }
        fired = dict(zip(self._names, self._fired, strict=True))
        place = {p: self.passed[p] % len(order) for p, order in self.orders.items()}
        return State(fired, tokens, place)

    def demand(self, what: str | int) -> None:
        """Has `what` fire once, a processor or an actor that is in no order, and all before it."""
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
        """Who has to fire before `actor` can on behalf of `who`, and why."""
        firing = self._fired[actor] % len(self._lowered.times[actor])
        if isinstance(who, str):
            order = self.orders[who]
            wanted = order[self.passed[who] % len(order)].firing
            if wanted != firing:
                name = self._names[actor]
                return self._who_fires(actor), (
                    f"firing {wanted} of {name!r} waits for firing {firing} of {name!r}"
                )
        for number, rate in self._about.takes[actor][firing]:
            if self._tokens[number] < rate:
                arc = self._lowered.arcs[number]
                return self._who_fires(arc.source), self._reason(actor, arc)
        return None, ""

    def _who_fires(self, actor: int) -> str | int:
        firing = self._fired[actor] % len(self._lowered.times[actor])
        return self._owner.get((actor, firing), actor)

    def _reason(self, actor: int, arc: Arc) -> str:
        what = "room" if arc.origin is Origin.SPACE else "tokens"
        channel = arc.channel.name if arc.channel is not None else ""
        other = self._who_fires(arc.source)
        comes = "" if isinstance(other, int) else f", whose turn on {other!r} has not come"
        by = self._names[arc.source]
        return f"{self._names[actor]!r} waits for {what} in {channel!r} from {by!r}{comes}"

    def _fire(self, actor: int) -> None:
        phase = self._fired[actor] % len(self._lowered.times[actor])
        owner = self._owner.get((actor, phase))
        for number, rate in self._about.takes[actor][phase]:
            self._tokens[number] -= rate
        for number, rate in self._about.gives[actor][phase]:
            self._tokens[number] += rate
        self._fired[actor] += 1
        self._firings += 1
        if self._firings > FIRING_LIMIT:
            raise TooLargeError(f"the prologue of the orders has more than {FIRING_LIMIT} firings")
        if owner is not None:
            self.passed[owner] += 1
            self._skip(owner)

    def _skip(self, processor: str) -> None:
        """Past the entries whose iteration would be a negative one."""
        order = self.orders[processor]
        while self.passed[processor] // len(order) < order[self.passed[processor] % len(order)].lag:
            self.passed[processor] += 1
