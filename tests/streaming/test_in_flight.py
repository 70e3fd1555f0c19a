"""So many frames are in flight that every node is busy, and few more.

A plan is simulated with and without the bound: its phases take turns on their devices, and every
tensor that crosses devices is on the wire for a part of the busiest device's time.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest

from cnn.model import Model, read
from csdf.execution.simulation import simulate
from csdf.model.graph import Actor, Channel, Graph
from launcher.streaming.in_flight import AT_THE_HOST, frames_in_flight
from nodes.protocol.messages import HOST
from partition.devices import Device
from partition.plan import Plan
from partition.planner import make_plan

FRAMES = 80
FILLING = 30


@pytest.fixture(scope="module")
def squeezenet() -> Model:
    return read("onnx-wheel:squeezenet")


def plan_of(model: Model, devices: int, visits: int) -> Plan:
    """Layers in order over the devices, each of which is visited so many times."""
    names = [f"d{number}" for number in range(devices)]
    layers = [layer.name for layer in model.network.layers]
    pieces = devices * visits
    assignment = {
        layer: names[index * pieces // len(layers) % devices] for index, layer in enumerate(layers)
    }
    devices_ = tuple(map(Device, names))
    return make_plan(
        model.network, model.digest, devices_, assignment, strategy="test", explanation=""
    )


def period_and_latency(plan: Plan, in_flight: int | None, wire_s: Fraction) -> tuple[float, float]:
    """The seconds between results, and from sending to result."""
    instant = (Fraction(1, 10**6),)
    wire = (wire_s,)
    actors = [Actor("source", instant, 1), Actor("sink", instant, 1)]
    actors += [Actor(p.name, (_exact(p.predicted_s),), 1) for p in plan.phases]
    channels: list[Channel] = []
    for number, channel in enumerate(plan.channels):
        made = "source" if channel.source_device == HOST else channel.source
        readers = ("sink",) if channel.target_device == HOST else channel.targets
        for index, reader in enumerate(readers):
            name, room = f"{number}.{index}", channel.capacity_frames
            if channel.is_local:
                channels.append(Channel(name, made, reader, (1,), (1,), 0, room))
                continue
            actors.append(Actor(f"wire {name}", wire, None))
            channels += [
                Channel(f"{name} out", made, f"wire {name}", (1,), (1,)),
                Channel(f"{name} in", f"wire {name}", reader, (1,), (1,)),
                Channel(f"{name} room", reader, made, (1,), (1,), room),
            ]
    if in_flight is not None:
        channels.append(Channel("in flight", "sink", "source", (1,), (1,), in_flight))
    ran = simulate(
        Graph("plan", tuple(actors), tuple(channels)),
        FRAMES,
        processors={phase.name: phase.device for phase in plan.phases},
    )
    sent = sorted(firing.start for firing in ran.of("source"))
    came = sorted(firing.end for firing in ran.of("sink"))
    period = (came[-1] - came[FILLING]) / (FRAMES - 1 - FILLING)
    return float(period), float(came[-1] - sent[len(came) - 1])


def busiest_s(plan: Plan) -> Fraction:
    """The seconds that the busiest device computes for a frame."""
    return max(
        sum((_exact(p.predicted_s) for p in plan.phases if p.device == device.name), Fraction(0))
        for device in plan.devices
    )


def _exact(seconds: float) -> Fraction:
    return Fraction(seconds).limit_denominator(10**7)


@pytest.mark.parametrize(("devices", "visits"), [(2, 1), (3, 1), (4, 1), (3, 2), (2, 3)])
@pytest.mark.parametrize("on_wire", [Fraction(0), Fraction(1, 2), Fraction(1)])
def test_the_full_rate_is_reached_with_wires_as_slow_as_the_plan_allows(
    squeezenet: Model, devices: int, visits: int, on_wire: Fraction
) -> None:
    plan = plan_of(squeezenet, devices, visits)
    bound = frames_in_flight(plan) - AT_THE_HOST  # nothing is fitted or decoded here
    wire_s = on_wire * busiest_s(plan)
    full_s, full_latency_s = period_and_latency(plan, None, wire_s)
    period_s, latency_s = period_and_latency(plan, bound, wire_s)
    assert period_s <= full_s * 1.01
    assert latency_s <= full_latency_s * 1.01


def test_where_every_device_is_as_busy_a_frame_less_would_cost_rate(squeezenet: Model) -> None:
    plan = plan_of(squeezenet, 3, 1)
    plan = replace(plan, phases=tuple(replace(phase, predicted_s=0.01) for phase in plan.phases))
    bound = frames_in_flight(plan) - AT_THE_HOST
    for fewer, is_full in ((0, True), (1, False)):
        period_s, _ = period_and_latency(plan, bound - fewer, busiest_s(plan))
        assert (period_s <= 0.01 * 1.01) is is_full
