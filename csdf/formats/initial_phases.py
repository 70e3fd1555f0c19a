"""Bring a graph into the state after initial phases, which its actors fire once, before the cycle.

The K-Iter tool writes them before a semicolon (`4,4;1,2,1`). The tokens that they put into a
channel stay there and those that they take are gone, so the graph without them starts with these
tokens instead. It is live if the initial phases can be fired (other actors may have to fire phases
of their cycles in between) and if it is live itself; and in the long run it is as fast. It is the
initial state that differs: what happens before it, as the latency of the first iteration, is lost.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from csdf.errors import GraphError
from csdf.model.graph import Channel, Graph

Ends = tuple[Sequence[int], Sequence[int]]
"""The rates of the initial phases of a channel's source, and of its target."""

STEP_LIMIT = 1_000_000
"""Firings, and waits for others, after which the search for an order of firings ends."""


def after_initial_phases(graph: Graph, ends: Mapping[str, Ends]) -> Graph:
    """Return `graph` with the tokens that the initial phases in `ends`, by channel, leave.

    All channels must be unbounded. Raises `GraphError` if the initial phases deadlock, or if they
    take tokens from a channel that only a later phase of the cycle puts there.
    """
    _Execution(graph, ends).fire_all()
    channels = []
    for channel in graph.channels:
        production, consumption = ends.get(channel.name, ((), ()))
        tokens = channel.initial_tokens + sum(production) - sum(consumption)
        if tokens < 0:
            raise GraphError(
                f"channel {channel.name!r}: the initial phases of {channel.target!r} take "
                f"{-tokens} tokens more than the channel holds and those of {channel.source!r} "
                f"put; move phases of {channel.source!r} from its cycle before the semicolon"
            )
        channels.append(replace(channel, initial_tokens=tokens))
    return replace(graph, channels=tuple(channels))


class _Execution:
    """Fires initial phases, and of the others only what an initial phase waits for."""

    def __init__(self, graph: Graph, ends: Mapping[str, Ends]) -> None:
        self._ends = {c.name: ends.get(c.name, ((), ())) for c in graph.channels}
        self._tokens = {c.name: c.initial_tokens for c in graph.channels}
        self._fired = dict.fromkeys(graph.actor, 0)
        self._into: dict[str, list[Channel]] = {name: [] for name in graph.actor}
        self._out_of: dict[str, list[Channel]] = {name: [] for name in graph.actor}
        self._wanted = dict.fromkeys(graph.actor, 0)
        for channel in graph.channels:
            self._into[channel.target].append(channel)
            self._out_of[channel.source].append(channel)
            for end, initial in zip(
                (channel.source, channel.target), self._ends[channel.name], strict=True
            ):
                self._wanted[end] = max(self._wanted[end], len(initial))

    def fire_all(self) -> None:
        """Fire all initial phases. Raises `GraphError` if they deadlock or take too long."""
        steps = 0
        for actor, wanted in self._wanted.items():
            while self._fired[actor] < wanted:
                waiting = [actor]
                while waiting:
                    steps += 1
                    on = self._lacking(waiting[-1])
                    if on is None:
                        self._fire(waiting.pop())
                    elif steps > STEP_LIMIT:
                        raise GraphError(
                            f"the initial phases take more than {STEP_LIMIT} firings to fire"
                        )
                    elif on in waiting:
                        around = ", ".join(map(repr, waiting[waiting.index(on) :]))
                        raise GraphError(f"the initial phases deadlock: {around} wait for tokens")
                    else:
                        waiting.append(on)

    def _rate(self, actor: str, initial: Sequence[int], cycle: Sequence[int]) -> int:
        fired = self._fired[actor]
        if fired < len(initial):
            return initial[fired]
        return cycle[(fired - len(initial)) % len(cycle)]

    def _lacking(self, actor: str) -> str | None:
        """Return an actor that must put tokens before `actor` can fire, None if it can."""
        for channel in self._into[actor]:
            _, initial = self._ends[channel.name]
            if self._tokens[channel.name] < self._rate(actor, initial, channel.consumption):
                return channel.source
        return None

    def _fire(self, actor: str) -> None:
        for channel in self._into[actor]:
            _, initial = self._ends[channel.name]
            self._tokens[channel.name] -= self._rate(actor, initial, channel.consumption)
        for channel in self._out_of[actor]:
            initial, _ = self._ends[channel.name]
            self._tokens[channel.name] += self._rate(actor, initial, channel.production)
        self._fired[actor] += 1
