"""Agents behind forwarded ports: the launcher finds their data ports before anything is loaded.

Agents are real, and so are the forwarders. What an agent announces is the number that its data port
has on its own machine; here it leads nowhere, or to another agent.
"""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from launcher.commands.make_keys import make_keys
from launcher.config.access import Access
from launcher.config.run import RecoveryConfig, RunConfig
from launcher.errors import BadInputError
from launcher.run.connections import Connections
from launcher.run.doors import KNOCK_S, SEARCH_S, DoorSearch, SearchStep, candidates
from launcher.run.processes import start_agents
from launcher.run.runner import AgentRunner
from launcher.run.runtime import Node, RunOptions
from nodes.net.sockets import AddressError
from tests.launcher_runtime.clusters import Cluster, RandomFrames, free_port, results, stop
from tests.launcher_runtime.forwarders import Forwarder, forwarded

HERE = "127.0.0.1"
OPTIONS = RunOptions(RunConfig(connect_timeout_s=20.0, start="all"), RecoveryConfig(enabled=False))
OLDER = (
    "import tests.nodes.older_agent, sys, tests.nodes.forwarded_agent as agent; "
    "sys.exit(agent.main())"
)


@dataclass
class Boards:
    """Agents that are each reached by two forwarded ports, which are neighbours unless `apart`."""

    folder: Path
    ending: ExitStack
    keys: Path | None = None
    inside: dict[str, int] = field(default_factory=dict)
    outside: dict[str, tuple[int, int]] = field(default_factory=dict)
    relays: dict[str, Forwarder] = field(default_factory=dict)

    def start(
        self,
        name: str,
        announced: int,
        *,
        apart: bool = False,
        data: bool = True,
        older: bool = False,
    ) -> None:
        """Start an agent that announces the port `announced` of whatever host it is reached at, or
        the one that it has."""
        port = self.inside[name] = free_port()
        announced = port + 1 if announced is None else announced
        control = free_port()
        beside = free_port() if apart else control + 1
        self.outside[name] = control, beside
        program = ["-c", OLDER] if older else ["-m", "tests.nodes.forwarded_agent"]
        command = [sys.executable, *program, f"tcp://0.0.0.0:{announced}"]
        command += ["--listen", f"tcp://{HERE}:{port}", "--name", name]
        command += [] if self.keys is None else ["--keys", str(self.keys / name)]
        process = subprocess.Popen(
            [*command, "--cache", str(self.folder / name)],
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            cwd=Path(__file__).parents[2],
        )
        self.ending.callback(stop, process)
        assert process.stderr is not None
        self.ending.callback(process.stderr.close)
        assert b" ready: " in process.stderr.readline()
        pairs = [((HERE, control), (HERE, port))]
        pairs += [((HERE, beside), (HERE, port + 1))] if data else []
        self.relays[name] = self.ending.enter_context(forwarded(*pairs))

    def nodes(self, cluster: Cluster, *, says: bool = False) -> tuple[Node, ...]:
        access = Access() if self.keys is None else Access(self.keys, is_named=True)
        found = cluster.nodes(
            {name: f"tcp://{HERE}:{control}" for name, (control, _) in self.outside.items()}, access
        )
        if not says:
            return found
        return tuple(
            replace(node, data=f"tcp://{HERE}:{self.outside[node.name][1]}") for node in found
        )


@pytest.fixture
def boards(tmp_path: Path) -> Iterator[Boards]:
    with ExitStack() as ending:
        yield Boards(tmp_path, ending)


@pytest.fixture
def nowhere() -> Iterator[int]:
    """A port at which nothing listens, and which nobody else gets."""
    with socket.socket() as held:
        held.bind((HERE, 0))
        yield held.getsockname()[1]


def run(cluster: Cluster, nodes: tuple[Node, ...], frames: int = 8) -> None:
    taken = results()
    outcome = cluster.run(RandomFrames(frames), taken, OPTIONS, nodes=nodes)
    cluster.check(taken.outputs, frames)
    assert not outcome.recoveries


@pytest.mark.parametrize("older", [False, True], ids=["", "of the older protocol"])
def test_the_port_after_the_control_port_is_used_by_default(
    two: Cluster, boards: Boards, nowhere: int, older: bool
) -> None:
    for name in two.names:
        boards.start(name, nowhere, older=older)
    run(two, boards.nodes(two))


def test_another_agents_data_port_at_the_announced_number_is_not_taken(
    two: Cluster, boards: Boards, nowhere: int
) -> None:
    """As with two containers whose agents use the same numbers inside."""
    boards.start("n0", nowhere)
    boards.start("n1", boards.inside["n0"] + 1)
    run(two, boards.nodes(two))


def test_the_announced_port_is_used_where_the_next_one_is_another_agents(
    two: Cluster, boards: Boards, nowhere: int
) -> None:
    boards.start("n0", nowhere)
    boards.start("n1", None, data=False)
    _, beside = boards.outside["n1"]
    boards.relays["n1"].forward((HERE, beside), (HERE, boards.inside["n0"] + 1))
    run(two, boards.nodes(two))


def test_a_data_port_elsewhere_is_found_where_the_user_says(
    two: Cluster, boards: Boards, nowhere: int
) -> None:
    for name in two.names:
        boards.start(name, nowhere, apart=True)
    run(two, boards.nodes(two, says=True))


@pytest.mark.slow
def test_with_keys_it_is_the_same(two: Cluster, boards: Boards, nowhere: int) -> None:
    boards.keys = boards.folder / "keys"
    make_keys(boards.keys, dict.fromkeys(two.names))
    boards.start("n0", nowhere)
    boards.start("n1", boards.inside["n0"] + 1)
    run(two, boards.nodes(two))


def test_a_data_port_that_is_not_forwarded_is_named_before_anything_is_loaded(
    two: Cluster, boards: Boards, nowhere: int
) -> None:
    boards.start("n0", nowhere)
    boards.start("n1", nowhere, data=False)
    nodes, taken = boards.nodes(two), results()
    began_s = time.monotonic()
    with pytest.raises(BadInputError) as caught:
        two.run(RandomFrames(4), taken, OPTIONS, nodes=nodes)
    assert time.monotonic() - began_s < SEARCH_S + 10.0
    said, (control, beside) = str(caught.value), boards.outside["n1"]
    assert f"node 'n1' at tcp://{HERE}:{control}: its agent answers, but its data port" in said
    assert f"tcp://{HERE}:{nowhere}" in said
    assert f"tcp://{HERE}:{beside}" in said
    assert "`data:`" in said
    assert "loading" not in taken.stages
    boards.relays["n1"].forward((HERE, beside), (HERE, boards.inside["n1"] + 1))
    run(two, nodes)  # both agents are free


def test_the_roll_says_it_too(two: Cluster, boards: Boards, nowhere: int) -> None:
    boards.start("n0", nowhere)
    boards.start("n1", nowhere, data=False)
    nodes = boards.nodes(two)
    with start_agents(nodes) as agents:
        found = AgentRunner(agents).call_roll(nodes, 20.0, 20.0)
    _, beside = boards.outside["n0"]
    assert found.welcomes.keys() == {"n0"}
    assert found.welcomes["n0"].data_address == f"tcp://{HERE}:{beside}"
    assert "its data port does not" in str(found.absent["n1"])


def test_no_data_port_of_another_machine_is_dialled_without_keys(two: Cluster) -> None:
    """Whoever answers at a loopback address cannot have frames sent elsewhere in the clear."""
    with (
        Connections(None, Access().guards) as connections,
        pytest.raises(AddressError, match="has no keys"),
    ):
        connections.open_data("n0", "tcp://192.0.2.1:5501", 1)


# ---------------------------------------------------------------- the search, without I/O


@st.composite
def events(draw: st.DrawFn) -> tuple[int, list[int], int]:
    """How many candidates there are, the order in which they answer, and the one that is right."""
    count = draw(st.integers(2, 3))
    answering = draw(st.lists(st.integers(0, count - 1), unique=True))
    return count, answering, draw(st.integers(0, count - 1))


@settings(deadline=None)
@given(events=events(), lag=st.integers(0, 4), stray=st.booleans())
def test_only_a_candidate_that_reaches_the_agent_is_found(
    events: tuple[int, list[int], int], lag: int, stray: bool
) -> None:
    """The agent counts a knock only after some answers; it has counted others' messages before."""
    count, answering, right = events
    addresses = [f"tcp://h:{number}" for number in range(count)]
    search, now_s, counted, late = DoorSearch(addresses, 0.0), 0.0, 7 * stray, 0
    asked, waiting = search.begin().count(SearchStep.ASK), list(answering)
    while search.found is None and now_s < search.until_s:
        steps: list[SearchStep] = []
        if waiting:
            steps += search.connected(addresses[waiting.pop(0)], now_s)
        if asked:
            asked -= 1
            if late:
                late -= 1
                counted += late == 0
            steps += search.counted(counted, now_s)
        now_s += 0.05
        steps += search.due(now_s)
        for step in steps:
            asked += 1
            if step is SearchStep.KNOCK and search.knocked == addresses[right]:
                late = lag + 1
    assert lag * 0.05 < KNOCK_S
    assert search.found == (addresses[right] if right in answering else None)


@settings(deadline=None)
@given(
    given_port=st.none() | st.integers(1, 65535),
    announced=st.integers(1, 65535),
    control=st.integers(1, 65535),
    host=st.sampled_from(["10.0.0.7", "pi", "fe80::1"]),
)
def test_what_the_user_says_comes_first_and_an_ordinary_agent_has_one_candidate(
    given_port: int | None, announced: int, control: int, host: str
) -> None:
    at = f"[{host}]" if ":" in host else host
    said = None if given_port is None else f"tcp://{at}:{given_port}"
    found = candidates(said, f"tcp://0.0.0.0:{announced}", f"tcp://{at}:{control}", host)
    assert said is None or found[0] == said
    assert f"tcp://{at}:{announced}" in found
    assert (control == 65535) or f"tcp://{at}:{control + 1}" in found
    assert len(found) == len(set(found)) <= 3
    if announced == control + 1 and said is None:
        assert len(found) == 1
