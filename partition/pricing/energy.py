"""Joules per frame of a plan: Eq. 4 of Velasco-Montero et al. (2023), with waiting and sending.

A device without layers is taken to be switched off. With `idle_w` and `sent_j_per_byte` at 0 this
is their Eq. 4, the energy of the stages alone. The formula of one device is in
`partition.pricing.busy`.
"""

from __future__ import annotations

from partition.plan import Plan
from partition.prediction.timing import loads
from partition.pricing.busy import rates_of


def energy_j(plan: Plan) -> float:
    """Return the joules that all devices of `plan` together take per frame in the steady state."""
    load = loads(plan.devices, plan.phases, plan.channels, plan.dealing)
    working = {phase.device for phase in plan.phases}
    joules = (
        rates_of(device).energy_j(
            load[device.name].busy_s, plan.period_s, load[device.name].sent_bytes
        )
        for device in plan.devices
        if device.name in working
    )
    return float(sum(joules))
