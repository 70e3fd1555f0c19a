"""The threads that nodes compute with: what the user writes, or else what the board has."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import csdf_edge
from cnn.model import read
from launcher.config.load import Cluster, load_cluster
from launcher.config.node import NodeConfig
from launcher.core.roll import Greeted, Roll
from launcher.plan.boards import ThreadShare, figures_wanted, thread_shares, with_boards
from launcher.plan.devices import NO_FACTS, Facts, devices_of
from launcher.plan.files import cluster_text
from launcher.plan.planner import Planner
from launcher.plan.profile.file import NodeEntry, NodeIdentity, NodeTimes, ProfileFile
from launcher.plan.profile.links import identities
from launcher.plan.profile.use import facts_of
from launcher.plan.replanning import Replanner
from launcher.results.report import NodeReport
from launcher.run.request import Request
from nodes.measuring.conditions import threads_of_board
from nodes.protocol.messages import (
    OLDEST_PROTOCOL,
    PROTOCOL,
    DeviceOffer,
    EngineOffer,
    Welcome,
)
from tests.launcher.launches import AGENTS, reported
from tests.launcher.models import write_branches
from tests.nodes.speaker import AgentProcess

CPUS = sorted(os.sched_getaffinity(0))
WELCOME = Welcome(PROTOCOL, "a", "1", "tcp://192.0.2.7:5501", "ORT", "board", 8, 1, threads=8)


def node(name: str, **more: Any) -> NodeConfig:
    return NodeConfig(name=name, **{"address": f"tcp://192.0.2.{ord(name)}:5500", **more})


def cluster_of(folder: Path, *nodes: str, more: str = "") -> Cluster:
    write_branches(folder / "branches.onnx")
    path = folder / "cluster.yaml"
    path.write_text(f"model: branches.onnx\nnodes: [{', '.join(nodes)}]\n{more}")
    return load_cluster(path)


def known(cluster: Cluster, facts: Facts = NO_FACTS, **welcomes: Welcome) -> Facts:
    roll = Roll({name: Greeted("", welcome) for name, welcome in welcomes.items()})
    return with_boards(facts, roll, facts.nodes(cluster))


# ------------------------------------------------------------ shares


@pytest.mark.parametrize(
    ("nodes", "threads"),
    [
        ([node("a")], [8]),
        ([node("a", threads=3)], [3]),
        ([node("a", threads=9)], [9]),
        ([node("a"), node("b")], [8, 8]),
        ([node("a", host="pc"), node("b", host="pc"), node("c")], [4, 4, 8]),
        ([node("a", host="pc"), node("b", host="pc", threads=6)], [2, 6]),
        ([node("a", host="pc"), node("b", host="pc", threads=8)], [1, 8]),
        ([node("a", host="pc"), node("b", host="pc", device="gpu")], [8, 4]),
        ([node("a", address=None, cpus=(0, 1)), node("b", address=None, cpus=(2,))], [8, 8]),
        ([node("a", address=None, cpus=(0, 1)), node("b", address=None)], [4, 4]),
    ],
    ids=str,
)
def test_the_nodes_of_a_machine_share_its_threads(
    nodes: list[NodeConfig], threads: list[int]
) -> None:
    assert [share.threads_on(WELCOME) for share in thread_shares(nodes).values()] == threads


@st.composite
def some_nodes(draw: st.DrawFn) -> tuple[NodeConfig, ...]:
    threads = st.none() | st.integers(1, 16)
    hosts = st.sampled_from(["one", "other", "third"])
    count = draw(st.integers(1, 6))
    return tuple(
        node("abcdef"[number], threads=draw(threads), host=draw(hosts)) for number in range(count)
    )


@given(nodes=some_nodes(), board=st.integers(0, 64), answers=st.sets(st.sampled_from("abcdef")))
def test_what_the_user_writes_is_never_overridden_and_the_others_share_the_rest(
    nodes: tuple[NodeConfig, ...], board: int, answers: set[str]
) -> None:
    welcomes = {each.name: replace(WELCOME, threads=board) for each in nodes}
    present = {name: each for name, each in welcomes.items() if name in answers}
    roll = Roll({name: Greeted("", each) for name, each in present.items()})
    facts = with_boards(NO_FACTS, roll, nodes)
    completed = [facts._node(each) for each in nodes]
    for before, after in zip(nodes, completed, strict=True):
        if before.threads is not None or before.name not in answers:
            assert after == before
        else:
            assert after.threads is not None
            assert 1 <= after.threads <= max(1, board)
    for host in {each.host for each in nodes}:
        own = [pair for pair in zip(nodes, completed, strict=True) if pair[0].host == host]
        open_ = [after.threads for before, after in own if before.threads is None]
        used = sum(after.threads or 0 for _, after in own)
        assert used <= board or all(threads in (None, 1) for threads in open_)
    asked = figures_wanted(nodes, answers)
    assert {name: asked[name](each).threads for name, each in present.items()} == facts.threads
    later = with_boards(facts, Roll({n: Greeted("", w) for n, w in welcomes.items()}), completed)
    assert {name: later.threads[name] for name in facts.threads} == facts.threads


def test_an_agent_of_the_version_before_computes_with_one_thread() -> None:
    assert ThreadShare().threads_on(replace(WELCOME, protocol=OLDEST_PROTOCOL, threads=0)) == 1


# ------------------------------------------------------------ who must know them


def test_all_that_depends_on_threads_has_those_of_the_board(tmp_path: Path) -> None:
    cluster = cluster_of(tmp_path, *(f"{{name: {n}, address: 'tcp://pi{n}:1'}}" for n in "ab"))
    facts = known(cluster, a=WELCOME)
    a, b = devices_of(cluster, facts=facts)
    assert (a.threads, b.threads) == (8, 1)
    assert a.macs_per_s == 8 * b.macs_per_s
    assert identities(facts.nodes(cluster), {"a": WELCOME})["a"].threads == 8
    assert "threads" not in cluster_text(cluster)


def test_one_thread_that_the_user_writes_is_saved_with_a_plan(tmp_path: Path) -> None:
    cluster = cluster_of(tmp_path, "{name: a, threads: 1}")
    again = tmp_path / "again.yaml"
    again.write_text(cluster_text(cluster))
    assert known(load_cluster(again), a=WELCOME).nodes(cluster)[0].threads == 1
    assert load_cluster(again).config.nodes[0].threads == 1


def test_a_profile_is_used_with_the_threads_that_it_was_measured_with(tmp_path: Path) -> None:
    cluster = cluster_of(tmp_path, "{name: a, address: 'tcp://pi:1'}")
    measured = NodeIdentity(
        host="pi", threads=3, cpus=(), machine="board", cores=8, engine="ORT", version="1"
    )
    entry = NodeEntry(identity=measured, measured=NodeTimes(layer_s={}))
    file = ProfileFile(model="m", model_digest="d", energy="", nodes={"a": entry})
    facts = known(cluster, facts_of(file), a=WELCOME)
    assert devices_of(cluster, facts=facts)[0].threads == 3
    file.check("p", "m", "d", identities(facts.nodes(cluster), {"a": WELCOME}))


def test_a_measured_choice_holds_whatever_the_agents_report_of_their_cores(
    tmp_path: Path,
) -> None:
    cluster = cluster_of(tmp_path, "{name: a, address: 'tcp://pi:1'}")
    planner = Planner(cluster, read(tmp_path / "branches.onnx"))
    at_launch = replace(planner, facts=known(cluster, a=replace(WELCOME, spare_cores=2.0)))
    assert at_launch.facts.serving == {"a"}
    questions = {each.question(each.problem(), "auto") for each in (planner, at_launch)}
    assert len(questions) == 1


def test_a_node_that_comes_later_computes_with_what_its_board_has(tmp_path: Path) -> None:
    cluster = cluster_of(tmp_path, *(f"{{name: {n}, address: 'tcp://pi{n}:1'}}" for n in "ab"))
    planner = Planner(cluster, read(tmp_path / "branches.onnx"), facts=known(cluster, a=WELCOME))
    replanner = Replanner(planner, tmp_path)
    replanner._note({"b": replace(WELCOME, threads=4)})
    assert [device.threads for device in devices_of(cluster, facts=replanner.planner.facts)] == [
        8,
        4,
    ]


def test_a_gpu_that_an_agent_offers_leaves_the_processor_free(tmp_path: Path) -> None:
    offers = (EngineOffer("tensorrt", devices=(DeviceOffer("gpu", ("fp32",)),)),)
    jetson = replace(WELCOME, threads=6, engines=offers)
    names = {"name: a": True, "name: b, accelerator: false": False, "name: c, device: cpu": False}
    nodes = (f"{{{each}, address: 'tcp://pi{n}:1'}}" for n, each in enumerate(names))
    cluster = cluster_of(tmp_path, *nodes)
    devices = devices_of(cluster, facts=known(cluster, a=jetson, b=jetson, c=jetson))
    assert [device.wire_is_free for device in devices] == list(names.values())
    assert devices[0].macs_per_s == 16 * devices_of(cluster)[0].macs_per_s


# ------------------------------------------------------------ real agents

several = pytest.mark.skipif(threads_of_board() < 2, reason="this machine has one core")


@contextmanager
def agent(folder: Path, *arguments: str) -> Iterator[AgentProcess]:
    process = AgentProcess(folder / "agent", "--name", "a", *arguments)
    try:
        yield process
    finally:
        process.end()


def launched(cluster: Cluster) -> tuple[NodeReport, ...]:
    report = reported(Request(Path(cluster.source.name)), AGENTS)
    assert report.agrees
    return report.nodes


RUN = "input: random\nframes: 2\nstrategy: sequential\n"


@several
@pytest.mark.parametrize(
    ("arguments", "threads"), [((), threads_of_board()), (("--cpus", str(CPUS[0])), 1)], ids=str
)
def test_a_run_uses_the_cores_of_the_board(
    tmp_path: Path, arguments: tuple[str, ...], threads: int
) -> None:
    with agent(tmp_path, *arguments) as board:
        address = f"address: '{board.control}'"
        (node,) = launched(cluster_of(tmp_path, f"{{name: a, {address}}}", more=RUN))
        assert node.threads == threads
        (node,) = launched(cluster_of(tmp_path, f"{{name: a, {address}, threads: 1}}", more=RUN))
        assert node.threads == 1


@several
@pytest.mark.parametrize("count", [1, 2, 8])
def test_agents_that_launch_starts_share_the_cores_of_its_machine(
    tmp_path: Path, count: int
) -> None:
    nodes = (f"{{name: {name}}}" for name in "abcdefgh"[:count])
    found = {each.threads for each in launched(cluster_of(tmp_path, *nodes, more=RUN))}
    assert found == {max(1, threads_of_board() // count)}


def settled_threads(board: AgentProcess) -> int:
    """How many threads the agent has, once none that measures or prepares comes or ends."""
    deadline_s = time.monotonic() + 30
    before: set[str] = set()
    while (now := set(os.listdir(f"/proc/{board.pid}/task"))) != before:
        assert time.monotonic() < deadline_s
        before = now
        Event().wait(1)
    return len(now)


@several
def test_the_engine_has_as_many_threads_as_the_plan_says(tmp_path: Path) -> None:
    with agent(tmp_path) as board:
        counts = []
        for keys in ("threads: 1", "threads: 2", "slots: 1"):
            cluster_of(tmp_path, f"{{name: a, address: '{board.control}', {keys}}}", more=RUN)
            with csdf_edge.open(tmp_path / "cluster.yaml"):
                counts.append(settled_threads(board))
        one, two, all_ = counts
    assert (two, all_) == (one + 1, one + threads_of_board() - 1)
