"""Phases before the cycle, as the K-Iter tool writes them, against executions that fire them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from random import Random

import pytest

from csdf.errors import CsdfError
from csdf.execution.liveness import check_liveness
from csdf.formats import sdf3
from csdf.model.consistency import repetition_vector
from csdf.model.graph import Graph
from csdf.timing.throughput import throughput
from tests.csdf.graphs import random_graph

Rates = tuple[tuple[int, ...], tuple[int, ...]]
"""Of initial phases, and of those of the cycle."""


@dataclass
class Written:
    """A graph as its file says it; channels are (source, target, produces, consumes, tokens)."""

    times: dict[str, tuple[int, ...]]
    initial: dict[str, int]
    channels: list[tuple[str, str, Rates, Rates, int]]

    def as_xml(self) -> str:
        ports: dict[str, list[str]] = {name: [] for name in self.times}
        channels = []
        for i, (source, target, produces, consumes, tokens) in enumerate(self.channels):
            for end, kind, (first, cycle) in ((source, "out", produces), (target, "in", consumes)):
                rate = ";".join(",".join(map(str, part)) for part in (first, cycle) if part)
                ports[end].append(f'<port name="{kind}{i}" type="{kind}" rate="{rate}"/>')
            channels.append(
                f'<channel name="c{i}" srcActor="{source}" srcPort="out{i}" dstActor="{target}" '
                f'dstPort="in{i}" initialTokens="{tokens}"/>'
            )
        actors = [
            f'<actor name="{name}" type="t">{"".join(own)}</actor>' for name, own in ports.items()
        ]
        properties = [
            f'<actorProperties actor="{name}"><processor type="p" default="true"><executionTime '
            f'time="{",".join(map(str, times))}"/></processor></actorProperties>'
            for name, times in self.times.items()
        ]
        return (
            '<sdf3 type="csdf" version="1.0"><applicationGraph name="g"><csdf name="g" type="g">'
            f"{''.join(actors)}{''.join(channels)}</csdf><csdfProperties>{''.join(properties)}"
            "</csdfProperties></applicationGraph></sdf3>"
        )


def drawn(seed: int) -> Written:
    """A graph whose actors fire one firing at a time, with some initial phases."""
    draw = Random(seed)
    base = random_graph(draw, bounded=False)
    initial = {a.name: draw.choice((0, 0, 1, 2)) for a in base.actors}
    times = {a.name: tuple(draw.randint(1, 5) for _ in a.execution_times) for a in base.actors}

    def first(actor: str) -> tuple[int, ...]:
        return tuple(draw.randint(0, 3) for _ in range(initial[actor]))

    channels: list[tuple[str, str, Rates, Rates, int]] = [
        (
            c.source,
            c.target,
            (first(c.source), c.production),
            (first(c.target), c.consumption),
            c.initial_tokens + draw.choice((0, 0, 4)),
        )
        for c in base.channels
    ]
    for a in base.actors:
        ones = (1,) * initial[a.name], (1,) * a.phases
        channels.append((a.name, a.name, ones, ones, 1))
    return Written(times, initial, channels)


def rate(rates: Rates, firing: int) -> int:
    initial, cycle = rates
    if firing < len(initial):
        return initial[firing]
    return cycle[(firing - len(initial)) % len(cycle)]


def ends(written: Written, wanted: dict[str, int]) -> dict[str, list[int]] | None:
    """When firings end in self-timed execution, so many of each actor; None if it deadlocks."""
    tokens = [about[4] for about in written.channels]
    fired: Counter[str] = Counter()
    found: dict[str, list[int]] = {name: [] for name in wanted}
    running: list[tuple[int, str, int]] = []
    now = 0
    while any(fired[name] < count for name, count in wanted.items()) or running:
        for end, actor, firing in [one for one in running if one[0] == now]:
            running.remove((end, actor, firing))
            found[actor].append(end)
            for i, (source, _, produces, _, _) in enumerate(written.channels):
                tokens[i] += rate(produces, firing) if source == actor else 0
        for actor, count in wanted.items():
            needs = [
                (i, rate(consumes, fired[actor]))
                for i, (_, target, _, consumes, _) in enumerate(written.channels)
                if target == actor
            ]
            if fired[actor] < count and all(tokens[i] >= need for i, need in needs):
                for i, need in needs:
                    tokens[i] -= need
                firing = fired[actor]
                place = max(0, firing - written.initial[actor]) % len(written.times[actor])
                running.append((now + written.times[actor][place], actor, firing))
                fired[actor] += 1
        if not running:
            return found if all(fired[n] == c for n, c in wanted.items()) else None
        now = min(running)[0]
    return found


def iterations(written: Written, graph: Graph, count: int) -> dict[str, int]:
    per = repetition_vector(graph)
    return {a.name: written.initial[a.name] + count * per[a.name] * a.phases for a in graph.actors}


def test_period_and_liveness_are_those_of_an_execution_with_the_initial_phases() -> None:
    graphs = 400
    seen = Counter(map(as_executed, range(graphs)))
    assert all(seen[kind] > graphs // 50 for kind in ("live", "dead", "dead before", "refused"))


def as_executed(seed: int) -> str:
    """What a graph with initial phases is, after an execution has shown the same."""
    many = 30
    written = drawn(seed)
    without = Written(
        written.times,
        dict.fromkeys(written.times, 0),
        [(s, t, ((), p), ((), c), 99) for s, t, (_, p), (_, c), _ in written.channels],
    )
    per = iterations(written, sdf3.parse(without.as_xml().encode()), many)
    shown = ends(written, per)
    refused = ""
    try:
        graph = sdf3.parse(written.as_xml().encode())
    except CsdfError as error:
        refused = str(error)
    if refused:
        assert shown is None or "tokens more than the channel holds" in refused, seed
        return "dead before" if "deadlock" in refused else "refused"
    assert (check_liveness(graph) is None) == (shown is not None), seed
    if shown is None:
        return "dead"
    longer = ends(written, iterations(written, graph, 2 * many))
    assert longer is not None
    period = throughput(graph).period
    once = sum(q * sum(written.times[name]) for name, q in repetition_vector(graph).items())
    taken = max(map(max, longer.values())) - max(map(max, shown.values()))
    assert abs(taken - many * period) <= 5 * once, seed
    return "live"


def small(first: Sequence[int], then: Sequence[int], tokens: int = 0) -> Written:
    rates = tuple(first), tuple(then)
    return Written(
        {"A": (2,) * len(then), "B": (3,)},
        {"A": len(first), "B": 0},
        [("A", "B", rates, ((), (2,)), tokens)],
    )


def test_tokens_of_the_initial_phases_are_there_afterwards() -> None:
    graph = sdf3.parse(small((4, 1), (1, 2, 1), tokens=3).as_xml().encode())
    assert graph.channel["c0"].initial_tokens == 8
    assert graph.channel["c0"].production == (1, 2, 1)
    assert graph.actor["A"].execution_times == (Fraction(2),) * 3


def test_what_has_no_initial_rates_is_refused() -> None:
    text = small((4,), (1,)).as_xml()
    other = text.replace("</actor>", '<port name="more" type="out" rate="1"/></actor>', 1).replace(
        'dstPort="in0"', 'dstPort="in0"'
    )
    assert sdf3.parse(other.encode()).channel["c0"].initial_tokens == 4  # it is not connected
    joined = other.replace(
        "</csdf>",
        '<channel name="d" srcActor="A" srcPort="more" dstActor="B" dstPort="in0"/></csdf>',
    )
    with pytest.raises(CsdfError, match="port 'more' has 0 rates for the 1 initial phases of act"):
        sdf3.parse(joined.encode())


def test_initial_phases_that_wait_for_each_other() -> None:
    one: Rates = (1,), (1,)
    ring = Written(
        {"A": (1,), "B": (1,)}, {"A": 1, "B": 1}, [("A", "B", one, one, 0), ("B", "A", one, one, 0)]
    )
    with pytest.raises(CsdfError, match="the initial phases deadlock: 'A', 'B' wait for tokens"):
        sdf3.parse(ring.as_xml().encode())
    assert isinstance(sdf3.parse(small((), (1,)).as_xml().encode()), Graph)
