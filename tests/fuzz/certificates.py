"""Certificates, damaged or of another graph or plan: none may prove what is false.

A certificate claims a few things and proves them by much, so damage to it is mostly damage to a
proof. What makes claims false is a change of the graph: a place less, a longer time. An input is a
certificate and a graph, of which either or both are changed in one place. Truth is what the
analyser finds of that graph, or what all assignments of a plan's few layers cost. A changed
certificate that still proves its claim may be accepted: with firings in another order, or a start
that is later where nothing waits.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache
from hashlib import sha256
from itertools import product
from random import Random
from typing import Any

from csdf.analysis import Analysis, analyze
from csdf.certificates.certify import certify
from csdf.certificates.check import RefusedError, check
from csdf.certificates.plans import certify_plan
from csdf.conversion.from_network import SINK, SOURCE
from csdf.conversion.skew import SkewLink, least_skews
from csdf.errors import CsdfError
from csdf.formats import json_format
from csdf.model.graph import Actor, Channel, Graph
from csdf.timing.throughput import throughput
from tests.csdf.certified import deadlocks, one_less
from tests.csdf.graphs import inconsistent_graph, random_graph
from tests.fuzz.mutation import mutated
from tests.launcher.random_plans import random_plan_text

GRAPHS = 60
PLANS = 60
_BETWEEN = b"\n\n"
_ANYTHING: tuple[Any, ...] = (None, True, -1, 0, 1, 2**64, 1.5, "", "tokens", "space", "order", [])
_STEPS = (-2, -1, -1, 1, 1, 2, 10)


def seeds() -> tuple[bytes, ...]:
    """Certificates of random graphs with these graphs."""
    found = []
    for seed in range(GRAPHS):
        make = inconsistent_graph if seed % 12 == 0 else random_graph
        file = json.dumps(json_format.as_json(make(Random(seed), bounded=seed % 2 == 1))).encode()
        content = certify(json_format.parse(file), file).content
        found.append(json.dumps(content).encode() + _BETWEEN + file)
    return tuple(found)


def read_certificate(data: bytes) -> bool:
    """Return whether it is accepted; raise if what it then proves is not true."""
    certificate, _, file = data.partition(_BETWEEN)
    try:
        claims = check(certificate, file)
        graph = json_format.parse(file)
    except (RefusedError, CsdfError):
        return False
    assert sha256(file).hexdigest().encode() in certificate
    holds(graph, file, claims)
    return True


def holds(graph: Graph, file: bytes, claims: dict[str, Any]) -> None:
    """Fail if one of the claims is not true of the graph."""
    truth = _truth(file)
    assert claims["consistent"] == (truth.inconsistency is None)
    assert claims.get("live", False) == bool(truth.live)
    assert "period" not in claims or claims["period"] == truth.period
    for name in claims.get("capacities", ()):
        less = one_less(graph, name)
        assert deadlocks(less) or throughput(less).period > throughput(graph).period


def plan_seeds() -> tuple[bytes, ...]:
    """Certificates of random plans with these plans."""
    files = [random_plan_text(seed).encode() for seed in range(PLANS)]
    return tuple(
        json.dumps(certify_plan(file).content).encode()
        + _BETWEEN
        + json.dumps(json.loads(file)).encode()
        for file in files
    )


def read_plan_certificate(data: bytes) -> bool:
    """Return whether it is accepted; raise if what it then proves is not true."""
    certificate, _, file = data.partition(_BETWEEN)
    try:
        claims = check(certificate, file)
    except RefusedError:
        return False
    assert sha256(file).hexdigest().encode() in certificate
    plan_holds(json.loads(file, parse_float=Fraction), claims)
    return True


def plan_holds(plan: dict[str, Any], claims: dict[str, Any]) -> None:
    """Fail if one of the claims is not true of the plan."""
    found = plan["derived"]
    placed = [(layer, phase["node"]) for phase in found["phases"] for layer in phase["layers"]]
    node_of = {layer: node for node, layers in plan["assignment"].items() for layer in layers}
    assert node_of == dict(placed)
    assert len(node_of) == len(placed)
    skews = {SOURCE: 0} | {phase["name"]: phase["skew"] for phase in found["phases"]}
    skews[SINK] = 1 + max(
        skews[one["source"]] for one in found["channels"] if SINK in one["targets"]
    )
    for order, graph in plan_graphs(found, skews).items():
        truth = analyze(graph, slack_work=0)
        assert truth.live, order
    assert claims.get("period", truth.period) == truth.period
    spans = [
        one["bytes"] * (max(skews[target] for target in one["targets"]) - skews[one["source"]])
        for one in found["channels"]
    ]
    assert claims["spans"] == sum(spans) == least_spans(found)
    for what in claims.keys() & found["costs"].keys():
        assert claims[what] <= _least_full(json.dumps(found["costs"][what], default=str))


def plan_graphs(found: dict[str, Any], skews: dict[str, int]) -> dict[str, Graph]:
    """The graphs of a plan's three orders, of whole devices where they fire in turn."""
    phases, dealing = found["phases"], found["dealing"]
    own = {
        phase["node"]: [p["name"] for p in phases if p["node"] == phase["node"]] for phase in phases
    }
    apart = {phase["name"]: [phase["name"]] for phase in phases}
    still = dict.fromkeys(skews, 0)
    time = {phase["name"]: Fraction(phase["predicted_s"]) for phase in phases}
    graphs = {}
    for order, groups, late in (("any", apart, still), ("turn", own, still), ("pipe", own, skews)):
        of = {phase: name for name, group in groups.items() for phase in group}
        of |= {SOURCE: SOURCE, SINK: SINK}

        def rates(phase: str, copy: int, of: Any = of, groups: Any = groups) -> tuple[int, ...]:
            if phase in (SOURCE, SINK):
                return tuple(7 * (one == copy) for one in dealing)
            return tuple(7 * (one == phase) for one in groups[of[phase]])

        actors = [
            Actor(name, tuple(map(time.__getitem__, group)), 1) for name, group in groups.items()
        ]
        actors += [Actor(host, (Fraction(0),) * len(dealing), 1) for host in (SOURCE, SINK)]
        channels = [
            Channel(
                f"{i} to {target}",
                of[one["source"]],
                of[target],
                rates(one["source"], one["copy"]),
                rates(target, one["copy"]),
                7 * (late[target] - late[one["source"]]),
                7 * one["capacity_frames"],
            )
            for i, one in enumerate(found["channels"])
            for target in one["targets"]
        ]
        graphs[order] = Graph(order, tuple(actors), tuple(channels))
    return graphs


def least_spans(found: dict[str, Any]) -> int:
    """The least bytes × periods of all skews, by another way: a minimum over relaxed potentials."""
    links = [
        SkewLink(one["source"], one["targets"], int(one["from"] != one["to"]), one["bytes"])
        for one in found["channels"]
    ]
    skews, _ = least_skews([phase["name"] for phase in found["phases"]], links)
    return sum(
        link.size_bytes * (max(skews[target] for target in link.targets) - skews[link.source])
        for link in links
    )


def least_full(costs: dict[str, Any]) -> Fraction:
    """How full the fullest room is in the best of all assignments, or of as many as are tried."""
    layers, nodes = list(costs["layers"].values()), range(len(costs["nodes"]))
    sizes = [Fraction(size) for size, _ in costs["rooms"]]
    held = [
        Fraction(content) / size for size, (_, content) in zip(sizes, costs["rooms"], strict=True)
    ]
    added = [
        [
            [(room, Fraction(own[node]) / sizes[room]) for room in costs["nodes"][node]]
            for node in nodes
        ]
        for own in layers
    ]
    shares = [*held, *(share for own in added for rooms in own for _, share in rooms)]
    whole = math.lcm(*(share.denominator for share in shares))  # sums of integers are quick
    begun = [int(whole * share) for share in held]
    steps = [
        [[(room, int(whole * share)) for room, share in rooms] for rooms in own] for own in added
    ]
    best = None
    for places in product(nodes, repeat=len(layers)):
        full, used = begun.copy(), set[int]()
        for own, node in zip(steps, places, strict=True):
            for room, share in own[node]:
                full[room] += share
                used.add(room)
        fullest = max((full[room] for room in used), default=0)
        best = fullest if best is None else min(best, fullest)
    return Fraction(best or 0, whole)


@lru_cache(maxsize=1000)
def _least_full(costs: str) -> Fraction:
    return least_full(json.loads(costs))


@lru_cache(maxsize=10_000)
def _truth(file: bytes) -> Analysis:
    return analyze(json_format.parse(file), slack_work=0)


def damaged(every: Sequence[bytes], random: Random) -> bytes:
    """One of the seeds with a certificate or a graph that is changed in one place, or both."""
    if random.random() < 0.05:
        return mutated(every, random)
    certificate, _, file = random.choice(every).partition(_BETWEEN)
    content, graph = json.loads(certificate), json.loads(file)
    which = random.randrange(8)
    if which > 2:
        _change_a_number(graph, random)
        file = json.dumps(graph).encode()
        content["plan" if "plan" in content else "graph"] = sha256(file).hexdigest()
    if which < 5:
        _change(content, random)
    return json.dumps(content).encode() + _BETWEEN + file


def _places(found: Any) -> list[tuple[Any, Any]]:
    """Every container in `found` with each of its keys."""
    places: list[tuple[Any, Any]] = []
    waiting = [found]
    while waiting:
        one = waiting.pop()
        keys = list(one) if isinstance(one, dict) else list(range(len(one)))
        places += [(one, key) for key in keys]
        waiting += [one[key] for key in keys if isinstance(one[key], dict | list)]
    return places


def _change_a_number(graph: Any, random: Random) -> None:
    """Change a time, a rate, a capacity or another number; keep it 0 or more, if it was."""
    numbers = [(one, key) for one, key in _places(graph) if type(one[key]) is int]
    if numbers:
        within, key = random.choice(numbers)
        within[key] = max(0, within[key] + random.choice(_STEPS))


def _change(content: Any, random: Random) -> None:
    places = _places(content)
    within, key = random.choice(places)
    value = within[key]
    other, other_key = random.choice(places)
    match random.randrange(7):
        case 0 | 1 if type(value) is int:
            within[key] = value + random.choice(_STEPS)
        case 2:
            within[key] = json.loads(json.dumps(other[other_key]))
        case 3 if isinstance(within, list):
            place = random.randrange(len(within))
            within[key], within[place] = within[place], value
        case 4 if isinstance(within, list):
            within.insert(key, json.loads(json.dumps(value)))
        case 5:
            del within[key]
        case _:
            within[key] = random.choice(_ANYTHING)
