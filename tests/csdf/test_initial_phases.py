"""Phases that happen once: what stays for ever is what plain executions from the start show."""

from __future__ import annotations

import json
from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from csdf import sdf3, sdf3_writer
from csdf.cli import main
from csdf.consistency import repetition_vector
from csdf.errors import CsdfError, DeadlockError, InconsistentGraphError
from csdf.graph import Graph
from csdf.initial_phases import InitialPhases, after
from csdf.liveness import check_liveness
from csdf.throughput import throughput
from tests.csdf import oracle
from tests.csdf.effort import examples, holds
from tests.csdf.graphs import consistent_graphs, graph
from tests.csdf.test_sdf3 import SMALL


def initial(
    times: Mapping[str, tuple[int, ...]],
    production: Mapping[str, tuple[int, ...]],
    consumption: Mapping[str, tuple[int, ...]],
) -> InitialPhases:
    return InitialPhases(
        {name: tuple(map(Fraction, own)) for name, own in times.items()}, production, consumption
    )


@st.composite
def with_initial_phases(draw: st.DrawFn) -> tuple[Graph, InitialPhases]:
    """As from SDF3 XML: capacities and bounds on overlap are channels, which initial phases use."""
    bounded = draw(consistent_graphs(max_actors=3, max_channels=4, bounded=True))
    found = sdf3.parse(sdf3_writer.write(bounded).encode())
    count = {name: draw(st.sampled_from((0, 0, 1, 2))) for name in found.actor}
    times = {name: tuple(map(Fraction, draw(some(count[name], 3)))) for name in count}
    production: dict[str, tuple[int, ...]] = {}
    consumption: dict[str, tuple[int, ...]] = {}
    for channel in found.channels:
        mirrored = channel.name.removesuffix("_space")
        if channel.name.endswith("_self"):
            production[channel.name] = consumption[channel.name] = (1,) * count[channel.source]
        elif mirrored != channel.name:
            production[channel.name] = consumption[mirrored]
            consumption[channel.name] = production[mirrored]
        else:
            production[channel.name] = tuple(draw(some(count[channel.source], 2)))
            consumption[channel.name] = tuple(draw(some(count[channel.target], 2)))
    return found, InitialPhases(times, production, consumption)


def some(count: int, most: int) -> st.SearchStrategy[list[int]]:
    return st.lists(st.integers(0, most), min_size=count, max_size=count)


@examples(30, 200)
def test_it_is_live_if_everybody_comes_past_his_first_iteration(tries: int) -> None:
    @given(with_initial_phases())
    def check(drawn: tuple[Graph, InitialPhases]) -> None:
        found, once = drawn
        repetitions = repetition_vector(found)
        least = {
            a.name: len(once.times[a.name]) + repetitions[a.name] * a.phases for a in found.actors
        }
        most = {name: 20 * count for name, count in least.items()}
        fired = oracle.executed(oracle.Untimed(found, once), most)
        expected = all(fired[name] >= count for name, count in least.items())
        assert is_live(found, once) in (expected, None)

    holds(tries, check)


def is_live(found: Graph, once: InitialPhases) -> bool | None:
    try:
        return check_liveness(after(found, once)) is None
    except DeadlockError:
        return False
    except CsdfError:
        return None


@examples(15, 50)
def test_the_period_is_that_of_an_execution_from_the_start(tries: int) -> None:
    @given(with_initial_phases())
    def check(drawn: tuple[Graph, InitialPhases]) -> None:
        found, once = drawn
        assume(once and is_live(found, once) and is_connected(found))
        shown = oracle.period(found, repetition_vector(found), once)
        assume(shown is not None)
        assert throughput(after(found, once)).period == shown

    holds(tries, check)


def is_connected(found: Graph) -> bool:
    reached = {found.actors[0].name}
    for _ in found.actors:
        for channel in found.channels:
            if channel.source in reached or channel.target in reached:
                reached |= {channel.source, channel.target}
    return len(reached) == len(found.actors) and bool(found.channels)


def test_an_initial_phase_gives_the_tokens_that_start_a_cycle() -> None:
    """The first actor gives three tokens once, without which nobody could begin."""
    found = graph({"A": (1,), "B": (2,)}, ("A", "B", (3,), (1,)), ("B", "A", (1,), (3,)))
    once = initial({"A": (1,), "B": ()}, {"c1": (3,), "c2": ()}, {"c1": (), "c2": (0,)})
    started = after(found, once)
    assert [channel.initial_tokens for channel in started.channels] == [3, 0]
    assert check_liveness(found) is not None
    assert throughput(started).period == 7


def test_a_deadlock_in_an_initial_phase_is_told_of() -> None:
    found = graph({"A": (1,), "B": (2,)}, ("A", "B", (1,), (1,)), ("B", "A", (1,), (1,), 1))
    once = initial({"A": (1,), "B": ()}, {"c1": (1,), "c2": ()}, {"c1": (), "c2": (3,)})
    with pytest.raises(DeadlockError) as caught:
        after(found, once)
    assert str(caught.value) == (
        "Deadlock before all initial phases are over: 'A' waits in initial phase 0 for 2 more "
        "tokens in channel 'c2', which 'B' would have to produce; 'B' waits in phase 0 for 1 more "
        "token in channel 'c1', which 'A' would have to produce."
    )


def test_no_state_in_which_all_are_about_to_begin() -> None:
    """A and B fire in turn, so A is never two phases ahead."""
    three = (1, 1, 1)
    found = graph({"A": three, "B": three}, ("A", "B", three, three), ("B", "A", three, three, 1))
    once = initial({"A": (1, 1), "B": ()}, {"c1": (1, 1), "c2": ()}, {"c1": (), "c2": (1, 1)})
    with pytest.raises(CsdfError, match="is never about to begin its phases together"):
        after(found, once)


def test_an_inconsistent_graph_has_no_such_state() -> None:
    found = graph({"A": (1,)}, ("A", "A", (2,), (1,)))
    with pytest.raises(InconsistentGraphError):
        after(found, initial({"A": (1,)}, {"c1": (1,)}, {"c1": (1,)}))


STARTS_ONCE = (
    SMALL.replace("1,2,1", "4,4;1,2,1")
    .replace('time="2"', 'time="7,7;2"')
    .replace('"dsp"', '"arm"')
)


def test_they_are_read_from_sdf3() -> None:
    found, once, _ = sdf3.parse_for_analysis(STARTS_ONCE.encode())
    assert found == sdf3.parse(SMALL.encode())
    assert once == initial({"A": (7, 7), "B": ()}, {"c": (4, 4)}, {"c": ()})
    assert after(found, once).channels[0].initial_tokens == 3 + 8


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("4,4;", "", "line 5: 0 rates for the 2 initial phases of actor 'A'"),
        ("4,4;", "4;", "line 5: 1 rates for the 2 initial phases of actor 'A'"),
        ("4,4;", "4;4;", "rate '4;4;1,2,1' has two semicolons"),
        ("4,4;", ";", "rate '' is no list of numbers: '' is not a whole number"),
    ],
)
def test_what_is_wrong_with_them_is_said(old: str, new: str, sentence: str) -> None:
    with pytest.raises(sdf3.Sdf3Error, match=sentence):
        sdf3.parse_for_analysis(STARTS_ONCE.replace(old, new).encode())


def test_who_does_not_know_them_says_so() -> None:
    with pytest.raises(sdf3.Sdf3Error, match="actor 'A' has initial phases, which only"):
        sdf3.parse(STARTS_ONCE.encode())


class TestTheCommand:
    """`csdf analyze` tells what holds for ever; nothing else can be asked."""

    def file(self, tmp_path: Path, tokens: int) -> str:
        path = tmp_path / "once.xml"
        path.write_text(STARTS_ONCE.replace('initialTokens="3"', f'initialTokens="{tokens}"'))
        return str(path)

    def test_it_analyses(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["analyze", "--json", self.file(tmp_path, 0)]) == 0
        found = json.loads(capsys.readouterr().out)
        assert (found["live"], found["repetition_vector"]) == (True, {"A": 1, "B": 2})

    def test_a_deadlock_before_they_are_over(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        text = STARTS_ONCE.replace(
            "</csdf>",
            '<channel name="d" srcActor="B" srcPort="q" dstActor="A" dstPort="q"/></csdf>',
        )
        text = text.replace('rate="2"/>', 'rate="2"/><port type="out" name="q" rate="2"/>')
        text = text.replace('1,2,1"/>', '1,2,1"/><port type="in" name="q" rate="9,0;1,2,1"/>')
        path = tmp_path / "dead.xml"
        path.write_text(text)
        assert main(["analyze", "--json", str(path)]) == 1
        found = json.loads(capsys.readouterr().out)
        assert found["live"] is False
        assert found["deadlock"]["diagnosis"].startswith("Deadlock before all initial phases")

    @pytest.mark.parametrize(
        ("arguments", "sentence"),
        [
            (["capacities"], "has initial phases, which only `csdf analyze` knows"),
            (["simulate"], "has initial phases, which only `csdf analyze` knows"),
            (["analyze", "--source", "A", "--sink", "B"], "which --order and --source do not know"),
        ],
    )
    def test_what_else_is_asked_is_refused(
        self,
        arguments: list[str],
        sentence: str,
        tmp_path: Path,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        assert main([*arguments, self.file(tmp_path, 0)]) == 2
        assert sentence in capsys.readouterr().err
