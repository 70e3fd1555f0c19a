"""Which actors fire for ever, and where tokens pile up, against long executions."""

from __future__ import annotations

import heapq
import json
import random
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

import pytest

from csdf.cli.command import main
from csdf.execution.liveness import live_actors
from csdf.formats import json_format
from csdf.model.consistency import repetition_vector
from csdf.model.graph import Actor, Graph
from csdf.timing.throughput import accumulating_channels, actor_periods
from tests.csdf import oracle
from tests.csdf.graphs import graph, random_graph

WINDOW = 24
"""Iterations after which the state of most small random graphs has recurred."""


def fire_for_ever(found: Graph) -> bool:
    """Check the actors that fire for ever against an execution of more iterations than tokens.

    A token lets an actor behind a deadlock fire for one iteration at most.
    """
    repetitions = repetition_vector(found)
    most = 2 + sum(c.initial_tokens + (c.capacity or 0) for c in found.channels)
    wanted = {a.name: most * repetitions[a.name] * a.phases for a in found.actors}
    state = oracle.Untimed(found)
    while able := [a for a, n in state.fired.items() if n < wanted[a] and not state.lacking(a)]:
        for actor in able:
            while state.fired[actor] < wanted[actor] and not state.lacking(actor):
                state.fire(actor)
    assert live_actors(found) == [a for a, n in state.fired.items() if n == wanted[a]]
    return True


class Execution:
    """A self-timed execution, one actor after the other."""

    def __init__(self, found: Graph) -> None:
        self.graph, self.now = found, Fraction(0)
        self.tokens = {c.name: c.initial_tokens for c in found.channels}
        self.room = {
            c.name: c.capacity - c.initial_tokens for c in found.channels if c.capacity is not None
        }
        self.fired = dict.fromkeys(found.actor, 0)
        self.turns = {a.name: a.concurrency for a in found.actors if a.concurrency is not None}
        self.running: list[tuple[Fraction, str, int]] = []

    def start(self, actor: Actor) -> bool:
        """Start a firing if it can start."""
        phase = self.fired[actor.name] % actor.phases
        into = [c for c in self.graph.channels if c.target == actor.name]
        out = [c for c in self.graph.channels if c.source == actor.name and c.name in self.room]
        if (
            self.turns.get(actor.name, 1) == 0
            or any(self.tokens[c.name] < c.consumption[phase] for c in into)
            or any(self.room[c.name] < c.production[phase] for c in out)
        ):
            return False
        for c in into:
            self.tokens[c.name] -= c.consumption[phase]
        for c in out:
            self.room[c.name] -= c.production[phase]
        if actor.name in self.turns:
            self.turns[actor.name] -= 1
        self.fired[actor.name] += 1
        end = self.now + actor.execution_times[phase]
        heapq.heappush(self.running, (end, actor.name, phase))
        return True

    def end(self) -> None:
        """End the firing that ends first."""
        self.now, name, phase = heapq.heappop(self.running)
        for c in self.graph.channels:
            if c.source == name:
                self.tokens[c.name] += c.production[phase]
            if c.target == name and c.name in self.room:
                self.room[c.name] += c.consumption[phase]
        if name in self.turns:
            self.turns[name] += 1


def highest(found: Graph, ends: Sequence[Fraction]) -> list[dict[str, int]]:
    """Return the most tokens in each channel until each of these times, since the one before.

    At each instant, tokens are counted after all firings that end there.
    """
    execution = Execution(found)
    seen: list[dict[str, int]] = [dict.fromkeys(execution.tokens, 0) for _ in ends]
    for end, most in zip(ends, seen, strict=True):
        while execution.now < end:
            while any(execution.start(actor) for actor in found.actors):
                pass
            execution.end()
            while execution.running and execution.running[0][0] == execution.now:
                execution.end()
            for name, there in execution.tokens.items():
                most[name] = max(most[name], there)
    return seen


def pile_up(found: Graph) -> bool:
    """Check the channels in which tokens pile up by an execution; False if it would be endless."""
    periods = actor_periods(found)
    paces = sorted(periods.values())
    if (
        not oracle.executes(found, repetition_vector(found))
        or not paces[0]
        or paces[-1] > 40 * paces[0]
    ):
        return False
    begin, window = 40 * paces[-1], WINDOW * paces[-1]
    early, late, later = highest(found, [begin, begin + window, begin + 2 * window])
    growing = [name for name, most in later.items() if most > max(early[name], late[name])]
    own = accumulating_channels(found, periods)
    slowly = [
        c.name
        for c in found.channels
        if periods[c.source] < periods[c.target] < periods[c.source] * Fraction(3, 2)
    ]
    assert set(growing) <= set(own) <= set(growing) | set(slowly)
    return True


@pytest.mark.parametrize("seed", range(60))
def test_long_executions_agree(seed: int) -> None:
    found = random_graph(random.Random(seed), bounded=seed % 2 == 0)
    fire_for_ever(found)
    if oracle.executes(found, repetition_vector(found)):
        pile_up(found)


def test_a_graph_may_be_free_of_deadlock_and_not_live(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = graph(
        {"A": (1,), "B": (1,), "C": (1,)},
        ("A", "B", (1,), (1,)),
        ("B", "C", (1,), (1,)),
        ("C", "B", (1,), (1,)),
    )
    assert live_actors(found) == ["A"]
    file = tmp_path / "graph.json"
    file.write_text(json_format.write(found))
    assert main(["analyze", str(file)]) == 1
    assert capsys.readouterr().out.endswith("            For ever fire A.\n")
    assert main(["analyze", "--json", str(file)]) == 1
    assert json.loads(capsys.readouterr().out)["live_actors"] == ["A"]


def test_a_bound_makes_the_first_actor_wait(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for capacity, channels in ((None, ["c1"]), (2, [])):
        found = graph({"A": (1,), "B": (3,)}, ("A", "B", (1,), (1,), 0, capacity))
        assert accumulating_channels(found, actor_periods(found)) == channels
        file = tmp_path / "graph.json"
        file.write_text(json_format.write(found))
        assert main(["analyze", "--throughput", "--json", str(file)]) == 0
        assert json.loads(capsys.readouterr().out)["accumulating"] == channels
        assert main(["analyze", "--throughput", str(file)]) == 0
        assert ("pile up without end in c1." in capsys.readouterr().out) == bool(channels)
