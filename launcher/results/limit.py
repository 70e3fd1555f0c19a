"""Finds what limits the rate of a run: a node, a link, the source, or none of them.

A node that computes for nine tenths of the time limits the rate, since the rest goes into messages.
Otherwise a link may: its share of time follows from the bytes that the plan sends over it and from
the measured period.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from launcher.view.shown import BUSY
from partition.plan import Plan
from partition.prediction.timing import loads
from partition.pricing.busy import rates_of

LINK_BUSY = 0.7
"""A link that is busy for this share of time limits the rate; the rest is protocol and waiting."""


@dataclass(frozen=True, slots=True)
class Limit:
    """The limit of a rate: `node` is the busiest node, or the one at the busiest link.

    `share` is the share of time for which it, or the link, is busy, in 0..1. The kind `waiting`
    says that nothing is busy enough to be the limit, and `source` that frames come more slowly than
    the nodes compute.
    """

    kind: Literal["node", "link", "source", "waiting"]
    node: str
    share: float
    is_shared: bool = False
    """Whether other nodes of the plan compute on the machine of `node`."""


def limit_of(
    plan: Plan, busy: Mapping[str, float], frame_s: float, *, is_paced: bool
) -> Limit | None:
    """Return what limits a run with `frame_s` seconds between results; None without a measurement.

    `busy` has the share of time, in 0..1, for which each node of the plan computed; `is_paced` says
    that the source decides when frames come.
    """
    if not busy or frame_s <= 0:
        return None
    node = max(busy, key=lambda name: busy[name])
    if busy[node] >= BUSY:
        return Limit("node", node, busy[node], _is_shared(plan, node, busy))
    links = _link_shares(plan, frame_s)
    link = max(links, key=lambda name: links[name])
    if links[link] >= LINK_BUSY:
        return Limit("link", link, min(1.0, links[link]))
    kind: Literal["source", "waiting"] = "source" if is_paced else "waiting"
    return Limit(kind, node, busy[node], _is_shared(plan, node, busy))


def _is_shared(plan: Plan, node: str, busy: Mapping[str, float]) -> bool:
    hosts = {device.name: device.host for device in plan.devices if device.name in busy}
    host = hosts.get(node)
    return host is not None and list(hosts.values()).count(host) > 1


def _link_shares(plan: Plan, frame_s: float) -> dict[str, float]:
    """Return for each device the share of time for which its network interface is busy."""
    found = loads(plan.devices, plan.phases, plan.channels, plan.dealing)
    return {
        device.name: rates_of(device).link_s(
            found[device.name].link_sent_bytes, found[device.name].link_received_bytes
        )
        / (frame_s * plan.batch)
        for device in plan.devices
    }
