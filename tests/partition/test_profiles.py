"""Measured layers, subnets and links in the place of estimates."""

from __future__ import annotations

from dataclasses import replace

import pytest

from csdf.conversion.from_network import HOST
from partition.devices import Device
from partition.errors import PartitionError
from partition.measured.layer_phases import MOST_LAYERS, one_by_one, pieces
from partition.measured.profiles import (
    LinkProfile,
    NodeProfile,
    Profile,
    fused_phases,
    measured_costs,
    measured_part,
    profiled_devices,
    subnet_time,
)
from partition.plan import Plan
from partition.planner import make_plan
from partition.prediction.timing import with_profile
from partition.pricing.compute_time import layer_seconds
from tests.partition.networks import chain

NETWORK = chain(*[number * 2 * 10**7 for number in range(1, 5)])
A, B = Device("a", cut_s_per_byte=0.0), Device("b", cut_s_per_byte=0.0)
ALONE = {"l0": 1e-3, "l1": 2e-3, "l2": 3e-3, "l3": 4e-3}
PROFILE = Profile({"a": NodeProfile(ALONE), "b": NodeProfile(ALONE)})


def plan() -> Plan:
    halves = {"l0": "a", "l1": "a", "l2": "b", "l3": "b"}
    _, layer_s = measured_costs(NETWORK, (A, B), PROFILE)
    return make_plan(
        NETWORK, "", (A, B), halves, strategy="", explanation="", layer_s=layer_s, slack_frames=0
    )


def test_layers_take_what_was_measured() -> None:
    _, seconds = measured_costs(NETWORK, (A, B), PROFILE)
    assert seconds[:, 1] == pytest.approx([1e-3, 2e-3, 3e-3, 4e-3], rel=0.1)


def test_a_fused_subnet_scales_its_layers_and_tells_what_a_run_costs() -> None:
    phase = plan().phases[0]
    node = PROFILE.nodes["a"].with_subnets([subnet_time(plan(), phase, 1.5e-3)])
    (a, b), seconds = measured_costs(
        NETWORK, (A, B), replace(PROFILE, nodes={**PROFILE.nodes, "a": node})
    )
    assert seconds[:2, 0].sum() + a.run_s == pytest.approx(1.5e-3, rel=0.05)
    assert seconds[:, 1].sum() == pytest.approx(10e-3, rel=0.02)
    assert b.run_s == 0.0


def test_a_phase_that_was_measured_has_its_own_time() -> None:
    first = plan().phases[0]
    node = PROFILE.nodes["a"].with_subnets([subnet_time(plan(), first, 1.5e-3)])
    profile = Profile({"a": node, "b": PROFILE.nodes["b"]})
    assert fused_phases(plan(), profile) == {first.name: 1.5e-3}
    measured = with_profile(plan(), profile)
    assert measured.times == "measured"
    assert measured.phases[0].predicted_s == 1.5e-3
    assert measured.phases[1].predicted_s == pytest.approx(7e-3, rel=0.05)
    assert measured_part(plan(), profile) == (
        "times of 2 phases: 1 measured as it is, 1 computed from other measurements of the node"
    )
    of_one = measured_part(plan(), Profile({"a": node}))
    assert of_one == "times of 2 phases: 1 measured as it is, 1 estimated"


def test_a_subnet_measured_again_has_its_later_time() -> None:
    first = plan().phases[0]
    times = [subnet_time(plan(), first, seconds) for seconds in (1.0, 2.0)]
    assert [s.seconds for s in NodeProfile({}).with_subnets(times).subnets] == [2.0]


def test_a_device_of_which_nothing_was_measured_is_estimated() -> None:
    _, seconds = measured_costs(NETWORK, (A, B), Profile({"a": NodeProfile(ALONE)}))
    assert seconds[:, 1] == pytest.approx(layer_seconds(NETWORK, (A, B))[:, 1])
    known = Profile({"a": NodeProfile(ALONE)})
    assert with_profile(plan(), known).times == "estimated"


def test_a_layer_that_was_not_measured_beside_others_is_named() -> None:
    some = NodeProfile({"l1": ALONE["l1"]})
    with pytest.raises(PartitionError, match="layer 'l0' was not measured on 'a'"):
        measured_costs(NETWORK, (A,), Profile({"a": some}))


def test_a_rehearsal_alone_tells_how_fast_a_device_is() -> None:
    planned = plan()
    own = [phase for phase in planned.phases if phase.device == "a"]
    seconds = [10 * phase.predicted_s for phase in own]
    node = NodeProfile().with_rehearsal(planned, "a", seconds, 1e-4, 1e-9)
    (a, b), found = measured_costs(NETWORK, (A, B), Profile({"a": node}))
    estimated = layer_seconds(NETWORK, (A, B))
    assert (a.name, b.name) == ("a", "b")
    assert found[:, 0].sum() > 5 * estimated[:, 0].sum()
    assert found[:, 1] == pytest.approx(estimated[:, 1])


def test_what_a_device_has_rehearsed_is_dropped_once_it_has_become_slower() -> None:
    planned = plan()
    first = [phase.predicted_s for phase in planned.phases if phase.device == "a"]
    node = NodeProfile(dict(ALONE)).with_rehearsal(planned, "a", first, 0.0, 0.0)
    again = node.with_rehearsal(planned, "a", [1.1 * s for s in first], 0.0, 0.0)
    assert again.layer_s == ALONE
    slower = node.with_rehearsal(planned, "a", [2 * s for s in first], 0.0, 0.0)
    assert slower.layer_s == {}
    assert [s.seconds for s in slower.subnets] == pytest.approx([2 * s for s in first])


def test_links_and_watts_replace_assumptions_unless_the_user_gave_them() -> None:
    node = NodeProfile({}, (), 1e-4, 2e-9, busy_w=7.0, idle_w=1.0)
    profile = Profile({"a": node, "b": node}, (LinkProfile(("a", "b"), 1e-3, 5e6),))
    a, b = profiled_devices((A, B), profile, own_link={"b"}, own_watts={"b"})
    assert (a.link_bytes_per_s, a.busy_w, a.idle_w) == (5e6, 7.0, 1.0)
    assert (b.link_bytes_per_s, b.busy_w, b.idle_w) == (B.link_bytes_per_s, B.busy_w, B.idle_w)
    assert (a.wire_s_per_message, a.wire_s_per_byte) == (5e-5, 1e-9)


def test_a_device_with_one_link_too_fast_to_measure_is_not_as_slow_as_its_others() -> None:
    links = (LinkProfile(("a", "b"), 1e-3, 5e6), LinkProfile(("a", "c"), 1e-3, None))
    a, b = profiled_devices((A, B), replace(PROFILE, links=links))
    assert (a.link_bytes_per_s, b.link_bytes_per_s) == (A.link_bytes_per_s, 5e6)


def test_within_one_machine_no_link_is_measured() -> None:
    both = tuple(replace(device, host="here") for device in (A, B))
    links = (LinkProfile(("a", "b"), 1e-3, 5e6),)
    for device in profiled_devices(both, replace(PROFILE, links=links)):
        assert device.link_bytes_per_s == A.link_bytes_per_s


def test_each_layer_is_a_phase_and_a_piece_gets_and_gives_what_others_do() -> None:
    found = one_by_one(NETWORK, "", A, ("l1", "l2"))
    assert [phase.layers for phase in found.phases] == [("l1",), ("l2",)]
    ends = [(c.tensor.name, c.source_device, c.target_device) for c in found.channels]
    assert ends == [("t1", HOST, "a"), ("t2", "a", "a"), ("t3", "a", HOST)]


def test_pieces_are_small() -> None:
    network = chain(*[1] * 100, weights=[1000] * 100)
    names = [layer.name for layer in network.layers]
    found = list(pieces(network, names))
    assert [len(piece) for piece in found] == [MOST_LAYERS, 100 - MOST_LAYERS]
    assert [len(piece) for piece in pieces(network, names[:3], 5000)] == [1, 1, 1]
    assert [layer for piece in found for layer in piece] == names
