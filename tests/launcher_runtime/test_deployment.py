"""Every node receives its part of the plan, and both ends of a channel agree on it."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from launcher.errors import BadInputError
from launcher.run.deployment import blueprint
from nodes.protocol.addresses import data_address
from nodes.protocol.codec import decode, encode
from nodes.protocol.messages import HOST, Deploy
from partition.plan import Plan
from tests.launcher_runtime.plans import EPOCH, blueprint_of, in_a_row, plans, subnets_of

few = settings(max_examples=40, deadline=None)


@few
@given(plans())
def test_every_channel_of_the_plan_appears_alike_at_both_of_its_ends(plan: Plan) -> None:
    blueprint = blueprint_of(plan)
    seen: dict[int, list[str]] = {}
    for node, deployment in blueprint.deployments.items():
        for channel in deployment.channels:
            planned = plan.channels[channel.number]
            assert node in (channel.source_node, channel.target_node)
            assert channel.tensor == planned.tensor.name
            assert (channel.dtype, channel.shape) == (planned.tensor.dtype, planned.tensor.shape)
            assert channel.capacity_frames == planned.capacity_frames
            seen.setdefault(channel.number, []).append(node)
    for channel in (*blueprint.from_host, *blueprint.to_host):
        seen.setdefault(channel.number, []).append(HOST)
    for number, planned in enumerate(plan.channels):
        ends = {planned.source_device, planned.target_device}
        if ends != {HOST}:
            assert sorted(seen[number]) == sorted(ends)


@few
@given(plans())
def test_both_ends_describe_a_channel_by_the_same_words(plan: Plan) -> None:
    blueprint = blueprint_of(plan)
    described: dict[int, set[object]] = {}
    everyone = [d.channels for d in blueprint.deployments.values()]
    for channels in (*everyone, blueprint.from_host, blueprint.to_host):
        for channel in channels:
            described.setdefault(channel.number, set()).add(channel)
    assert all(len(words) == 1 for words in described.values())


@few
@given(plans())
def test_phases_come_in_the_plans_order_and_channels_point_at_them(plan: Plan) -> None:
    for node, deployment in blueprint_of(plan).deployments.items():
        own = sorted((p for p in plan.phases if p.device == node), key=lambda p: p.index)
        assert [p.name for p in deployment.phases] == [p.name for p in own]
        for channel in deployment.channels:
            planned = plan.channels[channel.number]
            if channel.source_node == node:
                assert channel.source_phase is not None
                assert deployment.phases[channel.source_phase].name == planned.source
                assert channel.tensor in deployment.phases[channel.source_phase].outputs
            if channel.target_node == node:
                names = [deployment.phases[i].name for i in channel.target_phases]
                assert tuple(names) == planned.targets
                assert all(channel.tensor in deployment.phases[i].inputs
                           for i in channel.target_phases)  # fmt: skip


@few
@given(plans())
def test_a_node_dials_exactly_those_it_feeds_and_the_host_its_neighbours(plan: Plan) -> None:
    blueprint = blueprint_of(plan)
    addresses = {node: f"tcp://10.0.0.{i}:7071" for i, node in enumerate(blueprint.deployments)}
    for node, deployment in blueprint.addressed(addresses).items():
        fed = {c.target_device for c in plan.channels if c.source_device == node}
        assert {peer.name for peer in deployment.dial} == fed - {node, HOST}
        assert all(peer.data_address == addresses[peer.name] for peer in deployment.dial)
        assert decode(encode(Deploy(deployment))) == Deploy(deployment)
    neighbours = {c.target_device for c in plan.channels if c.source_device == HOST}
    neighbours |= {c.source_device for c in plan.channels if c.target_device == HOST}
    assert set(blueprint.host_peers()) == neighbours - {HOST}


@few
@given(plans())
def test_a_node_needs_each_blob_of_its_phases_once(plan: Plan) -> None:
    blueprint, subnets = blueprint_of(plan), subnets_of(plan)
    for node in blueprint.deployments:
        blobs = blueprint.blobs(node)
        wanted = {
            b
            for p in plan.phases
            if p.device == node
            for b in (subnets[p.name].graph, subnets[p.name].weights)
            if b is not None
        }
        assert len(blobs) == len(wanted)
        assert set(blobs) == wanted


@few
@given(plans())
def test_a_phase_without_a_subnet_is_refused_by_name(plan: Plan) -> None:
    subnets = subnets_of(plan)
    name = plan.phases[-1].name
    del subnets[name]
    with pytest.raises(BadInputError, match=f"phase '{name}'"):
        blueprint(plan, subnets, {}, EPOCH, "pipelined")


@pytest.mark.parametrize(
    ("offered", "reached", "dialled"),
    [
        ("tcp://0.0.0.0:7071", "192.168.1.5", "tcp://192.168.1.5:7071"),
        ("tcp://*:7071", "jetson-2.local", "tcp://jetson-2.local:7071"),
        ("tcp://[::]:7071", "fe80::2", "tcp://[fe80::2]:7071"),
        ("tcp://10.0.0.1:9", "192.168.1.5", "tcp://10.0.0.1:9"),
        ("ipc:///tmp/a.data", None, "ipc:///tmp/a.data"),
    ],
)
def test_a_data_port_on_every_interface_is_dialled_where_the_agent_was_reached(
    offered: str, reached: str | None, dialled: str
) -> None:
    assert data_address(offered, reached) == dialled


def test_a_loopback_address_that_another_machine_would_have_to_dial_is_refused() -> None:
    plan = in_a_row(2)
    blueprint = blueprint_of(plan)
    with pytest.raises(BadInputError, match=r"'n1'.*loopback.*127\.0\.0\.1:2.*'n0'"):
        blueprint.addressed({"n0": "tcp://10.0.0.7:1", "n1": "tcp://127.0.0.1:2"})
    blueprint.addressed({"n0": "tcp://localhost:1", "n1": "tcp://127.0.0.1:2"})
