"""Joules per frame of a plan: Eq. 4 of Velasco-Montero et al. (2023), with waiting and sending.

In a period a device works for its busy seconds at `busy_w` and waits for the rest at `idle_w`;
each byte that it sends costs `sent_j_per_byte`. A device without layers is taken to be switched
off. With `idle_w` and `sent_j_per_byte` at 0 this is their Eq. 4, the energy of the stages alone.
"""

from __future__ import annotations

from partition.devices import Device
from partition.plan import Plan
from partition.timing import loads


def energy_j(plan: Plan) -> float:
    """Joules that all devices of `plan` together take per frame in the steady state."""
    load = loads(plan.devices, plan.phases, plan.channels, plan.dealing)
    working = {phase.device for phase in plan.phases}
    return sum(
        device_energy_j(
            device, load[device.name].busy_s, plan.period_s, load[device.name].sent_bytes
        )
        for device in plan.devices
        if device.name in working
    )


def device_energy_j(device: Device, busy_s: float, period_s: float, sent_bytes: float) -> float:
    """What one device takes in a period: working, then waiting, and sending."""
    waiting_s = max(period_s - busy_s, 0.0)
    return busy_s * device.busy_w + waiting_s * device.idle_w + sent_bytes * device.sent_j_per_byte
