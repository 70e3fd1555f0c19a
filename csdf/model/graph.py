"""Cyclo-static dataflow (CSDF) graphs: actors with phases, channels with rates per phase.

An actor fires its phases 0, 1, …, P − 1, 0, … in turn. Firing phase p takes `consumption[p]`
tokens from each input channel at its start, lasts `execution_times[p]`, and puts `production[p]`
tokens into each output channel at its end. A firing claims space in a bounded channel at its start
and frees space at its end, so a capacity acts like a reverse channel that starts with
capacity − initial tokens.

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
    """An actor, with the execution time of each of its phases (exact, in any unit, ≥ 0).

    `concurrency` is the largest number of its firings that may overlap: 1 for a device that runs
    one phase at a time, None for no bound (like an actor without a self-channel in SDF3).

    >>> from fractions import Fraction
    >>> Actor("camera", (Fraction(1, 30),), concurrency=1).phases
    1
    """

    name: str
    execution_times: tuple[Fraction, ...]
    concurrency: int | None = None

    @property
    def phases(self) -> int:
        """The number of phases."""
        return len(self.execution_times)


@dataclass(frozen=True, slots=True)
class Channel:
    """A FIFO from `source` to `target`.

    `production` has one entry per phase of the source, `consumption` one per phase of the target;
    all are numbers of tokens ≥ 0. `capacity` is in tokens, None if unbounded; `token_bytes` is the
    size of one token.

    >>> Channel("rows", "camera", "filter", (4,), (1, 3), capacity=8).consumption
    (1, 3)
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
    """A graph of actors and channels, which is checked when it is made.

    Raises `GraphError`, whose message is a sentence.

    >>> from fractions import Fraction
    >>> camera, filter_ = Actor("camera", (Fraction(2),)), Actor("filter", (Fraction(1),) * 2)
    >>> rows = Channel("rows", "camera", "filter", (4,), (1, 3))
    >>> Graph("pipeline", (camera, filter_), (rows,)).channel["rows"].target
    'filter'
    >>> Graph("pipeline", (camera,), (rows,))
    Traceback (most recent call last):
    csdf.errors.GraphError: channel 'rows': its target 'filter' is not an actor
    """

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
                raise GraphError(f"channel {channel.name!r}: its {end} {name!r} is not an actor")
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
