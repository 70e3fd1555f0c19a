"""Write the certificate of a plan, from the file `plan.json` that `launch` saves.

It certifies the graph of the plan's phases in three orders, the skews, and bounds that hold for
every assignment of the same layers to the same nodes (docs/certificates.md has the definitions).

A bound is found by a linear program. Let x(l, n) be the share of layer l on node n, and a(l, n)
what the whole layer takes there. A room r (a node's time or memory, or the cores of a machine) has
k(r) places and holds h(r) without layers. Minimise B subject to

    Σ_l Σ_{n in r} a(l, n) x(l, n) + h(r) ≤ k(r) B for every room r,    Σ_n x(l, n) = 1,

where x(l, n) = 0 if a layer alone takes more than B leaves in a room of n (Lenstra, Shmoys and
Tardos, "Approximation algorithms for scheduling unrelated parallel machines", Mathematical
Programming, 1990). The dual has a price for every room; rounded to integers, prices prove a bound
without the linear program, and nearly the same.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from csdf.certificates.certify import FORMAT, Certificate, Certifier
from csdf.conversion.from_network import HOST, SINK, SOURCE
from csdf.conversion.skew import SkewLink, least_skews
from csdf.errors import CsdfError
from csdf.formats import json_format
from csdf.model.consistency import repetition_vector
from csdf.model.graph import Actor, Channel, Graph
from csdf.timing.cycle_ratio import EFFORT

PRICE = 1_000_000
"""The largest price of a room; rounding lowers a bound by about one part in `PRICE`."""

_ROUNDS = 4
"""The most linear programs for a bound; each excludes what does not fit below the bound before."""


def certify_plan(file: bytes, effort: int = EFFORT) -> Certificate:
    """Return the certificate of the plan that `file` contains: the bytes of a `plan.json`.

    The period is left out beyond `effort`, as by `csdf.certificates.certify.certify`. Raises
    `CsdfError` if `file` is not a plan of this version, or if no skews or bounds can be found.
    """
    try:
        plan = json_format.load(file, parse_float=Fraction)
        return _certificate(plan, file, effort)
    except (LookupError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise CsdfError(
            "is not a plan that can be certified (it was edited, or an older version saved it); "
            f"launch --plan-only --save makes a new one ({type(error).__name__}: {error})"
        ) from error


def _certificate(plan: Mapping[str, Any], file: bytes, effort: int) -> Certificate:
    found = plan["derived"]
    skews = {SOURCE: 0} | {phase["name"]: phase["skew"] for phase in found["phases"]}
    to_host = [one["source"] for one in found["channels"] if one["to"] == HOST]
    skews[SINK] = 1 + max(skews[source] for source in to_host)
    still = dict.fromkeys(skews, 0)
    orders, left_out = {}, list[str]()
    for order, graph, claims in (
        ("any", _graph(found, still, in_turn=False), ()),
        ("in turn", _graph(found, still, in_turn=True), ()),
        ("pipelined", _graph(found, skews, in_turn=True), ("period",)),
    ):
        repetitions = repetition_vector(graph)
        certifier = Certifier(graph, [repetitions[actor.name] for actor in graph.actors], effort)
        certificate = certifier.certificate({"repetitions": repetitions}, claims)
        orders[order] = certificate.content
        left_out += certificate.left_out
    node = {phase["name"]: phase["node"] for phase in found["phases"]}
    node |= {SOURCE: HOST, SINK: HOST}
    links = [
        SkewLink(
            one["source"],
            one["targets"],
            int(any(node[one["source"]] != node[target] for target in one["targets"])),
            one["bytes"],
        )
        for one in found["channels"]
    ]
    _, dual = least_skews([phase["name"] for phase in found["phases"]], links)
    bounds = {what: _bound(costs) for what, costs in found["costs"].items()}
    head = {"format": FORMAT, "plan": hashlib.sha256(file).hexdigest()}
    content = {
        **head,
        "model": plan["model_digest"],
        "orders": orders,
        "skews": [[list(pair) for pair in own] for own in dual],
        "bounds": {what: bound for what, bound in bounds.items() if bound is not None},
    }
    return Certificate(content, tuple(left_out))


def _graph(found: Mapping[str, Any], skews: Mapping[str, int], *, in_turn: bool) -> Graph:
    """Return the graph of the phases and the host, whose tokens are frames.

    Nodes fire their phases in turn by channels that hold one token for the phase whose turn it is.
    """
    dealing = found["dealing"]
    actors = [Actor(name, (Fraction(0),) * len(dealing), 1) for name in (SOURCE, SINK)]
    nodes: dict[str, list[str]] = {}
    for phase in found["phases"]:
        actors.append(Actor(phase["name"], (Fraction(phase["predicted_s"]),), 1))
        nodes.setdefault(phase["node"], []).append(phase["name"])
    channels = []
    for one in found["channels"]:
        dealt = tuple(int(copy == one["copy"]) for copy in dealing)
        for target in one["targets"]:
            made, read = (
                dealt if end in (SOURCE, SINK) else (1,) for end in (one["source"], target)
            )
            late = skews[target] - skews[one["source"]]
            name = f"{one['tensor']} → {target}"
            capacity = one["capacity_frames"]
            channels.append(Channel(name, one["source"], target, made, read, late, capacity))
    if in_turn:
        for own in nodes.values():
            for before, after in pairwise([*own, own[0]]):
                first = int(after == own[0])
                name = f"{before}, {after}"
                channels.append(Channel(name, before, after, (1,), (1,), first))
    return Graph("plan", tuple(actors), tuple(channels))


class _Bound:
    """The costs of layers, and the bounds that prices prove (see the module's docstring)."""

    def __init__(self, costs: Mapping[str, Any]) -> None:
        places, held = zip(*costs["rooms"], strict=True)
        self._places, self._held = np.array(places, float), np.array(held, float)
        rows = np.array(list(costs["layers"].values()), dtype=np.float64)
        self._rows, self._count = np.unique(rows, axis=0, return_counts=True)
        self._rooms = np.array(
            [[room in own for room in range(len(places))] for own in costs["nodes"]], dtype=float
        )

    def proved(self, prices: NDArray[np.float64]) -> float:
        """Return the largest bound that these prices [rooms] prove, in floating point."""
        low = 0.0  # where no layer fits anywhere
        high = float(self._held.max() + self._rows.sum(axis=1) @ self._count) + 1.0
        while high - low > 0.25 and high - low > 1e-12 * high:
            middle = (low + high) / 2
            low, high = (middle, high) if self._holds(middle, prices) else (low, middle)
        return low

    def _spare(self, bound: float) -> NDArray[np.float64]:
        return np.asarray(self._places * bound - self._held)

    def _fits(self, bound: float) -> NDArray[np.bool_]:
        """Return whether layers fit on nodes alone: [rows, nodes]."""
        spare = np.where(self._rooms > 0, self._spare(bound), np.inf).min(axis=1)
        return np.asarray(self._rows < spare)

    def _holds(self, bound: float, prices: NDArray[np.float64]) -> bool:
        fits = self._fits(bound)
        asked = np.where(fits, self._rows * (self._rooms @ prices), np.inf).min(axis=1)
        there = float(prices @ np.maximum(self._spare(bound), 0.0))
        return bool(not fits.any(axis=1).all() or there <= float(asked @ self._count))

    def prices(self, bound: float) -> NDArray[np.float64]:
        """Return the dual prices [rooms] if layers are where they fit below `bound`."""
        from scipy.optimize import linprog  # noqa: PLC0415 (slow to import)
        from scipy.sparse import csr_array  # noqa: PLC0415

        rows, nodes = np.nonzero(self._fits(bound))
        scale = max(float(self._rows.max()), 1.0)
        layers, rooms = len(self._rows), len(self._places)
        costs = -(self._rows[rows, nodes] / scale)[:, None] * self._rooms[nodes]
        at = np.repeat(np.arange(len(rows)), rooms)
        matrix = csr_array(
            (
                np.concatenate([np.ones(len(rows)), costs.ravel()]),
                (
                    np.concatenate([np.arange(len(rows)), at]),
                    np.concatenate([rows, layers + np.tile(np.arange(rooms), len(rows))]),
                ),
            ),
            shape=(len(rows), layers + rooms),
        )
        usable = self._spare(bound) > 0
        found = linprog(
            -np.concatenate([self._count, self._held / scale]),
            A_ub=matrix,
            b_ub=np.zeros(len(rows)),
            A_eq=np.concatenate([np.zeros(layers), self._places * usable])[None, :],
            b_eq=[1.0],
            bounds=[(0, None)] * layers + [(0, None if one else 0) for one in usable],
        )
        if found.status != 0:
            raise CsdfError(f"the linear program for a bound failed: {found.message}")
        return np.asarray(found.x[layers:])


def _bound(costs: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return a bound with the prices that prove it; None if none is proved."""
    if not costs["layers"]:
        return None
    found = _Bound(costs)
    prices = np.full(len(costs["rooms"]), float(PRICE))
    best = found.proved(prices)
    for _ in range(_ROUNDS):
        other = found.prices(best + 1.0)
        other = np.rint(other * (PRICE / other.max()))
        proved = found.proved(other)
        if proved <= best:
            break
        best, prices = proved, other
    whole = [int(price) for price in prices]
    for bound in (math.ceil(best), math.floor(best), math.floor(best * (1 - 1e-9)) - 1):
        if _is_proved(costs, bound, whole):
            return {"bound": bound, "prices": whole}
    return None


def _is_proved(costs: Mapping[str, Any], bound: int, prices: Sequence[int]) -> bool:
    """Return whether the prices prove the bound, in integers."""
    spare = [places * bound - held for places, held in costs["rooms"]]
    there = sum(price * max(0, room) for price, room in zip(prices, spare, strict=True))
    nodes = [(min(spare[i] for i in own), sum(prices[i] for i in own)) for own in costs["nodes"]]
    asked = 0
    for own in costs["layers"].values():
        fits = (cost * price for cost, (room, price) in zip(own, nodes, strict=True) if cost < room)
        asked += min(fits, default=there)
    return bool(0 < there <= asked)
