"""What is proved of every deployment before the first byte is sent."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cnn.network import Network
from csdf.certificates.certify import certify
from csdf.certificates.check import check
from csdf.conversion.dataflow_graphs import device_graph, phase_graph
from csdf.conversion.from_network import HOST, SINK, SOURCE, Dataflow, convert
from csdf.conversion.proof import prove
from csdf.conversion.skew import Pipeline, retime
from csdf.errors import NotProvedError
from csdf.formats import json_format
from csdf.timing.throughput import throughput
from tests.csdf.networks import paper_example, partitioned


@given(partitioned(), st.integers(0, 2))
def test_every_partition_of_every_network_is_proved(
    given: tuple[Network, dict[str, str]], slack: int
) -> None:
    dataflow = convert(*given)
    pipeline = retime(dataflow, slack_frames=slack)
    proof = prove(dataflow, pipeline)
    assert proof.bytes_bound == pipeline.buffer_bytes
    assert proof.phases == len(dataflow.phases)


@given(partitioned(), st.integers(0, 2))
def test_the_graphs_of_a_partition_have_certificates(
    given: tuple[Network, dict[str, str]], slack: int
) -> None:
    dataflow = convert(*given)
    pipeline = retime(dataflow, slack_frames=slack)
    room = pipeline.capacity_frames
    times = {name: Fraction(1 + i % 3) for i, name in enumerate((SOURCE, *dataflow.phase, SINK))}
    for graph in (
        phase_graph(dataflow, times=times, capacity_frames=room),
        device_graph(dataflow, times=times, capacity_frames=room),
        device_graph(dataflow, times=times, capacity_frames=room, skew=pipeline.skew),
    ):
        file = json_format.write(graph).encode()
        found = certify(graph, file)
        assert not found.left_out
        claims = check(json.dumps(found.content).encode(), file)
        assert claims["live"]
        assert claims["period"] == throughput(graph).period


@given(partitioned(), st.randoms(use_true_random=False))
def test_the_theorem_holds_when_devices_choose_at_random(
    given: tuple[Network, dict[str, str]], random: object
) -> None:
    """Five frames, one frame of capacity everywhere, any ready phase of any device."""
    dataflow = convert(*given)
    capacity = dict.fromkeys((flow.name for flow in dataflow.flows), 1)
    prove(dataflow, replace(retime(dataflow), capacity_frames=widened(dataflow, capacity)))
    device = {phase.name: phase.device for phase in dataflow.phases}
    device |= {SOURCE: HOST + "/in", SINK: HOST + "/out"}
    begun = dict.fromkeys(device, 0)
    ended = dict.fromkeys(device, 0)
    running: dict[str, str] = {}
    while True:
        ready = [
            phase
            for phase in device
            if begun[phase] < 5
            and device[phase] not in running
            and all(
                ended[flow.source] > begun[phase]
                for flow in dataflow.flows
                if phase in flow.targets
            )
            and all(
                begun[phase] - min(ended[target] for target in flow.targets) < capacity[flow.name]
                for flow in dataflow.flows
                if flow.source == phase
            )
        ]
        choices = [("start", phase) for phase in ready]
        choices += [("end", phase) for phase in running.values()]
        if not choices:
            break
        what, phase = random.choice(choices)  # type: ignore[attr-defined]
        if what == "start":
            begun[phase] += 1
            running[device[phase]] = phase
        else:
            ended[phase] += 1
            del running[device[phase]]
    assert set(ended.values()) == {5}


def widened(dataflow: Dataflow, capacity: dict[str, int]) -> dict[str, int]:
    """The retimed order needs its skews to fit; the random order above gets less than that."""
    needed = retime(dataflow, slack_frames=0).capacity_frames
    return {name: max(needed[name], frames) for name, frames in capacity.items()}


def test_it_says_what_it_proved() -> None:
    dataflow = convert(*paper_example())
    assert prove(dataflow, retime(dataflow)).sentence == (
        "Consistent: every phase (7 on 5 devices) fires once per frame. Live: one iteration "
        "completes from the initial state, with the capacities as bounds, for phases in any "
        "work-conserving order, in the pipelined static order and frame by frame. Bounded: 9 "
        "flows never hold more than 7.28 MB."
    )


class TestRefusals:
    def change(self, capacity: dict[str, int] | None = None, **skew: int) -> None:
        dataflow = convert(*paper_example())
        found = retime(dataflow)
        prove(
            dataflow,
            Pipeline(
                {**found.skew, **{name.replace("_", "/"): value for name, value in skew.items()}},
                {**found.capacity_frames, **(capacity or {})},
                0,
            ),
        )

    def test_no_place_at_all(self) -> None:
        with pytest.raises(NotProvedError, match="'l18 → device5' has a capacity of 0 frames"):
            self.change({"l18 → device5": 0})

    def test_a_phase_before_what_it_needs(self) -> None:
        with pytest.raises(NotProvedError, match="negative number of tokens"):
            self.change(device3_0=1)

    def test_no_room_to_fire_before_the_same_device_frees_some(self) -> None:
        with pytest.raises(
            NotProvedError,
            match="pipelined order: Deadlock: 'device2' waits in phase 0 for 187200 more places in "
            "channel 'l8 → device2', which 'device2' would have to free",
        ):
            self.change({"l8 → device2": 2})

    def test_less_room_than_the_skews_take(self) -> None:
        with pytest.raises(
            NotProvedError, match="has room for 187200 tokens but starts with 374400"
        ):
            self.change({"l8 → device2": 1})

    def test_a_flow_without_a_capacity(self) -> None:
        dataflow = convert(*paper_example())
        with pytest.raises(NotProvedError, match="flow 'x → device1' has no capacity"):
            prove(dataflow, replace(retime(dataflow), capacity_frames={}))

    def test_a_phase_without_a_skew(self) -> None:
        dataflow = convert(*paper_example())
        with pytest.raises(NotProvedError, match="phase '@source' has no skew"):
            prove(dataflow, replace(retime(dataflow), skew={}))
