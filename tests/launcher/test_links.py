"""Links between machines that nobody described: which are measured, how long, and what is kept."""

from __future__ import annotations

import heapq
import io
import itertools
import os
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from launcher.config.load import load_cluster
from launcher.config.node import NodeConfig
from launcher.config.run import RunConfig
from launcher.errors import UnreachableError
from launcher.plan.devices import nodes_of
from launcher.plan.profile.bench import Bench
from launcher.plan.profile.file import LinkTimes, ProfileCache
from launcher.plan.profile.links import (
    TooSlowError,
    identities,
    kept_links,
    measure_links,
    measure_machines,
)
from launcher.plan.profile.survey import (
    COUNT,
    FAST_BYTES_PER_S,
    MOST_PAIRS,
    ROUNDS,
    SURVEY_S,
    Pair,
    Survey,
    Test,
    rates_of,
    tournament,
)
from launcher.progress import LineDisplay
from launcher.run.processes import LocalAgents
from launcher.run.runner import AgentRunner
from launcher.run.runtime import RunOptions
from tests.launcher_runtime.clusters import daemons
from tests.launcher_runtime.test_two_versions import agents as agents_of_both_versions

FAST = 4 * FAST_BYTES_PER_S


def simulated(survey: Survey, rates: Mapping[str, float], latency_s: float) -> tuple[float, float]:
    """Carry out a survey on interfaces of these rates; returns when the last tensors were sent and
    when they arrived, in seconds after the first result."""
    arrivals: list[tuple[float, int, Pair]] = []
    numbers, first_s, last_sent_s = itertools.count(), None, 0.0

    def send(tests: Sequence[Test], now_s: float) -> None:
        for pair, size in tests:
            others = {name for _, _, pair in arrivals for name in pair}
            assert not others.intersection(pair), "a machine is in two pairs at once"
            took_s = 2 * latency_s + size / min(rates[name] for name in pair)
            for number in range(COUNT):
                heapq.heappush(arrivals, (now_s + (number + 1) * took_s, next(numbers), pair))

    first, now_s = survey.begin(), 0.0
    for each in first:
        send([each], now_s)
    while arrivals:
        now_s, _, pair = heapq.heappop(arrivals)
        first_s = now_s if first_s is None else first_s
        following = survey.took(pair, now_s)
        for each in following:
            send([each], now_s)
            last_sent_s = now_s - first_s
    assert survey.is_over
    return last_sent_s, now_s - (first_s or 0.0)


@given(st.integers(2, 80))
def test_in_a_tournament_each_meets_others_once_a_round(count: int) -> None:
    names = [f"n{number}" for number in range(count)]
    pairs = tournament(names)
    assert len(set(map(frozenset, pairs))) == len(pairs) <= max(MOST_PAIRS, count // 2)
    assert all(names.index(one) < names.index(other) for one, other in pairs)
    rounds, rest = divmod(len(pairs), count // 2)
    assert 1 <= rounds <= ROUNDS
    assert not rest
    met = {sum(name in pair for pair in pairs) for name in names}
    assert met <= ({rounds} if count % 2 == 0 else {rounds, rounds - 1})


rates = st.floats(4, 9).map(lambda power: 10**power)


@given(st.lists(rates, min_size=2, max_size=12), st.floats(1e-4, 0.05))
def test_a_survey_ends_and_finds_what_a_pair_carries(found: list[float], latency_s: float) -> None:
    true = {f"n{number}": rate for number, rate in enumerate(found)}
    survey = Survey(tournament(list(true)))
    last_sent_s, _ = simulated(survey, true, latency_s)
    assert last_sent_s <= SURVEY_S
    for pair, seconds in survey.seconds.items():
        if len(seconds) > 1:
            (size, least_s), *_, (larger, most_s) = seconds.items()
            rate = (larger - size) / (most_s - least_s)
            assert rate == pytest.approx(min(true[name] for name in pair), rel=0.01)


@given(st.integers(3, 12), st.floats(2.5e5, 1e7), st.data())
def test_one_slow_machine_does_not_make_others_slow(
    count: int, slow: float, data: st.DataObject
) -> None:
    true = {f"n{number}": FAST for number in range(count)}
    true[data.draw(st.sampled_from(sorted(true)))] = slow
    survey = Survey(tournament(list(true)))
    _, over_s = simulated(survey, true, 1e-3)
    assert over_s < 2 * SURVEY_S
    sizes = {pair: list(each.items())[-2:] for pair, each in survey.seconds.items()}
    carried = {
        pair: (more - size) / (more_s - size_s)
        for pair, ((size, size_s), (more, more_s)) in sizes.items()
    }
    assert rates_of(carried) == pytest.approx(true, rel=0.01)
    assert not Survey(tournament(list(true)), carried).begin(), "a second launch measures nothing"


def test_fast_machines_meet_once_and_stated_ones_not_at_all() -> None:
    names = ["a", "b", "c", "d"]
    survey = Survey(tournament(names))
    simulated(survey, dict.fromkeys(names, FAST), 1e-3)
    assert len(survey.seconds) == 2
    assert not Survey(tournament(names), {}, dict.fromkeys(names, 1e5)).begin()
    others = Survey(tournament(names), {}, {"a": 1e5, "d": FAST}).begin()
    assert [pair for pair, _ in others] == [("b", "c")]


def test_a_pair_whose_first_tensors_arrive_slowly_is_known_by_those_that_have() -> None:
    survey = Survey([("a", "b"), ("c", "d")])
    survey.begin()
    for now_s in (1.0, 2.0, 3.0):
        assert not survey.took(("a", "b"), now_s)
    assert survey.seconds == {("a", "b"): {4096: 1.0}}


# ---------------------------------------------------------------- on real agents


@contextmanager
def bench(
    addresses: Mapping[str, str], folder: Path, more: str = "host: {}"
) -> Iterator[tuple[Bench, tuple[NodeConfig, ...], io.StringIO]]:
    """A bench on agents at these addresses, each behind its own tunnel."""
    path, said = folder / "cluster.yaml", io.StringIO()
    nodes = (
        f"  - {{name: {name}, address: '{address}', {more.format(name)}}}\n"
        for name, address in addresses.items()
    )
    path.write_text("model: builtin:yolov2\nnodes:\n" + "".join(nodes))
    cluster = load_cluster(path)
    with LineDisplay(said) as progress:
        options = RunOptions(RunConfig(connect_timeout_s=30.0), keep_agents=True)
        runner, nodes_there = AgentRunner(LocalAgents()), nodes_of(cluster)
        yield (
            Bench(runner, nodes_there, folder / "links", options, progress),
            cluster.config.nodes,
            said,
        )


@pytest.mark.parametrize("older", [set(), {"n0"}], ids=["present", "one of the version before"])
def test_links_of_boards_behind_tunnels_are_measured_once(tmp_path: Path, older: set[str]) -> None:
    cache = ProfileCache(tmp_path / "kept")
    with (
        agents_of_both_versions(older, ("n0", "n1", "n2"), tmp_path) as addresses,
        bench(addresses, tmp_path) as (board, nodes, said),
    ):
        who = identities(nodes, board.call_roll({}).welcomes)
        assert len(who) == 3
        new = measure_machines(board, nodes, who, cache)
        found = kept_links(who, cache)
        assert set(found) == set(new)
        assert new
        assert all((link.bytes_per_s or 1e9) > 1e6 for link in found)
        assert "assumed" not in said.getvalue()
        assert measure_machines(board, nodes, who, cache) == ()
        assert kept_links(who, cache) == found
        assert measure_machines(board, nodes, who, cache, again=True)


def test_links_that_cannot_be_kept_are_used_and_the_user_hears_why(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    cache = ProfileCache(tmp_path / "file")
    with (
        agents_of_both_versions(set(), ("n0", "n1"), tmp_path) as addresses,
        bench(addresses, tmp_path) as (board, nodes, said),
    ):
        who = identities(nodes, board.call_roll({}).welcomes)
        (link,) = measure_machines(board, nodes, who, cache)
        assert link.ends == ("n0", "n1")
        assert "what is measured is not kept for later launches: " in said.getvalue()
        assert kept_links(who, cache) == ()


@pytest.mark.parametrize("rate", [0.0, 1e-308, 1e300, float("nan")])
def test_a_rate_that_no_link_has_is_not_read(rate: float) -> None:
    with pytest.raises(ValidationError):
        LinkTimes(latency_s=0.001, bytes_per_s=rate)


def test_agents_of_one_machine_have_no_link(tmp_path: Path) -> None:
    with daemons(("n0", "n1"), tmp_path) as running:
        addresses = {name: address for name, (address, _) in running.items()}
        with bench(addresses, tmp_path, "threads: 1") as (board, nodes, said):
            who = identities(nodes, board.call_roll({}).welcomes)
            assert measure_machines(board, nodes, who, ProfileCache(tmp_path / "kept")) == ()
            assert not (tmp_path / "kept").exists()
            assert not (tmp_path / "links").exists()
            assert said.getvalue() == ""


def test_a_board_that_has_died_meanwhile_is_named(tmp_path: Path) -> None:
    with daemons(("n0", "n1"), tmp_path) as running:
        addresses = {name: address for name, (address, _) in running.items()}
        with bench(addresses, tmp_path) as (board, nodes, _):
            who = identities(nodes, board.call_roll({}).welcomes)
            os.kill(running["n1"][1], signal.SIGKILL)
            hasty = RunOptions(RunConfig(connect_timeout_s=1.0), keep_agents=True)
            cache = ProfileCache(tmp_path / "kept")
            with pytest.raises(UnreachableError, match=r"node 'n1' at .* did not answer") as error:
                measure_machines(replace(board, options=hasty), nodes, who, cache)
        assert error.value.absent == {"n1": str(error.value)}


def test_measuring_is_given_up_in_time_and_can_begin_again(tmp_path: Path) -> None:
    with daemons(("n0", "n1"), tmp_path) as running:
        addresses = {name: address for name, (address, _) in running.items()}
        with bench(addresses, tmp_path) as (board, _, _):
            board.call_roll({})
            with pytest.raises(TooSlowError, match=r"within 0\.1 s"):
                measure_links(board, [("n0", "n1")], loading_s=0.1)
            assert measure_links(board, [("n0", "n1")]).keys() == {("n0", "n1")}
