"""Predicts a run by simulation, from what its agents measured before it began.

The plan with the agents' warm-up times is simulated (`partition.prediction.simulation`) for as
many frames as were streamed, and its figures are taken as the run's own are: so the two can be
compared.

Before a run there are only the profile's times, or estimates. The figures of a plan then come
from a simulation too (`foreseen`): the closed forms know nothing of the launcher's own work or of
threads that wake, which is most of what a network of microseconds costs.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from launcher.run.runtime import RunResult
from nodes.protocol.messages import Order
from partition.measured.profiles import Profile
from partition.plan import Plan
from partition.prediction.run_costs import RunCosts
from partition.prediction.simulation import Prediction, predict

MOST_FRAMES = 400
MOST_FIRINGS = 100_000
"""What is simulated at most: further frames would change nothing."""


FORESEEN_FIRINGS = 30_000
"""What is simulated of a plan before it runs: some tenths of a second."""


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
    affordable = max(8, MOST_FIRINGS // _firings(plan))
    frames = min(len(result.received_s), MOST_FRAMES, affordable)
    return predict(plan, costs, order=order, frames=frames)


def foreseen(
    plan: Plan,
    order: Order,
    launcher_on: str,
    cpus: Mapping[str, Sequence[int]] | None = None,
    profile: Profile | None = None,
) -> Plan:
    """`plan` with the period and the latency that a simulated run of it has.

    Messages and bytes cost what `profile` says, or else what is usual. A plan of so many phases
    that filling its pipeline would take too long to simulate stays as it is: there the closed
    forms are what counts. Never is the period shorter than theirs.
    """
    nodes = {} if profile is None else profile.nodes
    costs = RunCosts.known(
        plan.devices,
        host=launcher_on,
        cpus=cpus,
        message_s={name: node.message_s for name, node in nodes.items()},
        byte_s={name: node.byte_s for name, node in nodes.items()},
    )
    deepest = max((phase.skew for phase in plan.phases), default=0)
    frames = 24 + 3 * deepest + len(plan.dealing)
    if frames * _firings(plan) > FORESEEN_FIRINGS:
        return plan
    found = predict(plan, costs, order=order, frames=frames)
    return replace(plan, period_s=max(plan.period_s, found.period_s), latency_s=found.latency_s)


def _firings(plan: Plan) -> int:
    """About how many firings a simulated frame takes."""
    return 14 * (len(plan.phases) + 1)
