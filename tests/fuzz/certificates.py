"""Certificates of dataflow graphs, damaged, or held to another graph: none may prove what is false.

A certificate claims a few things and proves them by much, so damage to it is mostly damage to a
proof. What makes claims false is a change of the graph: a place less, a longer time. An input is a
certificate and a graph, of which either or both are changed in one place. Truth is what the
analyser finds of that graph. A changed certificate that still proves its claim may be accepted:
with firings in another order, or a start that is later where nothing waits.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache
from hashlib import sha256
from random import Random
from typing import Any

from csdf.analysis import Analysis, analyze
from csdf.certificates.certify import certify
from csdf.certificates.check import RefusedError, check
from csdf.errors import CsdfError
from csdf.formats import json_format
from csdf.model.graph import Graph
from csdf.timing.throughput import throughput
from tests.csdf.certified import deadlocks, one_less
from tests.csdf.graphs import inconsistent_graph, random_graph
from tests.fuzz.mutation import mutated

GRAPHS = 60
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
        content["graph"] = sha256(file).hexdigest()
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
