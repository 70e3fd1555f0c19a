"""Encoded tensors between devices: sizes, costs, and what the planner chooses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from cnn import read
from cnn.network import Tensor
from ga.strategies import find_strategy
from nodes.protocol import encodings
from partition import wire as costs
from partition.devices import Device
from partition.plan import Plan, PlannedChannel
from partition.planner import make_plan, plan_solution
from partition.prediction.simulation import predict
from partition.prediction.timing import with_measured_phases
from partition.strategies.base import Problem
from partition.wire import COSTS, LOSSLESS_DEVIATION, Wire, WirePolicy, encoded_bytes
from tests.partition.networks import chain, partitioned

MODELS = Path(__file__).parents[1] / "fixtures" / "models"

SLOW, FAST = 1e5, 1e9
"""Bytes per second."""


def device(name: str, link_bytes_per_s: float = SLOW, **changes: float) -> Device:
    return Device(
        name,
        macs_per_s=1e9,
        memory_bytes_per_s=1e15,
        cut_s_per_byte=0.0,
        firing_s=0.0,
        wire_s_per_message=0.0,
        wire_s_per_byte=0.0,
        link_bytes_per_s=link_bytes_per_s,
        **changes,
    )


def plan(
    wire: WirePolicy,
    links: Mapping[str, float] = {"a": SLOW, "b": SLOW, "c": SLOW},
    elements: int = 100_000,
    **changes: float,
) -> Plan:
    """Three layers of 10 ms, one on each of three devices; their tensors have 0.4 MB."""
    network = chain(10**7, 10**7, 10**7, elements=elements)
    devices = [device(name, link, **changes) for name, link in links.items()]
    assignment = dict(zip(("l0", "l1", "l2"), links, strict=True))
    return make_plan(network, "", devices, assignment, strategy="", explanation="", wire=wire)


def at_b(channel: PlannedChannel) -> int:
    """The frames of a channel at device b, where it ends."""
    if channel.target_device == "b":
        return channel.consumer_frames
    return channel.unsent_frames or channel.capacity_frames


def encodings_of(planned: Plan) -> list[str]:
    """Of the channels between nodes, in order."""
    return [
        c.encoding for c in planned.channels if "@host" not in (c.source_device, c.target_device)
    ]


def auto(tolerance: float = LOSSLESS_DEVIATION) -> WirePolicy:
    return WirePolicy("auto", tolerance=tolerance)


class TestSizes:
    @pytest.mark.parametrize("encoding", [each for each in COSTS if each != "lossless"])
    @given(shape=hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=40))
    def test_the_planner_counts_what_the_agents_send(self, encoding, shape) -> None:
        counted = encoded_bytes(encoding, Tensor("t", shape, "float32"))
        assert counted == encodings.most_bytes(encoding, shape)

    def test_planner_and_agents_know_the_same_encodings(self) -> None:
        assert set(COSTS) == set(encodings.ENCODINGS)
        assert costs.FEWEST_IN_GROUP == encodings.FEWEST_IN_GROUP

    def test_zeros_make_a_lossless_encoding_shorter(self) -> None:
        tensor = Tensor("t", (1, 64, 8, 8), "float32")
        after_relu = encoded_bytes("lossless", tensor, "Relu")
        assert after_relu < encoded_bytes("lossless", tensor, "Conv") < tensor.bytes


class TestWhatTheUserWants:
    def test_without_a_word_everything_stays_raw(self) -> None:
        assert encodings_of(plan(WirePolicy())) == ["raw", "raw"]

    @pytest.mark.parametrize("wire", ["fp16", "bf16", "int8", "lossless"])
    def test_a_definite_encoding_is_used_between_all_devices(self, wire: Wire) -> None:
        planned = plan(WirePolicy(wire), {"a": FAST, "b": FAST, "c": FAST})
        assert encodings_of(planned) == [wire, wire]

    def test_frames_and_results_stay_raw(self) -> None:
        planned = plan(WirePolicy("fp16"))
        ends = [c for c in planned.channels if "@host" in (c.source_device, c.target_device)]
        assert [channel.encoding for channel in ends] == ["raw", "raw"]

    def test_a_device_may_have_its_own(self) -> None:
        planned = plan(WirePolicy("fp32", {"c": "int8"}))
        assert encodings_of(planned) == ["raw", "int8"]

    @pytest.mark.parametrize(
        ("one", "other", "both"),
        [
            ("fp32", "fp16", "fp16"),
            ("int8", "lossless", "int8"),
            ("fp16", "bf16", "fp16"),
            ("auto", "lossless", "lossless"),
            ("auto", "auto", "auto"),
        ],
    )
    def test_of_two_ends_that_differ_the_shorter_definite_word_counts(
        self, one: Wire, other: Wire, both: Wire
    ) -> None:
        choice = WirePolicy("fp32", {"a": one, "b": other})
        assert choice.between("a", "b") == choice.between("b", "a") == both

    def test_a_tensor_that_would_not_get_shorter_stays_raw(self) -> None:
        assert encodings_of(plan(WirePolicy("int8"), elements=1)) == ["raw", "raw"]


class TestCosts:
    def test_half_the_bytes_cross_a_link_in_half_the_time(self) -> None:
        links = {"a": FAST, "b": SLOW, "c": FAST}
        raw, half = plan(WirePolicy(), links), plan(WirePolicy("fp16"), links)
        assert raw.period_s == pytest.approx(4.0)
        assert half.period_s == pytest.approx(2.0)
        assert half.bytes_per_frame == raw.bytes_per_frame - 2 * 200_000

    def test_encoding_and_decoding_take_time_of_the_devices(self) -> None:
        links = {"a": FAST, "b": FAST, "c": FAST}
        each = COSTS["fp16"]
        busy_s = 0.01 + (each.encode + each.decode) * 1e-6 * 400_000
        slow = plan(WirePolicy("fp16"), links, encode_s_per_byte=1e-6)
        assert slow.period_s == pytest.approx(busy_s)
        measured = with_measured_phases(slow, {phase.name: 0.02 for phase in slow.phases})
        assert measured.period_s == pytest.approx(busy_s + 0.01)
        assert predict(slow).period_s >= busy_s

    def test_the_simulated_run_has_the_shorter_messages_too(self) -> None:
        links = {"a": FAST, "b": SLOW, "c": FAST}
        raw = predict(plan(WirePolicy(), links), even=True).period_s
        half = predict(plan(WirePolicy("fp16"), links), even=True).period_s
        assert half == pytest.approx(raw / 2, rel=0.01)

    @pytest.mark.parametrize("wire", ["fp32", "fp16", "int8"])
    def test_frames_wait_encoded(self, wire: Wire) -> None:
        planned = plan(WirePolicy(wire))
        between = [c for c in planned.channels if "b" in (c.source_device, c.target_device)]
        held = planned.memory["b"].channels_bytes
        assert held == sum(at_b(c) * c.wire_bytes for c in between)

    def test_room_is_kept_for_lossless_frames_that_do_not_get_shorter(self) -> None:
        planned = plan(WirePolicy("lossless"))
        between = [c for c in planned.channels if "b" in (c.source_device, c.target_device)]
        held = planned.memory["b"].channels_bytes
        assert held == sum(at_b(c) * c.tensor.bytes for c in between)

    @settings(max_examples=20)
    @given(partitioned(), st.sampled_from(["fp16", "int8", "lossless"]))
    def test_any_network_can_be_planned_with_any_encoding(self, drawn, wire) -> None:
        network, devices, assignment = drawn
        unbound = [replace(each, memory_bytes=None) for each in devices]

        def planned(choice: WirePolicy) -> Plan:
            return make_plan(
                network, "", unbound, assignment, strategy="", explanation="", wire=choice
            )

        raw, encoded = planned(WirePolicy()), planned(WirePolicy(wire))
        assert encoded.bytes_per_frame <= raw.bytes_per_frame
        assert [p.layers for p in encoded.phases] == [p.layers for p in raw.phases]
        chosen = planned(auto(1.0))
        assert chosen.period_s <= raw.period_s * (1 + 1e-9)

    @settings(max_examples=30)
    @given(partitioned(), st.sampled_from(["fp32", "fp16", "int8", "lossless"]))
    def test_searches_count_the_bytes_that_the_plan_sends(self, drawn, wire) -> None:
        network, devices, assignment = drawn
        unbound = tuple(replace(each, memory_bytes=None) for each in devices)
        problem = Problem(network, unbound, wire=WirePolicy(wire))
        planned = make_plan(
            network, "", unbound, assignment, strategy="", explanation="", wire=problem.wire
        )
        found = problem.costs.evaluate(problem.numbers(assignment)[None, :])
        assert found.wire_bytes[0] == planned.bytes_per_frame


def best_rate(link_bytes_per_s: float, macs_per_s: float, wire: WirePolicy) -> float:
    """Frames per second of ResNet50 cut for four devices, as predicted."""
    network = read(str(MODELS / "ResNet50.onnx")).network
    devices = tuple(
        Device(f"d{i}", macs_per_s=macs_per_s, link_bytes_per_s=link_bytes_per_s) for i in range(4)
    )
    problem = Problem(network, devices, wire=wire)
    solution = find_strategy("sequential").solve(problem)
    return 1 / plan_solution(problem, solution, "").period_s


@pytest.mark.parametrize(("mbit_per_s", "macs_per_s", "gain"), [(10, 2e9, 1.2), (100, 1e10, 1.05)])
def test_resnet50_gets_more_frames_over_slow_links_and_loses_nothing(
    mbit_per_s: float, macs_per_s: float, gain: float
) -> None:
    rate = mbit_per_s * 1e6 / 8
    raw = best_rate(rate, macs_per_s, WirePolicy())
    lossless = best_rate(rate, macs_per_s, auto())
    assert lossless > gain * raw
    assert best_rate(rate, macs_per_s, auto(0.05)) > 1.03 * lossless


class TestThePlannersChoice:
    def test_fast_links_carry_raw_tensors(self) -> None:
        planned = plan(auto(1.0), {"a": FAST, "b": FAST, "c": FAST})
        assert encodings_of(planned) == ["raw", "raw"]

    def test_without_a_tolerance_only_what_loses_nothing_is_used(self) -> None:
        used = set(encodings_of(plan(auto(), {"a": FAST, "b": SLOW, "c": FAST})))
        assert used == {"lossless"}

    @pytest.mark.parametrize(
        ("tolerance", "used"),
        [(COSTS["fp16"].deviation, "fp16"), (COSTS["int8"].deviation, "int8")],
    )
    def test_a_slow_link_gets_the_shortest_that_the_tolerance_allows(
        self, tolerance: float, used: str
    ) -> None:
        # The link to the launcher is as slow, but its frames are not encoded.
        planned = plan(auto(tolerance), {"a": FAST, "b": SLOW, "c": FAST})
        assert encodings_of(planned) == [used, used]

    def test_only_the_slow_link_is_relieved(self) -> None:
        planned = plan(auto(1.0), {"a": FAST, "b": FAST, "c": SLOW}, elements=10_000)
        assert encodings_of(planned)[0] == "raw"

    def test_no_more_is_lost_than_the_link_needs(self) -> None:
        link = 0.4e6 / 10.5e-3  # a little slower than b computes
        planned = plan(auto(1.0), {"a": FAST, "b": link, "c": FAST}, encode_s_per_byte=1e-10)
        assert set(encodings_of(planned)) == {"lossless"}
        assert planned.period_s == pytest.approx(0.01, rel=0.05)

    def test_devices_that_are_slower_at_encoding_than_their_link_do_not_encode(self) -> None:
        planned = plan(auto(1.0), {"a": FAST, "b": SLOW, "c": FAST}, encode_s_per_byte=1e-3)
        assert encodings_of(planned) == ["raw", "raw"]
