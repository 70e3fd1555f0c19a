"""Addresses of buffers, against a walk through the schedule and all addresses."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest

from csdf.buffers.shared_memory import shared_memory
from csdf.errors import CsdfError, DeadlockError
from csdf.formats.files import read, write
from csdf.model.graph import Graph
from csdf.timing.schedule import Schedule, periodic_schedule
from tests.csdf.conftest import Csdf
from tests.csdf.graphs import graph, random_graph

Lives = dict[str, tuple[int, set[tuple[Fraction, bool]]]]
"""By channel: the most tokens, and the instants (True: until the next one) with any."""


def walk(found: Graph, schedule: Schedule, iterations: int) -> Lives:
    """Follow the tokens of each channel from the first firing on, one event after the other."""
    # At an instant, firings end, then start, then those without time end.
    events: list[tuple[Fraction, int, str, int]] = []
    times: set[Fraction] = set()
    for a in found.actors:
        for i, start in enumerate(schedule.starts[a.name]):
            phase = i % a.phases
            for n in range(iterations):
                begin = start + n * schedule.period
                end = begin + a.execution_times[phase]
                times |= {begin, end}
                for c in found.channels:
                    if c.source == a.name:
                        events.append((begin, 1, c.name, c.production[phase]))
                    if c.target == a.name:
                        order = 0 if end > begin else 2
                        events.append((end, order, c.name, -c.consumption[phase]))
    last = (iterations - 1) * schedule.period
    instants = sorted({t % schedule.period for t in times})
    every = sorted(
        t + n * schedule.period
        for n in range(iterations)
        for t in instants
        if t + n * schedule.period < last
    )
    lives: Lives = {}
    for c in found.channels:
        own = sorted(e for e in events if e[2] == c.name)
        tokens, most, held, done = c.initial_tokens, 0, set(), 0
        for t in every:
            while done < len(own) and own[done][:2] <= (t, 1):
                tokens += own[done][3]
                done += 1
            for until_next in (False, True):
                most = max(most, tokens)
                if tokens:
                    held.add((t % schedule.period, until_next))
                while done < len(own) and own[done][0] <= t:
                    tokens += own[done][3]
                    done += 1
        lives[c.name] = most, held
    return lives


def fits_in(sizes: Sequence[int], rivals: Sequence[set[int]], total: int) -> bool:
    """Whether buffers can be placed in so much memory: tries all addresses of each."""

    def place(addresses: list[int]) -> bool:
        a = len(addresses)
        if a == len(sizes):
            return True
        return any(
            place([*addresses, address])
            for address in range(total - sizes[a] + 1)
            if all(
                b not in rivals[a] or address + sizes[a] <= other or other + sizes[b] <= address
                for b, other in enumerate(addresses)
            )
        )

    return place([])


def is_smallest(found: Graph, draw: random.Random) -> bool:
    """Check addresses by the lifetimes, and that less memory fails; False without a schedule."""
    weighed = tuple(replace(c, token_bytes=draw.randint(0, 2)) for c in found.channels)
    found = replace(found, channels=weighed)
    try:
        schedule = periodic_schedule(found)
        memory = shared_memory(found, schedule)
    except (DeadlockError, CsdfError):
        return False
    longest = max(time for a in found.actors for time in a.execution_times)
    last = max(start for own in schedule.starts.values() for start in own)
    turns = (last + longest) // schedule.period
    lives = walk(found, schedule, turns + 12)
    names = [c.name for c in found.channels if lives[c.name][0] * c.token_bytes]
    sizes = [lives[name][0] * found.channel[name].token_bytes for name in names]
    check_addresses(found, memory.as_json(), lives)
    rivals = [
        {b for b, other in enumerate(names) if lives[name][1] & lives[other][1]} for name in names
    ]
    assert memory.at_least_bytes <= memory.total_bytes <= memory.separate_bytes == sum(sizes)
    if (
        memory.at_least_bytes == memory.total_bytes
        and len(sizes) <= 5
        and sum(sizes) <= 24
        and sizes
    ):
        assert not fits_in(sizes, rivals, memory.total_bytes - 1)
    rough = shared_memory(found, schedule, effort=0)
    check_addresses(found, rough.as_json(), lives)
    assert rough.at_least_bytes <= memory.total_bytes <= rough.total_bytes
    return True


def check_addresses(found: Graph, memory: Mapping[str, object], lives: Lives) -> None:
    buffers = memory["buffers"]
    assert isinstance(buffers, dict)
    for name, (most, held) in lives.items():
        own = buffers[name]
        assert own["tokens"] == most
        assert own["bytes"] == most * found.channel[name].token_bytes
        assert own["address"] + own["bytes"] <= memory["total_bytes"]
        for other, (_, others) in lives.items():
            apart = (
                own["address"] + own["bytes"] <= buffers[other]["address"]
                or buffers[other]["address"] + buffers[other]["bytes"] <= own["address"]
            )
            assert (
                other == name
                or apart
                or not held & others
                or not own["bytes"] * buffers[other]["bytes"]
            )


@pytest.mark.parametrize("seed", range(60))
def test_nothing_overlaps_and_less_does_not_suffice(seed: int) -> None:
    is_smallest(random_graph(random.Random(seed), bounded=seed % 2 == 0), random.Random(seed))


def test_some_are_compared() -> None:
    graphs = [random_graph(random.Random(seed), bounded=True) for seed in range(60)]
    assert sum(is_smallest(one, random.Random(1)) for one in graphs) > 10


RING = graph(
    {"A": (1,), "B": (1,), "C": (1,), "D": (1,)},
    ("A", "B", (2,), (2,)),
    ("B", "C", (3,), (3,)),
    ("C", "D", (2,), (2,)),
    ("D", "A", (1,), (1,), 1),
)


def test_the_command(csdf: Csdf) -> None:
    assert csdf("schedule", RING, "--memory").lines[-2:] == [
        "c4: 1 byte at 0, 1 token",
        "5 bytes together, and no less is enough; 8 without sharing",
    ]
    found = csdf("schedule", RING, "--memory", "--json").json["memory"]
    assert (found["total_bytes"], found["separate_bytes"]) == (5, 8)
    free = graph({"A": (1,)}, concurrency=None)
    with pytest.raises(CsdfError, match="a period above 0"):
        shared_memory(free, periodic_schedule(free))


def test_free_places_take_no_memory(tmp_path: Path) -> None:
    found = graph({"A": (1,), "B": (1,)}, ("A", "B", (2,), (1,), 0, 4), concurrency=None)
    write(found, tmp_path / "as_sdf3.xml")
    as_sdf3 = read(tmp_path / "as_sdf3.xml")
    assert [channel.name for channel in as_sdf3.channels] == ["c1", "c1_space"]
    same = [shared_memory(each, periodic_schedule(each)).as_json() for each in (found, as_sdf3)]
    assert same[0] == same[1]
