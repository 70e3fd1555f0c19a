"""The least capacities of flows keep a period, by the exact analysis; none can be lower alone."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from csdf.conversion.dataflow_graphs import channel_names, device_graph
from csdf.conversion.from_network import HOST, Dataflow, Flow, convert
from csdf.conversion.proof import prove
from csdf.conversion.skew import Pipeline, retime, span
from csdf.conversion.timed_capacities import StepTimes, with_least_capacities
from csdf.errors import DeadlockError
from csdf.execution.simulation import Link, with_links
from csdf.timing.throughput import throughput
from tests.csdf.networks import network, partitioned
from tests.effort import examples


@dataclass(frozen=True)
class Timed:
    """A pipeline with whole seconds for its phases and for the tensors between its devices."""

    dataflow: Dataflow
    pipeline: Pipeline
    firing_s: Mapping[str, int]
    transit_s: Mapping[str, int]
    period_s: int

    def least(self, margin: float = 0.0) -> Pipeline | None:
        times = StepTimes(self.firing_s, self.transit_s, {})
        return with_least_capacities(self.dataflow, self.pipeline, times, self.period_s, margin)

    def exact_period_s(self, capacities: Mapping[str, int] | None) -> Fraction:
        """Of the static order, by maximum cycle ratio."""
        graph = device_graph(
            self.dataflow,
            times={name: Fraction(s) for name, s in self.firing_s.items()},
            capacity_frames=capacities,
            skew=self.pipeline.skew,
        )
        links = {
            name: Link(name, time=Fraction(self.transit_s[flow.name]))
            for flow in self.dataflow.flows
            if flow.name in self.transit_s
            for name in channel_names(flow).values()
        }
        return throughput(with_links(graph, links)[0]).period

    def has_schedule(self, pipeline: Pipeline) -> bool:
        """Whether steps can begin periodically in the static order: no cycle of waits is longer
        than the periods on it."""
        waits: list[tuple[str, str, int]] = []
        for own in self.dataflow.devices.values():
            for before, after in pairwise([*own, own[0]]):
                periods = pipeline.skew[after.name] - pipeline.skew[before.name]
                periods -= after == own[0]
                seconds = self.firing_s[before.name] + periods * self.period_s
                waits.append((before.name, after.name, seconds))
        for flow in self.dataflow.flows:
            made_s = self.firing_s.get(flow.source, 0)
            transit_s = self.transit_s.get(flow.name, 0)
            unsent = pipeline.unsent_frames.get(flow.name, 0)
            places = pipeline.capacity_frames[flow.name] - unsent
            taken_from = flow.name if unsent else flow.source
            if unsent:
                waits.append((flow.source, flow.name, made_s))
                waits.append((flow.name, flow.source, transit_s - unsent * self.period_s))
            for target in flow.targets:
                waits.append((taken_from, target, transit_s + (0 if unsent else made_s)))
                back_s = self.firing_s.get(target, 0) - places * self.period_s
                waits.append((target, taken_from, back_s))
        names = list(dict.fromkeys(name for before, after, _ in waits for name in (before, after)))
        starts = dict.fromkeys(names, 0)
        for _ in names:
            late = [(b, a, s) for b, a, s in waits if starts[a] < starts[b] + s]
            if not late:
                return True
            for before, after, seconds in late:
                starts[after] = max(starts[after], starts[before] + seconds)
        return False


@st.composite
def timed(draw: st.DrawFn) -> Timed:
    dataflow = convert(*draw(partitioned()))
    firing_s = {phase.name: draw(st.integers(1, 9)) for phase in dataflow.phases}
    busiest_s = max(sum(firing_s[p.name] for p in own) for own in dataflow.devices.values())
    period_s = busiest_s + draw(st.integers(0, 5))
    transit_s = {
        flow.name: draw(st.integers(0, min(3, period_s)))
        for flow in dataflow.flows
        if not flow.is_local and HOST not in (flow.source_device, flow.target_device)
    }
    return Timed(dataflow, retime(dataflow), firing_s, transit_s, period_s)


@examples(15)
@given(timed())
def test_the_period_is_kept_with_the_least_capacities(case: Timed) -> None:
    found = case.least()
    if found is None:
        given = case.pipeline.capacity_frames
        own = {flow.name: 1000 for flow in case.dataflow.flows}
        hosts = {f.name: given[f.name] for f in case.dataflow.flows if is_hosts(f)}
        assert case.exact_period_s(own | hosts) > case.period_s
        return
    assert case.exact_period_s(found.capacity_frames) <= case.period_s
    prove(case.dataflow, found)


@examples(15)
@given(timed())
def test_no_capacity_can_be_lower_by_a_frame(case: Timed) -> None:
    found = case.least()
    if found is None:
        return
    for flow in case.dataflow.flows:
        frames = found.capacity_frames[flow.name]
        if is_hosts(flow) or frames == max(1, span(flow, found.skew)):
            continue
        lower = {**found.capacity_frames, flow.name: frames - 1}
        with suppress(DeadlockError):
            assert case.exact_period_s(lower) > case.period_s


@examples(15)
@given(timed(), st.data())
def test_places_at_either_end_are_the_fewest_that_keep_the_period(
    case: Timed, data: st.DataObject
) -> None:
    """By the constraints of a schedule in which every transfer is its own step."""
    between = [flow.name for flow in case.dataflow.flows if flow.name in case.transit_s]
    own = [name for name in between if data.draw(st.booleans())]
    pipeline = replace(case.pipeline, unsent_frames=dict.fromkeys(own, 1))
    found = replace(case, pipeline=pipeline).least()
    if found is None:
        return
    prove(case.dataflow, found)
    assert case.has_schedule(found)
    for flow in case.dataflow.flows:
        if flow.name not in own:
            continue
        unsent, frames = found.unsent_frames[flow.name], found.capacity_frames[flow.name]
        if unsent > 1:  # a place moves from the producer to the consumer
            assert not case.has_schedule(
                replace(found, unsent_frames={**found.unsent_frames, flow.name: unsent - 1})
            )
        if frames - unsent > 1 and frames > span(flow, found.skew):
            fewer = {**found.capacity_frames, flow.name: frames - 1}
            assert not case.has_schedule(replace(found, capacity_frames=fewer))


def is_hosts(flow: Flow) -> bool:
    return HOST in (flow.source_device, flow.target_device)


def chain() -> Dataflow:
    """Two phases of different devices."""
    return convert(network({"a": ["x"], "b": ["a"]}), {"a": "d1", "b": "d2"})


def least_between(firing_s: float, transit_s: float, margin: float = 0.0) -> int:
    """Frames between the two phases of `chain`, if each takes `firing_s` of a period of 1 s."""
    dataflow = chain()
    times = StepTimes({"d1/0": firing_s, "d2/0": firing_s}, {"a → d2": transit_s}, {})
    found = with_least_capacities(dataflow, retime(dataflow), times, 1.0, margin)
    assert found is not None
    return found.capacity_frames["a → d2"]


def test_brief_phases_pass_one_frame_after_the_other() -> None:
    assert least_between(firing_s=0.4, transit_s=0.1) == 1


def test_phases_that_overlap_need_a_frame_each() -> None:
    assert least_between(firing_s=0.6, transit_s=0.1) == 2


def test_a_slow_wire_needs_another_frame() -> None:
    assert least_between(firing_s=0.9, transit_s=0.3) == 3


def test_a_margin_is_room_for_places_that_come_back_late() -> None:
    assert least_between(firing_s=0.4, transit_s=0.0, margin=0.2) == 1
    assert least_between(firing_s=0.4, transit_s=0.0, margin=0.3) == 2


def test_there_are_no_capacities_for_a_period_shorter_than_a_devices_work() -> None:
    dataflow = chain()
    times = StepTimes({"d1/0": 1.1, "d2/0": 0.1}, {}, {})
    assert with_least_capacities(dataflow, retime(dataflow), times, 1.0, 0.0) is None


def test_copies_get_capacities_for_their_own_periods() -> None:
    """Of three frames, copy 0 gets two and copy 1 one, which has twice as long for it."""
    both = network({"a0": ["x0"], "b0": ["a0"], "a1": ["x1"], "b1": ["a1"]}, inputs=("x0", "x1"))
    places = {"a0": "d1", "b0": "d2", "a1": "d3", "b1": "d4"}
    dataflow = convert(both, places, (0, 1, 0))
    times = StepTimes(dict.fromkeys(dataflow.phase, 0.8), {}, {})
    found = with_least_capacities(dataflow, retime(dataflow), times, 1.0, 0.0)
    assert found is not None
    assert found.capacity_frames["a0 → d2"] == 2
    assert found.capacity_frames["a1 → d4"] == 1
