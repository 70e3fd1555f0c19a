"""What a run should have been, from what its agents measured before it began.

The plan with the agents' warm-up times is simulated (`partition.simulated`) for as many frames as
were streamed, and its figures are taken as the run's own are: so the two can be compared.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from launcher.runtime import RunResult
from nodes.core.messages import Order
from partition.plan import Plan
from partition.simulated import Prediction, predict
from partition.simulated_costs import RunCosts

MOST_FRAMES = 400
MOST_FIRINGS = 100_000
"""What is simulated at most: further frames would tell nothing new."""


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds: per frame from the first result to the last; from a frame's departure to its
    result, in the median and at worst."""

    period_s: float
    latency_s: float
    latency_worst_s: float


def times_of(sent_s: Sequence[float], received_s: Sequence[float]) -> Times:
    """The figures of a run, real or simulated; one frame's period is the whole of it."""
    latencies = [received - sent for sent, received in zip(sent_s, received_s, strict=True)]
    passed_s = received_s[-1] - (received_s[0] if len(received_s) > 1 else sent_s[0])
    return Times(
        passed_s / max(1, len(received_s) - 1), statistics.median(latencies), max(latencies)
    )


def predicted_run(
    plan: Plan,
    result: RunResult,
    order: Order,
    launcher_on: str,
    cpus: Mapping[str, Sequence[int]] | None = None,
) -> Prediction:
    """The run of `plan`, which has the agents' warm-up times, as it is predicted.

    `launcher_on` is the `host` of the devices that run where the launcher does, `cpus` those that
    agents started here are bound to.
    """
    costs = RunCosts.known(
        plan.devices,
        host=launcher_on,
        cpus=cpus,
        message_s=result.message_s,
        byte_s=result.byte_s,
    )
    firings_per_frame = 6 * (len(plan.phases) + 1)
    affordable = max(8, MOST_FIRINGS // firings_per_frame)
    frames = min(len(result.received_s), MOST_FRAMES, affordable)
    return predict(plan, costs, order=order, frames=frames)
