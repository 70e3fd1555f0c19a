"""Predicts the period and latency of a run by simulation, from warm-up times.

`predicted_run` simulates a plan with the times that the agents measured while they warmed up
(`partition.prediction.simulation`), for as many frames as were streamed. Its figures are computed
as those of the run are (`times_of`), so that the two can be compared.
`partition.prediction.foreseen` simulates a plan before it runs.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from launcher.run.runtime import RunResult
from nodes.protocol.messages import Order
from partition.plan import Plan
from partition.prediction.foreseen import firings
from partition.prediction.simulation import Prediction, predict
from partition.prediction.timing import with_measured_phases
from partition.pricing.run_costs import RunCosts

MOST_FRAMES = 400
MOST_FIRINGS = 100_000
"""Bounds of a simulation of a run; further frames would change nothing."""


@dataclass(frozen=True, slots=True)
class Times:
    """The period between results, and the latency from a frame's departure to its result."""

    period_s: float
    latency_s: float
    latency_worst_s: float


def times_of(sent_s: Sequence[float], received_s: Sequence[float], cycle: int = 1) -> Times:
    """Return the figures of a real or simulated run, by frame.

    The period is that from the first results to the last one; results that came together with the
    first, in a batch, do not count. Copies of a network take their turns in a `cycle` of frames. If
    no more results than these came after the first, the period is the whole time over all results.
    """
    latencies = [received - sent for sent, received in zip(sent_s, received_s, strict=True)]
    later = sum(each > received_s[0] for each in received_s)
    if later < cycle:
        later = 0
    began_s = received_s[0] if later else sent_s[0]
    return Times(
        (received_s[-1] - began_s) / (later or len(received_s)),
        statistics.median(latencies),
        max(latencies),
    )


def with_warmup(plan: Plan, result: RunResult) -> Plan:
    """Return `plan` with the times that the agents measured while they warmed up.

    If a time is missing, `plan` is returned unchanged: the run ended while nothing was deployed,
    because a node was lost after the last result had arrived.
    """
    seconds: dict[str, float] = {}
    for device, times in result.warmup_s.items():
        phases = sorted(
            (phase for phase in plan.phases if phase.device == device),
            key=lambda phase: phase.index,
        )
        seconds |= {phase.name: time for phase, time in zip(phases, times, strict=True)}
    if any(phase.name not in seconds for phase in plan.phases):
        return plan
    return with_measured_phases(plan, seconds)


def expected_times(predicted: Prediction, plan: Plan) -> Times:
    """Return the figures by frame of a simulated run of the plan."""
    times, batch = times_of(predicted.sent_s, predicted.received_s, len(plan.dealing)), plan.batch
    return replace(times, period_s=times.period_s / batch)


def predicted_run(
    plan: Plan,
    result: RunResult,
    order: Order,
    launcher_on: str,
    cpus: Mapping[str, Sequence[int]] | None = None,
    results: int | None = None,
) -> Prediction:
    """Simulate the run of `plan`, which has the agents' warm-up times.

    `launcher_on` is the `host` of the devices on the launcher's machine, and `cpus` the CPUs to
    which agents started there are bound. `results` is the number of results of a stream.
    """
    costs = RunCosts.known(
        plan.devices,
        host=launcher_on,
        cpus=cpus,
        message_s=result.message_s,
        byte_s=result.byte_s,
    )
    affordable = max(8, MOST_FIRINGS // firings(plan))
    batches = math.ceil((results or len(result.received_s)) / plan.batch)
    return predict(plan, costs, order=order, frames=min(batches, MOST_FRAMES, affordable))
