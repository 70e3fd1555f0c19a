"""Let the buffers of channels share memory where their lifetimes in a schedule do not overlap.

In a periodic schedule a channel needs room for the most tokens that it ever holds, and only while
it holds any: from the start of a firing that produces to the end of the one that consumes. Two
channels that never hold tokens at the same time may have the same addresses. A lifetime is taken
modulo the period, over all iterations from the first on. A firing without time holds its tokens for
an instant.

Placing the buffers in as little memory as possible is dynamic storage allocation, an NP-hard
problem. For some order the greedy placement is optimal: it places one buffer after the other, each
at the lowest address that is free of the buffers that live at the same time. So branch and bound
over orders finds an optimum. The largest sum of buffers that live at one time is a lower bound.

Source: P. K. Murthy, S. S. Bhattacharyya, "Shared buffer implementations of signal processing
systems using lifetime analysis techniques", IEEE Transactions on Computer-Aided Design, 2001.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from csdf.errors import CsdfError, TooLargeError
from csdf.model.channels import reverse_channels
from csdf.model.graph import Channel, Graph
from csdf.timing.schedule import Schedule

EFFORT = 100_000
"""Default of the largest number of buffers that are placed in the search."""

WORK_LIMIT = 10_000_000
"""Largest product of the firings of an iteration and the instants at which they start or end."""


@dataclass(frozen=True, slots=True)
class Buffer:
    """The memory of a channel, from `address` on, and the most `tokens` that it holds."""

    address: int
    size_bytes: int
    tokens: int


@dataclass(frozen=True, slots=True)
class SharedMemory:
    """The buffers by channel, their total memory, and a proved lower bound of it."""

    buffers: Mapping[str, Buffer]
    total_bytes: int
    at_least_bytes: int

    @property
    def separate_bytes(self) -> int:
        """The memory that the buffers would take if none shared any."""
        return sum(buffer.size_bytes for buffer in self.buffers.values())

    def as_json(self) -> dict[str, object]:
        """Return what the command `csdf` writes; the keys are part of its interface."""
        return {
            "total_bytes": self.total_bytes,
            "at_least_bytes": self.at_least_bytes,
            "separate_bytes": self.separate_bytes,
            "buffers": {
                name: {"address": one.address, "bytes": one.size_bytes, "tokens": one.tokens}
                for name, one in self.buffers.items()
            },
        }


def shared_memory(graph: Graph, schedule: Schedule, effort: int = EFFORT) -> SharedMemory:
    """Return addresses of the buffers of all channels of `graph` in a `schedule` of it.

    Reverse channels that stand for capacities (`csdf.model.channels`) have none.
    The search ends after `effort` steps with the best addresses that it has found.

    Raises `CsdfError` if the schedule's period is 0 or has several iterations, and `TooLargeError`.

    >>> from csdf import Actor, Channel, periodic_schedule
    >>> actors = tuple(Actor(name, (Fraction(1),), 1) for name in "abcd")
    >>> ends = ("x", "a", "b"), ("y", "b", "c"), ("z", "c", "d"), ("turn", "d", "a")
    >>> one = (1,), (1,)
    >>> channels = tuple(Channel(n, s, t, *one, int(n == "turn"), None, 8) for n, s, t in ends)
    >>> graph = Graph("ring", actors, channels)
    >>> found = shared_memory(graph, periodic_schedule(graph))
    >>> found.separate_bytes, found.total_bytes
    (32, 16)
    """
    if not schedule.period or schedule.iterations > 1:
        raise CsdfError(
            "buffers can share memory only in a schedule with a period above 0 in which no firings "
            "overtake each other"
        )
    instants = sorted(
        {
            time % schedule.period
            for actor in graph.actors
            for start, duration in _firings(actor.execution_times, schedule.starts[actor.name])
            for time in (start, start + duration)
        }
    )
    latest = max((start for own in schedule.starts.values() for start in own), default=Fraction(0))
    longest = max((t for a in graph.actors for t in a.execution_times), default=Fraction(0))
    turns = math.floor((latest + longest) / schedule.period) + 2
    if turns * len(instants) * sum(map(len, schedule.starts.values())) > WORK_LIMIT:
        raise TooLargeError(
            f"the lifetimes of buffers at {len(instants)} instants of an iteration are too many"
        )
    bounds = reverse_channels(graph)
    channels = [c for c in graph.channels if c.name not in bounds]
    lives = {c.name: _life(graph, c, schedule, instants, turns) for c in channels}
    sizes = {c.name: max(lives[c.name], default=0) * c.token_bytes for c in channels}
    names = [name for name, size in sizes.items() if size]
    held = [sum(1 << i for i, tokens in enumerate(lives[name]) if tokens) for name in names]
    placing = _Placing([sizes[name] for name in names], held, effort)
    addresses = dict(zip(names, placing.search(), strict=True))
    return SharedMemory(
        {
            c.name: Buffer(addresses.get(c.name, 0), sizes[c.name], max(lives[c.name], default=0))
            for c in channels
        },
        placing.total,
        placing.at_least if placing.left < 0 else placing.total,
    )


def _firings(
    times: Sequence[Fraction], starts: Sequence[Fraction]
) -> list[tuple[Fraction, Fraction]]:
    return [(start, times[i % len(times)]) for i, start in enumerate(starts)]


def _life(
    graph: Graph,
    channel: Channel,
    schedule: Schedule,
    instants: Sequence[Fraction],
    turns: int,
) -> list[int]:
    """Return the most tokens that a channel holds at each instant, and from then to the next.

    In all but the first `turns` iterations it holds the same.
    """
    put = _moves(graph, channel.source, channel.production, schedule)
    taken = _moves(graph, channel.target, channel.consumption, schedule)
    period = schedule.period
    found = []
    for instant in instants:
        most = [0, 0]
        for time in (instant + turn * period for turn in range(turns)):
            tokens = channel.initial_tokens
            tokens += sum(rate * _times(time - start, period) for start, _, rate in put)
            tokens -= sum(rate * _times(time - start - own, period) for start, own, rate in taken)
            brief = sum(
                rate
                for start, own, rate in taken
                if not own and time >= start and not (time - start) % period
            )
            most = [max(most[0], tokens + brief), max(most[1], tokens)]
        found += most
    return found


def _times(since: Fraction, period: Fraction) -> int:
    """Return how often an event has happened that recurs every `period` from time 0 on."""
    return max(0, since // period + 1)


def _moves(
    graph: Graph, name: str, rates: Sequence[int], schedule: Schedule
) -> list[tuple[Fraction, Fraction, int]]:
    """Return (start, duration, tokens) of the firings of an actor that move tokens."""
    firings = _firings(graph.actor[name].execution_times, schedule.starts[name])
    moves = [(*firing, rates[i % len(rates)]) for i, firing in enumerate(firings)]
    return [one for one in moves if one[2]]


class _Placing:
    """The search for addresses of buffers; `held` has a bit for each time at which one lives."""

    def __init__(self, sizes: Sequence[int], held: Sequence[int], effort: int) -> None:
        self._sizes, self.left = sizes, effort
        places = range(len(sizes))
        self._rivals = [[b for b in places if b != a and held[a] & held[b]] for a in places]
        times = max((one.bit_length() for one in held), default=0)
        self.at_least = max(
            (sum(sizes[a] for a in places if held[a] >> time & 1) for time in range(times)),
            default=0,
        )
        self.total = 0
        self._best: list[int] = []

    def search(self) -> list[int]:
        """Return the best addresses found; `left` is negative if there may be better ones."""
        order = sorted(range(len(self._sizes)), key=lambda a: -self._sizes[a])
        placed: dict[int, int] = {}
        for a in order:
            placed[a] = self._lowest(a, placed)
        self._keep(placed)
        self._extend({}, 0, order)
        if self.total == self.at_least:
            self.left = max(self.left, 0)
        return self._best

    def _extend(self, placed: dict[int, int], total: int, order: Sequence[int]) -> None:
        if len(placed) == len(order):
            self._keep(placed)
            return
        for a in order:
            if a in placed:
                continue
            self.left -= 1
            if self.left < 0 or self.total == self.at_least:
                return
            address = self._lowest(a, placed)
            higher = max(total, address + self._sizes[a])
            # The order is that of ascending addresses.
            if higher < self.total and address >= max(placed.values(), default=0):
                self._extend({**placed, a: address}, higher, order)

    def _lowest(self, a: int, placed: Mapping[int, int]) -> int:
        address = 0
        for other in sorted((b for b in self._rivals[a] if b in placed), key=placed.__getitem__):
            if address + self._sizes[a] <= placed[other]:
                break
            address = max(address, placed[other] + self._sizes[other])
        return address

    def _keep(self, placed: Mapping[int, int]) -> None:
        self._best = [placed[a] for a in range(len(self._sizes))]
        self.total = max((placed[a] + size for a, size in enumerate(self._sizes)), default=0)
