"""Runs of a small real network with real agents: results agree, and failures end in a sentence."""

from __future__ import annotations

import hashlib
import json
import os
import signal
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from launcher.config.run import RunConfig
from launcher.errors import BadInputError, RunFailedError
from launcher.run.processes import start_agents
from launcher.run.runtime import Node, RunOptions, SubnetFiles
from nodes.protocol.messages import PROTOCOL, Refused
from tests.launcher_runtime.clusters import (
    Cluster,
    RandomFrames,
    daemons,
    foreign_agent,
    free_port,
    group_has_ended,
    is_running,
    make_dealt_cluster,
    results,
)


@pytest.mark.parametrize("order", ["pipelined", pytest.param("strict", marks=pytest.mark.slow)])
def test_two_started_agents_compute_what_the_whole_network_computes(
    two: Cluster, cache: Path, order: str
) -> None:
    """A node without a phase is not asked for anything."""
    nowhere = Node("spare", f"tcp://127.0.0.1:{free_port()}")
    taken = results()
    options = RunOptions(RunConfig(order=order), cache=cache)
    outcome = two.run(RandomFrames(12), taken, options, nodes=(*two.nodes(), nowhere))
    two.check(taken.outputs, 12)
    assert (
        set(outcome.stats) == set(outcome.idle_rss_bytes) == set(outcome.warmup_s) == {"n0", "n1"}
    )
    for name, stats in outcome.stats.items():
        phases = [phase for phase in two.plan.phases if phase.device == name]
        assert stats.firings == (12,) * len(phases)
        assert len(outcome.warmup_s[name]) == len(phases)
        assert stats.stale_messages == stats.bad_messages == 0
    assert len(outcome.sent_s) == len(outcome.received_s) == 12
    assert list(outcome.received_s) == sorted(outcome.received_s)
    assert all(s < r for s, r in zip(outcome.sent_s, outcome.received_s, strict=True))
    assert outcome.received_s[0] <= outcome.first_result_s
    crossing = [c for c in two.plan.channels if not c.is_local]
    for name, stats in outcome.stats.items():
        sent = sum(c.tensor.bytes for c in crossing if c.source_device == name)
        received = sum(c.tensor.bytes for c in crossing if c.target_device == name)
        assert (stats.sent_bytes, stats.received_bytes) == (12 * sent, 12 * received)
    moved = outcome.sent_bytes + sum(stats.sent_bytes for stats in outcome.stats.values())
    assert moved == 12 * two.plan.bytes_per_frame, "planned and sent are counted alike"


@pytest.mark.slow
def test_frames_dealt_out_to_copies_come_back_in_order(tmp_path: Path, cache: Path) -> None:
    dealt, taken = make_dealt_cluster(tmp_path, (2, 1)), results()
    outcome = dealt.run(RandomFrames(13), taken, RunOptions(cache=cache))
    dealt.check(taken.outputs, 13)
    assert {name: stats.firings for name, stats in outcome.stats.items()} == {
        "n0": (9,),
        "n1": (4,),
    }
    weights = {subnet.weights for subnet in dealt.subnets.values()}
    assert len(weights) == 1, "copies share their weights' blob"


@pytest.mark.slow
def test_batches_are_dealt_out_to_copies_as_frames_are(tmp_path: Path, cache: Path) -> None:
    dealt, taken = make_dealt_cluster(tmp_path, (2, 1), batch=3), results()
    outcome = dealt.run(RandomFrames(22), taken, RunOptions(cache=cache))
    dealt.check(taken.outputs, 22)
    firings = {name: stats.firings for name, stats in outcome.stats.items()}
    assert firings == {"n0": (5,), "n1": (3,)}, "eight batches, the last one of one frame"
    assert len(outcome.sent_s) == len(outcome.received_s) == 22


@pytest.mark.slow
def test_a_trace_has_every_firing_and_every_tensor_of_all_nodes_on_one_clock(
    two: Cluster, cache: Path, tmp_path: Path
) -> None:
    file = tmp_path / "trace.json"
    two.run(RandomFrames(5), results(), RunOptions(cache=cache, trace=file))
    trace = json.loads(file.read_text("utf-8"))
    spans = trace["traceEvents"]
    fired = {(s["args"]["phase"], s["args"]["frame"]) for s in spans if s.get("cat") == "firing"}
    assert fired == {(phase.name, frame) for phase in two.plan.phases for frame in range(5)}
    between = [c for c in two.plan.channels if {c.source_device, c.target_device} == {"n0", "n1"}]
    under_way = [s["id"] for s in spans if s["ph"] == "b"]
    assert len(set(under_way)) == len(under_way) == 5 * len(between)
    for told in trace["otherData"].values():
        assert told["events_dropped"] == 0
        assert abs(told["clock_ahead_s"]) <= told["clock_error_s"], "their clock is ours"


@pytest.mark.slow
def test_a_slow_user_holds_the_source_back(two: Cluster, cache: Path) -> None:
    """What was sent and not taken never exceeds the places in the channels."""
    frames, under_way = RandomFrames(64), []

    def take(frame: int, _: Mapping[str, np.ndarray]) -> None:
        under_way.append(frames.loaded - frame)

    two.run(frames, take, RunOptions(cache=cache))
    assert len(under_way) == 64
    assert max(under_way) <= two.most_under_way + 1  # one is loaded ahead
    assert max(under_way) < 64


@pytest.mark.slow
def test_daemons_serve_one_run_after_another_and_keep_the_subnets(
    three: Cluster, tmp_path: Path
) -> None:
    with daemons(three.names, tmp_path) as running:
        nodes = three.nodes({name: address for name, (address, _) in running.items()})
        stages = []
        for _ in range(2):
            taken = results()
            three.run(
                RandomFrames(6), taken, RunOptions(), nodes=nodes, on_update=taken.updates.append
            )
            three.check(taken.outputs, 6)
            stages.append(taken.stages)
        assert stages == [
            ["connecting", "uploading", "loading", "streaming"],
            ["connecting", "loading", "streaming"],
        ]
        assert all(is_alive(pid) for _, pid in running.values())


@pytest.mark.slow
def test_started_agents_and_daemons_work_together(
    two: Cluster, cache: Path, tmp_path: Path
) -> None:
    with daemons(("n0",), tmp_path) as running:
        nodes = two.nodes({"n0": running["n0"][0]})
        taken = results()
        two.run(RandomFrames(4), taken, RunOptions(cache=cache), nodes=nodes)
        two.check(taken.outputs, 4)


@pytest.mark.slow
def test_a_second_launcher_is_refused_and_the_first_continues(two: Cluster, tmp_path: Path) -> None:
    refusals: list[str] = []
    with daemons(two.names, tmp_path) as running:
        nodes = two.nodes({name: address for name, (address, _) in running.items()})

        def take(frame: int, _: Mapping[str, np.ndarray]) -> None:
            if frame != 2:
                return
            with pytest.raises(BadInputError) as refused:
                two.run(RandomFrames(2), results(), RunOptions(), nodes=nodes)
            refusals.append(str(refused.value))

        two.run(RandomFrames(8), take, RunOptions(), nodes=nodes)
    assert len(refusals) == 1
    assert "refused: another deployment of this launcher is using it" in refusals[0]
    assert "write slots: 2 for it" in refusals[0]
    assert "tcp://127.0.0.1:" in refusals[0]


@pytest.mark.slow
def test_an_agent_that_is_killed_ends_the_run_and_leaves_no_process(
    two: Cluster, cache: Path
) -> None:
    nodes = two.nodes()
    with start_agents(nodes, cache) as agents:
        pids = {name: agents[name].pid for name in agents}

        def take(frame: int, _: Mapping[str, np.ndarray]) -> None:
            if frame == 3:
                os.kill(pids["n1"], signal.SIGKILL)

        with pytest.raises(RunFailedError) as lost:
            two.run(RandomFrames(5000), take, RunOptions(), nodes=nodes, agents=agents)
    assert "node 'n1' (started on this machine) was lost while running, after" in str(lost.value)
    assert "of 5000 results: its agent was ended by signal 9 (SIGKILL) and wrote nothing" in str(
        lost.value
    )
    # What an agent forked hears of its end a moment later.
    assert all(group_has_ended(pid) for pid in pids.values())


@pytest.mark.slow
def test_a_daemon_that_is_killed_ends_the_run_and_frees_the_others(
    two: Cluster, tmp_path: Path
) -> None:
    with daemons(two.names, tmp_path) as running:
        nodes = two.nodes({name: address for name, (address, _) in running.items()})

        def take(frame: int, _: Mapping[str, np.ndarray]) -> None:
            if frame == 3:
                os.kill(running["n0"][1], signal.SIGKILL)

        with pytest.raises(RunFailedError, match=r"node 'n0' at tcp://.* was lost while running"):
            two.run(RandomFrames(5000), take, RunOptions(), nodes=nodes)
        with pytest.raises(BadInputError, match=r"node 'n0' at .* did not answer within 0\.5 s"):
            two.run(
                RandomFrames(1),
                results(),
                RunOptions(RunConfig(connect_timeout_s=0.5)),
                nodes=nodes,
            )


@pytest.mark.slow
def test_an_address_where_nobody_is_ends_with_its_name(two: Cluster, cache: Path) -> None:
    address = f"tcp://127.0.0.1:{free_port()}"
    nodes = two.nodes({"n1": address})
    with pytest.raises(BadInputError) as unreachable:
        two.run(
            RandomFrames(1),
            results(),
            RunOptions(RunConfig(connect_timeout_s=0.5), cache=cache),
            nodes=nodes,
        )
    assert str(unreachable.value) == (
        f"node 'n1' at {address} did not answer within 0.5 s; check that node-agent runs "
        "there, and that this machine can reach it"
    )


def test_an_agent_of_another_version_is_named_with_both_protocols(two: Cluster) -> None:
    with foreign_agent(Refused("install the same version", PROTOCOL + 1)) as address:
        nodes = two.nodes({"n0": address, "n1": f"tcp://127.0.0.1:{free_port()}"})
        with pytest.raises(BadInputError) as refused:
            two.run(RandomFrames(1), results(), RunOptions(), nodes=nodes)
    assert str(refused.value) == (
        f"node 'n0' at {address} speaks protocol {PROTOCOL + 1}, "
        f"this launcher protocol {PROTOCOL}: "
        "install the same version of csdf-edge on both (this machine has the older one)"
    )


def test_an_agent_that_cannot_start_says_why_and_it_is_the_users_matter(
    two: Cluster, cache: Path
) -> None:
    nodes = (Node("n0", cpus=(1023,)), Node("n1"))
    with pytest.raises(BadInputError) as failed:
        two.run(RandomFrames(1), results(), RunOptions(cache=cache), nodes=nodes)
    assert str(failed.value).startswith(
        "node 'n0': its agent could not start: cannot run on the CPUs 1023: this machine offers"
    )


@pytest.mark.slow
def test_a_subnet_that_the_engine_cannot_load_is_reported_in_the_agents_words(
    two: Cluster, cache: Path, tmp_path: Path
) -> None:
    content = b"no model at all"
    broken = tmp_path / hashlib.sha256(content).hexdigest()
    broken.write_bytes(content)
    phase = next(phase for phase in two.plan.phases if phase.device == "n1")
    subnets = {**two.subnets, phase.name: SubnetFiles(broken, None)}
    with pytest.raises(RunFailedError) as failed:
        replace(two, subnets=subnets).run(RandomFrames(1), results(), RunOptions(cache=cache))
    assert "node 'n1' (started on this machine) failed while loading its subnets" in str(
        failed.value
    )
    assert f"{broken.name} is not an ONNX file" in str(failed.value)


@pytest.mark.slow
def test_what_the_user_does_wrong_with_a_result_reaches_the_user(two: Cluster, cache: Path) -> None:
    class UserError(ValueError):
        pass

    def take(frame: int, _: Mapping[str, np.ndarray]) -> None:
        raise UserError("not like this")

    with start_agents(two.nodes(), cache) as agents:
        pids = [agent.pid for agent in agents.values()]
        with pytest.raises(UserError):
            two.run(RandomFrames(9), take, RunOptions(), agents=agents)
    assert not any(is_running(pid) for pid in pids)


class BrokenFrames(RandomFrames):
    """Files of which one is damaged."""

    def __init__(self, count: int, broken: int) -> None:
        super().__init__(count)
        self.broken = broken

    def __getitem__(self, index: int) -> dict[str, np.ndarray]:
        if index == self.broken:
            raise BadInputError(f"frame {index} is damaged")
        return super().__getitem__(index)


@pytest.mark.slow
def test_a_frame_that_cannot_be_read_is_a_mistake_before_others_were_streamed(
    two: Cluster, cache: Path
) -> None:
    with pytest.raises(BadInputError, match="frame 0 is damaged"):
        two.run(BrokenFrames(3, 0), results(), RunOptions(cache=cache))


@pytest.mark.slow
def test_a_frame_that_cannot_be_read_once_others_were_streamed_fails_the_run(
    two: Cluster, cache: Path
) -> None:
    """Something was run, so it is not the exit code of a command that ran nothing."""
    with pytest.raises(RunFailedError, match="frame 30 is damaged"):
        two.run(BrokenFrames(40, 30), results(), RunOptions(cache=cache))


def test_nodes_that_the_plan_does_not_fit_are_refused_before_anything_starts(two: Cluster) -> None:
    def refused(nodes: tuple[Node, ...], match: str) -> None:
        with pytest.raises(BadInputError, match=match):
            two.run(RandomFrames(1), results(), RunOptions(), nodes=nodes)

    refused((Node("n0"), Node("other")), "needs a node 'n1', which is not among n0, other")
    same = "tcp://127.0.0.1:7070"
    refused((Node("n0", same), Node("n1", same)), f"'n0' and 'n1' have the same address {same}")
    standing_by = RunOptions(replan=lambda *_: pytest.fail("nobody is lost"))
    nodes = (Node("n0", same), Node("n1"), Node("n9", same))
    with pytest.raises(BadInputError, match=f"'n0' and 'n9' have the same address {same}"):
        two.run(RandomFrames(1), results(), standing_by, nodes=nodes)
    with pytest.raises(BadInputError, match="no frame"):
        two.run(RandomFrames(0), results(), RunOptions())


def test_a_missing_subnet_file_is_named(two: Cluster) -> None:
    name, files = next(iter(two.subnets.items()))
    gone = replace(files, graph=files.graph.with_name("0" * 64))
    with pytest.raises(BadInputError, match=f"{'0' * 64} cannot be read"):
        replace(two, subnets={**two.subnets, name: gone}).run(
            RandomFrames(1), results(), RunOptions()
        )


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
