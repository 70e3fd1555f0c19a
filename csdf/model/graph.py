"""A cyclo-static dataflow (CSDF) graph: actors with phases, channels with rates per phase.

An actor fires its phases 0, 1, …, P − 1, 0, … in turn. Firing phase p takes `consumption[p]`
tokens from each input channel at its start, lasts `execution_times[p]`, and puts `production[p]`
tokens into each output channel at its end. A bounded channel is the same as a reverse channel that
starts with capacity − initial tokens: space is claimed at the start of a firing and freed at its
end.

Source: G. Bilsen et al., "Cycle-static dataflow", IEEE Transactions on Signal Processing, 1996.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

from csdf.errors import GraphError


@dataclass(frozen=True, slots=True)
class Actor:
    """An actor and the execution time of each of its phases (exact, any unit, ≥ 0).

    `concurrency` bounds how many of its firings may overlap: 1 for a device that runs one phase at
    a time, None for no bound (the SDF3 format's meaning of an actor without a self-channel).
    """

    name: str
    execution_times: tuple[Fraction, ...]
    concurrency: int | None = None

    @property
    def phases(self) -> int:
        """Length of the actor's cycle."""
        return len(self.execution_times)


@dataclass(frozen=True, slots=True)
class Channel:
    """A FIFO from `source` to `target`.

    `production` has one entry per phase of the source, `consumption` one per phase of the target;
    all are token counts ≥ 0. `capacity` is in tokens, None if unbounded; `token_bytes` is the size
    of one token.
    """

    name: str
    source: str
    target: str
    production: tuple[int, ...]
    consumption: tuple[int, ...]
    initial_tokens: int = 0
    capacity: int | None = None
    token_bytes: int = 1


@dataclass(frozen=True)
class Graph:
    """Actors and channels; construction validates and raises `GraphError` in a sentence."""

    name: str
    actors: tuple[Actor, ...]
    channels: tuple[Channel, ...]

    def __post_init__(self) -> None:
        _refuse_twice("actor", (actor.name for actor in self.actors))
        _refuse_twice("channel", (channel.name for channel in self.channels))
        for actor in self.actors:
            if not actor.execution_times:
                raise GraphError(f"actor {actor.name!r} has no phase")
            if any(time < 0 for time in actor.execution_times):
                raise GraphError(f"actor {actor.name!r} has a negative execution time")
            if actor.concurrency is not None and actor.concurrency < 1:
                raise GraphError(f"actor {actor.name!r} has a concurrency below 1")
        for channel in self.channels:
            self._check_channel(channel)

    def _check_channel(self, channel: Channel) -> None:
        for end, name, rates in (
            ("source", channel.source, channel.production),
            ("target", channel.target, channel.consumption),
        ):
            if name not in self.actor:
                raise GraphError(f"channel {channel.name!r}: its {end} {name!r} is no actor")
            phases = self.actor[name].phases
            if len(rates) != phases:
                raise GraphError(
                    f"channel {channel.name!r} gives {len(rates)} rates for the {phases} phases "
                    f"of its {end} {name!r}"
                )
            if min(rates) < 0:
                raise GraphError(f"channel {channel.name!r} has a negative rate")
            if not any(rates):
                raise GraphError(f"channel {channel.name!r}: all rates of its {end} are zero")
        if channel.initial_tokens < 0:
            raise GraphError(f"channel {channel.name!r} starts with a negative number of tokens")
        if channel.token_bytes < 0:
            raise GraphError(f"channel {channel.name!r} has tokens of negative size")
        if channel.capacity is not None and channel.capacity < channel.initial_tokens:
            raise GraphError(
                f"channel {channel.name!r} has room for {channel.capacity} tokens "
                f"but starts with {channel.initial_tokens}"
            )

    @cached_property
    def actor(self) -> dict[str, Actor]:
        """Actors by name."""
        return {actor.name: actor for actor in self.actors}

    @cached_property
    def channel(self) -> dict[str, Channel]:
        """Channels by name."""
        return {channel.name: channel for channel in self.channels}


def _refuse_twice(kind: str, names: Iterable[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise GraphError(f"two {kind}s are called {name!r}")
        seen.add(name)
