"""Fits the capacities of channels to a plan's times: the least that its period needs.

**Long tensors**, those of `LONG_BYTES` or more that a device sends, have places at either end of
their channel, so that each frame is charged where it is (`csdf.conversion.skew.Pipeline`). Channels
of shorter ones keep a whole frame of slack, which costs little.

**Margin.** Phases take longer or shorter than predicted, and agents fire the ready phase of the
oldest frame instead of following an order. So with a slack of one frame, the default, channels
between devices get a margin of `MARGIN` periods (`csdf.conversion.timed_capacities`), and another
period for every further frame of slack. Without slack they get none.

**Firings.** A device's firings share all that its processor does in a period, messages included, in
proportion to the seconds of their phases and of firing them. Where devices share a machine's cores,
a firing takes as much longer as the others compute meanwhile: nothing is known of when it ends, and
channels hold the whole slack.

**Wire.** A tensor is on its way until all that its firing sends has passed the slower of the two
interfaces. It waits for others there: an interface that is busy for a share u of the period makes a
transfer wait, on average, for u / (2 (1 − u)) times its own time (the M/D/1 queue). Where u is so
large that no capacities keep the period in the static order, channels hold the whole slack.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from csdf.conversion.from_network import HOST, Dataflow, Flow
from csdf.conversion.skew import Pipeline
from csdf.conversion.timed_capacities import StepTimes, with_least_capacities
from partition.devices import Device
from partition.plan import PlannedPhase
from partition.prediction.timing import Load
from partition.pricing.busy import shared_machines
from partition.pricing.traffic import LONG_BYTES, UNSENT_FRAMES, margin_periods


def fit(
    dataflow: Dataflow,
    devices: Sequence[Device],
    pipeline: Pipeline,
    times: StepTimes,
    period_s: float,
    slack_frames: int,
) -> Pipeline:
    """Return `pipeline` with the least capacities that keep `period_s` with this slack.

    Where the wire is too slow for that, or devices share cores, consumers have the places that
    `pipeline` needs, and producers `UNSENT_FRAMES` for long tensors.
    """
    pipeline = _with_unsent_frames(dataflow, pipeline)
    if shared_machines(devices):
        return pipeline
    short = {flow.name for flow in dataflow.flows if not flow.is_local and not is_long(flow)}
    margin = margin_periods(slack_frames)
    fitted = with_least_capacities(dataflow, pipeline, times, period_s, margin, short)
    return fitted or pipeline


def _with_unsent_frames(dataflow: Dataflow, pipeline: Pipeline) -> Pipeline:
    """Return `pipeline` with places at the producers of long tensors.

    A frame then leaves its channel's other places to the consumer while it is made; so that needs
    one fewer, but at the host, whose memory is not counted.
    """
    unsent = {flow.name: UNSENT_FRAMES for flow in dataflow.flows if is_long(flow)}
    capacities = dict(pipeline.capacity_frames)
    for flow in dataflow.flows:
        if flow.name in unsent:
            consumer = max(1, capacities[flow.name] - (flow.target_device != HOST))
            capacities[flow.name] = consumer + unsent[flow.name]
    held = sum(capacities[flow.name] * flow.tensor.bytes for flow in dataflow.flows)
    return replace(pipeline, capacity_frames=capacities, buffer_bytes=held, unsent_frames=unsent)


def is_long(flow: Flow) -> bool:
    """Return whether the producer of a flow has its own places."""
    is_sent = not flow.is_local and flow.source_device != HOST
    return is_sent and not flow.tensor.varies and flow.tensor.bytes >= LONG_BYTES


def step_times(
    dataflow: Dataflow,
    devices: Sequence[Device],
    phases: Sequence[PlannedPhase],
    load: Mapping[str, Load],
    period_s: float,
    encoded_bytes: Mapping[str, int] = MappingProxyType({}),
) -> StepTimes:
    """Return how long firings, tensors and freed places take, in a plan of this period.

    `load` is by device name, `encoded_bytes` by the names of flows that are encoded. Flows from and
    to the host have no entries.
    """
    by_name = {device.name: device for device in devices}
    sent_bytes: dict[str, int] = {}
    for flow in dataflow.flows:
        if not flow.is_local:
            size = encoded_bytes.get(flow.name, flow.tensor.bytes)
            sent_bytes[flow.source] = sent_bytes.get(flow.source, 0) + size
    transit_s, credit_s = {}, {}
    for flow in dataflow.flows:
        if flow.is_local or HOST in (flow.source_device, flow.target_device):
            continue
        sender, receiver = by_name[flow.source_device], by_name[flow.target_device]
        size = sent_bytes[flow.source]
        message_s = sender.wire_s_per_message + receiver.wire_s_per_message
        credit_s[flow.name] = message_s
        transit_s[flow.name] = message_s + size * sender.wire_s_per_byte
        if period_s and (sender.host is None or sender.host != receiver.host):
            rate = min(sender.link_bytes_per_s, receiver.link_bytes_per_s)
            share = max(
                load[sender.name].link_sent_bytes / sender.link_bytes_per_s / period_s,
                load[receiver.name].link_received_bytes / receiver.link_bytes_per_s / period_s,
            )
            transit_s[flow.name] += _passing_s(size / rate, share, period_s)
    return StepTimes(_firing_s(dataflow, devices, phases, load), transit_s, credit_s)


def _passing_s(wire_s: float, share: float, period_s: float) -> float:
    """Return the seconds that a transfer takes at an interface that is busy for `share`."""
    longest_s = max(wire_s, period_s)
    return min(wire_s * (1 + share / (2 - 2 * share)), longest_s) if share < 1 else longest_s


def _firing_s(
    dataflow: Dataflow,
    devices: Sequence[Device],
    phases: Sequence[PlannedPhase],
    load: Mapping[str, Load],
) -> dict[str, float]:
    """Return by phase name the share of its device's busy time that one of its firings takes."""
    firing_s = {device.name: device.firing_s for device in devices}
    own_s = {phase.name: phase.predicted_s + firing_s[phase.device] for phase in phases}
    total_s: dict[str, float] = {}
    for phase in phases:
        total_s[phase.device] = total_s.get(phase.device, 0.0) + own_s[phase.name]
    found = {}
    for phase in phases:
        busy_s = load[phase.device].busy_s
        share = own_s[phase.name] / total_s[phase.device] if total_s[phase.device] else 0.0
        # Loads are averages over a cycle's frames, of which a copy gets some.
        cycle, own = len(dataflow.dealing), dataflow.dealing.count(phase.copy)
        found[phase.name] = share * busy_s * cycle / own
    return found
