"""Prices devices by the figures that their boards have measured, before any network ran there."""

from __future__ import annotations

from dataclasses import dataclass, replace

from partition.devices import Device, LayerRates
from partition.measured.profiles import AGENTS_PART
from partition.pricing.run_costs import ThreadCosts


@dataclass(frozen=True, slots=True)
class MeasuredFigures:
    """The figures of a board under its quota, in seconds (`nodes.protocol.messages.BoardFigures`).

    `message_s` and `byte_s` are those of sender and receiver together.
    """

    threads: int
    dense_s_per_mac: float
    pointwise_s_per_mac: float
    depthwise_s_per_mac: float
    integer_s_per_mac: float
    weight_s_per_byte: float
    tensor_s_per_byte: float
    cut_s_per_byte: float
    run_s: float
    message_s: float
    byte_s: float
    encode_s_per_byte: float


def with_figures(device: Device, figures: MeasuredFigures, *, own_speed: bool = False) -> Device:
    """Return the device with the measured figures of its board.

    With `own_speed`, the user has stated `macs_per_s`: what layers, runs and cuts take stays as it
    is, and messages, bytes and encodings are measured. A firing takes its share of a message, and
    at least the part of the usual `firing_s` that is the agent's, less on a board that computes
    faster than was assumed: messages are measured while the agent's code is in the caches.
    """
    costs = ThreadCosts.measured(figures.message_s, figures.byte_s)
    served = replace(
        device,
        wire_s_per_message=figures.message_s / 2 or device.wire_s_per_message,
        wire_s_per_byte=figures.byte_s / 2 or device.wire_s_per_byte,
        encode_s_per_byte=figures.encode_s_per_byte or device.encode_s_per_byte,
    )
    if own_speed:
        return served
    slower = min(1.0, figures.dense_s_per_mac * device.macs_per_s)
    agents_s = AGENTS_PART * device.firing_s * slower
    return replace(
        served,
        macs_per_s=1 / figures.dense_s_per_mac,
        memory_bytes_per_s=1 / figures.tensor_s_per_byte,
        cut_s_per_byte=figures.cut_s_per_byte,
        run_s=figures.run_s,
        firing_s=max(costs.executor_s + costs.ended_s, agents_s),
        layer_rates=LayerRates(
            figures.dense_s_per_mac,
            figures.pointwise_s_per_mac,
            figures.depthwise_s_per_mac,
            figures.integer_s_per_mac,
            figures.weight_s_per_byte,
            figures.tensor_s_per_byte,
        ),
    )
