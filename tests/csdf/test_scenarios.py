"""Scenarios and their worst period, against all runs of the state machine executed at once."""

from __future__ import annotations

import contextlib
import json
import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest

from csdf.cli.command import main
from csdf.errors import (
    CsdfError,
    DeadlockError,
    GraphError,
    InconsistentGraphError,
    OvertakingError,
)
from csdf.formats.sdf3 import Sdf3Error
from csdf.formats.sdf3_scenarios import parse, read_scenarios
from csdf.model.consistency import repetition_vector
from csdf.model.graph import Graph
from csdf.model.scenarios import Scenarios
from csdf.timing.scenarios import scenario_periods
from csdf.timing.throughput import throughput
from tests.csdf.firing_times import Key, Time, after_iteration
from tests.csdf.graphs import graph, random_graph

DECODER = Path(__file__).parent.parent / "fixtures" / "scenarios" / "decoder.xml"
LONGEST_TURN, STEPS = 24, 80


def random_scenarios(draw: random.Random) -> Scenarios:
    """Up to three variants of a graph: other times, and other rates as far as they stay in step."""
    first = random_graph(draw, bounded=draw.random() < 0.5)
    graphs = {"s0": first}
    for name in ("s1", "s2")[: draw.randint(0, 2)]:
        actors = tuple(
            replace(a, execution_times=tuple(Fraction(draw.randint(0, 5)) for _ in range(phases)))
            for a in first.actors
            for phases in [1 if a.concurrency != 1 else a.phases]
        )
        channels = tuple(
            replace(c, production=rates(c.production, p), consumption=rates(c.consumption, q))
            for c in first.channels
            for p, q in [
                [one.phases for end in (c.source, c.target) for one in actors if one.name == end]
            ]
        )
        if draw.random() < 0.3:
            channels = channels[: draw.randint(0, len(channels))]
        graphs[name] = Graph(name, actors, channels)
    states = {f"q{i}": draw.choice(list(graphs)) for i in range(draw.randint(1, 3))}
    names = list(states)
    transitions = {
        name: tuple(draw.sample(names, draw.randint(min(1, len(names)), len(names))))
        for name in names
    }
    return Scenarios("random", graphs, states, transitions, "q0")


def rates(given: tuple[int, ...], phases: int) -> tuple[int, ...]:
    return given if len(given) == phases else (sum(given),)


State = dict[Key, list[Time]]


def grows(run: Sequence[Time]) -> Fraction | None:
    """Return the growth per step of values that become periodic; None if they do not."""
    for turn in range(1, LONGEST_TURN + 1):
        steps = {run[n] - run[n - turn] for n in range(len(run) - LONGEST_TURN, len(run))}
        if len(steps) == 1:
            return Fraction(steps.pop(), turn)
    return None


def envelope(
    scenarios: Scenarios, repetitions: Mapping[str, Mapping[str, int]], only: Sequence[str] = ()
) -> Fraction | None:
    """Return the growth of the latest time in any run, or in the run that repeats `only`.

    Max-plus executions keep maxima: from the latest times at which each state can be reached
    follow those after one more iteration.
    """
    unit = math.lcm(
        *(
            time.denominator
            for one in scenarios.graphs.values()
            for a in one.actors
            for time in a.execution_times
        )
    )
    graphs = {name: slower(one, unit) for name, one in scenarios.graphs.items()}
    start: State = {}
    for one in graphs.values():
        for c in one.channels:
            start["tokens", c.name] = [0] * c.initial_tokens
            if c.capacity is not None:
                start["room", c.name] = [0] * (c.capacity - c.initial_tokens)
        for a in one.actors:
            start["start", a.name] = [0]
            if a.concurrency is not None:
                start["turn", a.name] = [0] * a.concurrency
    reached: dict[object, State] = {0: start} if only else {scenarios.initial: start}
    run = []
    for _ in range(STEPS):
        following: dict[object, State] = {}
        for place, state in reached.items():
            if only:
                ways = [
                    ((int(str(place)) + 1) % len(only), only[(int(str(place)) + 1) % len(only)])
                ]
            else:
                ways = [(to, to) for to in scenarios.transitions.get(str(place), ())]
            for to, name in ways:
                scenario = scenarios.states[name]
                here = graphs[scenario]
                after = state | after_iteration(here, repetitions[scenario], mine(here, state))
                other = following.get(to, after)
                following[to] = {
                    key: [max(pair) for pair in zip(times, other[key], strict=True)]
                    for key, times in after.items()
                }
        reached = following
        run.append(max(t for state in reached.values() for times in state.values() for t in times))
    growth = grows(run)
    return growth and growth / unit


def slower(graph: Graph, times: int) -> Graph:
    actors = (
        replace(a, execution_times=tuple(times * time for time in a.execution_times))
        for a in graph.actors
    )
    return replace(graph, actors=tuple(actors))


def mine(here: Graph, state: State) -> State:
    """Return the part of a state that belongs to a graph."""
    names = {*here.channel, *(f"of {name}" for name in here.actor)}
    return {
        key: times
        for key, times in state.items()
        if (key[1] if key[0] in ("tokens", "room") else f"of {key[1]}") in names
    }


def is_worst(scenarios: Scenarios) -> bool:
    """Check the worst period by all runs, and by the critical one; False if they stay aperiodic."""
    try:
        found = scenario_periods(scenarios)
    except (DeadlockError, OvertakingError):
        return False
    for name, period in found.periods.items():
        assert throughput(scenarios.graphs[name]).period == period
    repetitions = {name: repetition_vector(one) for name, one in scenarios.graphs.items()}
    every = envelope(scenarios, repetitions)
    if every is None:
        return False
    assert every == found.worst
    if found.critical:
        around = [*found.critical[1:], found.critical[0]]
        for state, after in zip(found.critical, around, strict=True):
            assert after in scenarios.transitions[state]
        assert envelope(scenarios, repetitions, found.critical) in (None, found.worst)
    else:
        assert found.worst == 0
    return True


@pytest.mark.parametrize("seed", range(40))
def test_the_worst_run_is_found(seed: int) -> None:
    is_worst(random_scenarios(random.Random(seed)))


def test_most_are_compared() -> None:
    assert sum(is_worst(random_scenarios(random.Random(seed))) for seed in range(40)) > 12


def test_the_worst_run_is_worse_than_each_scenario() -> None:
    """With one place, A and B wait for each other in turn: 6 + 6 while each alone takes 7."""
    graphs = {
        name: graph({"A": (a,), "B": (b,)}, ("A", "B", (1,), (1,), 0, 2))
        for name, a, b in (("x", 6, 1), ("y", 1, 6))
    }
    both = {"x": ("x", "y"), "y": ("x", "y")}
    found = scenario_periods(Scenarios("two", graphs, {"x": "x", "y": "y"}, both, "x"))
    assert found.periods == {"x": 6, "y": 6}
    turns = {"x": ("y",), "y": ("x",)}
    alternating = scenario_periods(Scenarios("two", graphs, {"x": "x", "y": "y"}, turns, "x"))
    assert alternating.worst == Fraction(7, 2)
    one_place = {
        name: replace(one, channels=tuple(replace(c, capacity=1) for c in one.channels))
        for name, one in graphs.items()
    }
    tight = scenario_periods(Scenarios("two", one_place, {"x": "x", "y": "y"}, both, "x"))
    assert tight.periods == {"x": 7, "y": 7}
    assert tight.worst == 7


def test_a_file_is_read() -> None:
    found = read_scenarios(DECODER)
    assert list(found.graphs) == ["intra", "skipped"]
    assert found.states == {"I": "intra", "S": "skipped"}
    assert found.transitions == {"I": ("S",), "S": ("S", "I")}
    intra, skipped = found.graphs["intra"], found.graphs["skipped"]
    assert intra.actor["vld"].execution_times == (40,)
    assert skipped.actor["vld"].execution_times == (5,)
    assert skipped.actor["show"].execution_times == intra.actor["show"].execution_times == (30,)
    assert (intra.channel["blocks"].production, "blocks" in skipped.channel) == ((4,), False)


def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["scenarios", str(DECODER)]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "intra: period 110",
        "skipped: period 35",
        "any run: at most 145/2 ≈ 72.5 per iteration in the long run",
        "the slowest run repeats: I → S",
    ]
    assert main(["scenarios", "--json", str(DECODER)]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "scenarios": {"intra": "110", "skipped": "35"},
        "worst_period": "145/2",
        "critical_states": ["I", "S"],
    }
    assert main(["analyze", str(DECODER)]) == 2
    assert "csdf scenarios reads it" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ('initialstate="I"', 'initialstate="X"', "the initial state 'X' is not a state"),
        (
            'scenario="skipped"',
            'scenario="none"',
            "state 'S' names 'none', which is not a scenario",
        ),
        ('destination="I"', 'destination="X"', "a transition of 'S' names 'X', not a state"),
        ('graph="whole"', 'graph="half"', "scenario 'intra' names 'half', not a scenariograph"),
        ('type="fsmsadf"', 'type="sdf"', "the root element is not 'sdf3' of type 'fsmsadf'"),
        ("<fsm ", "<fsmm ", "not well-formed XML"),
        ('name="S" scenario', 'name="I" scenario', "two elements 'state' are called 'I'"),
        ('actor="show"', 'actor="hide"', "actor 'show' has no execution time"),
    ],
)
def test_a_file_that_is_wrong_is_refused(old: str, new: str, sentence: str) -> None:
    text = DECODER.read_text()
    assert old in text
    with pytest.raises(Sdf3Error, match=f"^here: .*{sentence}"):
        parse(text.replace(old, new).encode(), "here")


def test_scenarios_that_do_not_fit_are_refused() -> None:
    one = graph({"A": (1,)}, ("A", "A", (1,), (1,), 1))
    two = graph({"A": (1,)}, ("A", "A", (1,), (1,), 2))
    with pytest.raises(
        GraphError, match="'c1' has 1 as initial tokens in scenario 'x' and 2 in 'y'"
    ):
        Scenarios("s", {"x": one, "y": two}, {"q": "x"}, {"q": ("q",)}, "q")
    with pytest.raises(CsdfError, match="every run of the state machine ends"):
        scenario_periods(Scenarios("s", {"x": one}, {"q": "x"}, {}, "q"))
    stuck = graph({"A": (1,)}, ("A", "A", (1,), (1,), 0))
    with pytest.raises(DeadlockError, match="scenario 'x': "):
        scenario_periods(Scenarios("s", {"x": stuck}, {"q": "x"}, {"q": ("q",)}, "q"))
    clash = graph({"A": (1,)}, ("A", "A", (1,), (2,), 1))
    with pytest.raises(InconsistentGraphError, match="scenario 'x': the graph is inc") as refused:
        scenario_periods(Scenarios("s", {"x": clash}, {"q": "x"}, {"q": ("q",)}, "q"))
    assert refused.value.channels == ("c1",)


@pytest.mark.parametrize("seed", range(10))
def test_damaged_files_end_in_a_sentence(seed: int) -> None:
    draw, good = random.Random(seed), DECODER.read_bytes()
    for _ in range(30):
        data = bytearray(good)
        for _ in range(draw.randint(1, 3)):
            place = draw.randrange(len(data))
            if draw.random() < 0.5:
                data[place] = draw.choice(b'0123456789"<>/=')
            else:
                other = draw.randrange(len(good) - 20)
                data[place : place + draw.randint(0, 8)] = good[other : other + draw.randint(0, 20)]
        with contextlib.suppress(CsdfError):
            scenario_periods(parse(bytes(data)))
