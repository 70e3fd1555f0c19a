"""Looks at runs over real agents, from other threads than the run's own."""

from __future__ import annotations

import itertools
import os
import signal
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

import csdf_edge
from launcher.streaming.live_cluster import LiveCluster
from launcher.view.json_form import VIEW_PATH, views_as_json, views_from_json
from launcher.view.model import NodeState, RunView
from tests.serve.server import ON_THREE, WAIT_S, Serving, images

pytestmark = pytest.mark.slow

FRAMES = [{"image": image} for image in images()[:200]]


@pytest.fixture(scope="module")
def cluster() -> Iterator[LiveCluster]:
    with csdf_edge.open(ON_THREE) as cluster:
        yield cluster


def test_a_view_has_all_frames_and_what_each_node_did_for_them(cluster: LiveCluster) -> None:
    before = cluster.view()
    assert len(list(cluster.stream(FRAMES))) == len(FRAMES)
    view = next(v for v in iter(cluster.view, None) if v.nodes[-1].phases[-1].firings == 200)
    assert view.frames_total == view.latency.counts[-1] == before.frames_total + 200
    assert (view.state, view.in_flight, view.models) == ("streaming", 0, ("digits",))
    assert view.run == before.run
    assert [node.name for node in view.nodes] == ["left", "middle", "right"]
    for node in view.nodes:
        assert node.state is NodeState.ACTIVE
        assert node.engine == "onnxruntime"
        assert node.busy_s_total == sum(phase.busy_s for phase in node.phases) > 0
        assert node.received_bytes_total > 0
        assert node.rss_bytes is not None
        assert node.predicted_bytes is not None
        for phase in node.phases:
            assert (phase.firings, phase.layers > 0, phase.predicted_s > 0) == (200, True, True)
    ends = {(channel.producer, channel.consumer) for channel in view.channels}
    assert ends == {("@host", "left"), ("left", "middle"), ("middle", "right"), ("right", "@host")}
    assert all(channel.frames == 0 < channel.frame_bytes for channel in view.channels)


def test_the_node_that_is_busiest_is_found_while_frames_stream(cluster: LiveCluster) -> None:
    for _ in cluster.stream(itertools.cycle(FRAMES)):
        view = cluster.view()
        if view.bottleneck is not None:
            break
    assert view.bottleneck in {"left", "middle", "right"}
    assert all(0 <= channel.frames <= channel.capacity for channel in view.channels)
    assert view.rate > 0


def test_a_view_is_the_same_after_it_was_written_and_read(cluster: LiveCluster) -> None:
    view = cluster.view()
    assert views_from_json(views_as_json([view])) == (view,)


def test_a_run_that_has_ended_still_shows_what_it_did() -> None:
    with csdf_edge.open(ON_THREE) as cluster:
        list(cluster.stream(FRAMES[:5]))
    view = cluster.view()
    assert (view.state, view.frames_total) == ("ended", 5)


# ---------------------------------------------------------------- over HTTP


def views(serving: Serving) -> tuple[RunView, ...]:
    url = f"http://{serving.http}{VIEW_PATH}"
    with urllib.request.urlopen(url, timeout=WAIT_S) as answer:
        return views_from_json(answer.read())


def test_a_server_shows_that_it_has_lost_a_board_and_continues() -> None:
    serving = Serving()
    (before,) = views(serving)
    assert {node.state for node in before.nodes} == {NodeState.ACTIVE}
    os.kill(agent_of(serving, "middle"), signal.SIGKILL)
    after = next(view for (view,) in iter(lambda: views(serving), None) if view.recoveries_total)
    assert serving.end() == 0
    lost = {node.name: node for node in after.nodes}["middle"]
    assert lost.state is NodeState.LOST
    assert "node 'middle'" in lost.reason
    assert lost.phases == ()
    assert after.epoch > before.epoch
    assert [event.level for event in after.events] == ["warning", "info"]


def agent_of(serving: Serving, node: str) -> int:
    commands = {pid: Path(f"/proc/{pid}/cmdline").read_bytes() for pid in serving.agents()}
    return next(pid for pid, command in commands.items() if node.encode() in command.split(b"\0"))
