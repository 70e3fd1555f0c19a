"""The ranking of plans of any strategy by their predicted costs.

Plans are compared by the preference for the problem's objective in `ga.objectives.HELD`, with the
expected period instead of the planned one. Stages take longer or shorter than planned, and the
slowest one sets the period, so the expected period grows with the number of stages.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from cnn.rewrite.rewrites import original_name
from ga.both import columns, order, tensor_bytes
from ga.objectives import HELD, Preference, negligible_bytes
from partition.plan import Plan
from partition.prediction.timing import energy_j, loads
from partition.pricing.busy import rates_of
from partition.pricing.memory_budget import fair_memory
from partition.pricing.traffic import Floats
from partition.strategies.base import Problem

STAGE_SPREAD = 0.05
"""By how much (standard deviation) a device takes longer or shorter than planned. With it, expected
efficiencies of ResNet50 on 4, 6, 8 and 10 boards are 0.93, 0.88, 0.86 and 0.85, where 0.97, 0.92,
0.88 and 0.89 were planned and 0.93, 0.87, 0.81 and 0.76 to 0.80 measured (`benchmarks.table3`)."""

_POINTS = 1000


def preference_for(problem: Problem) -> Preference:
    """Return the preference by which plans of a problem are compared."""
    return HELD[problem.objective]


def ranking(problem: Problem) -> Callable[[Plan], float]:
    """Return a key that ranks plans by the preference and the expected period; smaller is
    better."""
    preference, network = preference_for(problem), problem.network
    fair = fair_memory(problem.devices)
    floor = negligible_bytes(network)

    def rank(plan: Plan) -> float:
        memory = [plan.memory[device.name] for device in plan.devices]
        balanced = np.array([each.weights_bytes for each in memory]) + floor
        held = np.array([tensor_bytes(each) for each in memory]) + floor
        terms = (
            (preference.time, expected_period_s(plan)),
            (preference.memory, float((balanced / fair).max())),
            (preference.held, float((held / fair).max())),
            (preference.traffic, plan.bytes_per_frame + 1),
            (preference.latency, unloaded_latency_s(plan)),
            (preference.energy, energy_j(plan)),
        )
        return sum(weight * float(np.log(max(cost, 1e-300))) for weight, cost in terms if weight)

    return rank


def expected_period_s(plan: Plan) -> float:
    """Return the expected period if each device's time varies by `STAGE_SPREAD`.

    Devices vary independently unless they compute the same layers. If the phases of a plan were
    measured, its own period is returned.
    """
    if plan.times == "measured":
        return plan.period_s
    load = loads(plan.devices, plan.phases, plan.channels, plan.dealing)
    copied = len(set(plan.dealing)) > 1
    layers: dict[str, set[str]] = {}
    for phase in plan.phases:
        names = map(original_name, phase.layers) if copied else phase.layers
        layers.setdefault(phase.device, set()).update(names)
    stages: dict[frozenset[str], float] = {}
    for device, own in layers.items():
        stage = frozenset(own)
        stages[stage] = max(stages.get(stage, 0.0), load[device].busy_s)
    return max(plan.period_s, _mean_of_largest(np.array([*stages.values()])))


def _mean_of_largest(means: Floats) -> float:
    """Return the mean of the largest of independent normal variables with `means` [variables] and
    standard deviations of `STAGE_SPREAD` × mean.

    It is the integral over t ≥ 0 of the probability that one of them is larger than t.
    """
    largest = float(means.max())
    if not largest:
        return 0.0
    from scipy.special import ndtr  # noqa: PLC0415 (slow to import)

    times, step = np.linspace(0, (1 + 6 * STAGE_SPREAD) * largest, _POINTS, retstep=True)
    deviations = STAGE_SPREAD * np.maximum(means, 1e-9 * largest)
    none_larger = ndtr((times[:, None] - means) / deviations).prod(axis=1)
    return float(step * (1 - none_larger[1:]).sum() + step / 2)


def is_preferred(problem: Problem, plan: Plan, other: Plan) -> bool:
    """Return whether the problem's objective prefers a plan to another one."""
    if problem.objective == "both":
        return order(problem, [columns(problem, each) for each in (other, plan)])[0] == 1
    rank = ranking(problem)
    return rank(plan) < rank(other)


def unloaded_latency_s(plan: Plan) -> float:
    """Return the latency of a frame in an empty pipeline: the sum of all work and transfers."""
    load = loads(plan.devices, plan.phases, plan.channels, plan.dealing)
    return sum(
        rates_of(device).response_s(load[device.name].busy_s, load[device.name].received_bytes)
        for device in plan.devices
    )
