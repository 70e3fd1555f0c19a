"""The quotas of an agent, and its messages when they are exceeded."""

from __future__ import annotations

import resource
import time

import pytest

from nodes.core.dataplane import DataPlane
from nodes.protocol.errors import NodeError
from nodes.protocol.messages import (
    HOST,
    BlobInfo,
    Bye,
    ChannelSpec,
    Deploy,
    Deployment,
    Failed,
    Ping,
    Pong,
    Put,
)
from nodes.protocol.messages import PhaseSpec as Phase
from nodes.quotas import Quotas, allow_descriptors

GRAPH, WEIGHTS = BlobInfo("a" * 64, 1000), BlobInfo("b" * 64, 5000)


def deployment(elements: int, target: str = HOST) -> Deployment:
    """One phase of 6000 bytes that reads and writes a float32 tensor."""

    def channel(number: int, tensor: str, source: str, target: str) -> ChannelSpec:
        return ChannelSpec(
            number, tensor, "float32", (elements,), source, None if source == HOST else 0, target,
            () if target == HOST else (0,), 1,
        )  # fmt: skip

    channels = (channel(0, "x", HOST, "n0"), channel(1, "y", "n0", target))
    return Deployment(
        1, "n0", "pipelined", (Phase("p", GRAPH, WEIGHTS, ("x",), ("y",)),), channels, ()
    )


def test_what_is_within_the_quotas_is_taken() -> None:
    assert Quotas(6000, 400).excess(deployment(100)) is None


def test_thousands_of_phases_and_channels_are_checked_in_one_pass() -> None:
    """A message of 1 MB; looked through once for each phase it took more than five seconds."""
    many = range(4096)
    channels = tuple(
        ChannelSpec(n, f"x{n}", "float32", (1,), HOST, None, "n0", (n,), 1) for n in many
    )
    phases = tuple(Phase("p", GRAPH, None, (f"x{n}",), ()) for n in many)
    began_s = time.process_time()
    DataPlane(Deployment(1, "n0", "pipelined", phases, channels, ()))
    assert time.process_time() - began_s < 1.5


def test_a_tensor_that_is_too_long_is_named() -> None:
    said = Quotas(6000, 399).excess(deployment(100))
    assert said is not None
    assert all(word in said for word in ("channel 0", "400 bytes", "399", "--tensor-bytes"))


def test_what_stays_on_the_node_has_no_limit() -> None:
    inside = deployment(100)
    within = Deployment(
        1, "n0", "pipelined", inside.phases,
        (ChannelSpec(0, "y", "float32", (100,), "n0", 0, "n0", (1,), 1),), (),
    )  # fmt: skip
    assert Quotas(6000, 10).excess(within) is None


def test_subnets_that_the_cache_cannot_hold_are_refused_and_each_counts_once() -> None:
    said = Quotas(5999, 400).excess(deployment(100))
    assert said is not None
    assert all(word in said for word in ("6000 bytes", "5999", "--cache-bytes"))
    twice = deployment(100)
    repeated = Deployment(1, "n0", "pipelined", twice.phases * 2, twice.channels, (), threads=1)
    assert Quotas(6000, 400).excess(repeated) is None


def test_an_agent_keeps_its_quotas(start, dial) -> None:
    launcher = dial(start("--tensor-bytes", "1KiB", "--cache-bytes", "10KiB").control)
    launcher.open_session()
    launcher.say(Deploy(deployment(257)))
    answer = launcher.hear(Failed)
    assert "1028 bytes" in answer.reason
    launcher.say(Put(BlobInfo("c" * 64, 10241), 0, b"x"))
    assert "10241 bytes exceed the quota" in launcher.hear(Failed).reason
    assert launcher.ask(Ping()) == Pong()
    launcher.say(Bye())


def test_ports_that_may_need_more_descriptors_than_the_system_allows_are_refused() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with pytest.raises(NodeError, match=rf"--connections {hard} .*use --connections \d+ at most"):
        allow_descriptors(hard)


def test_an_agent_may_have_as_many_descriptors_as_its_ports_hold(start) -> None:
    soft, _ = resource.prlimit(start("--connections", "300").pid, resource.RLIMIT_NOFILE)
    assert soft >= 2 * 300 * 5
