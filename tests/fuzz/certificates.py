"""Certificates of dataflow graphs, damaged in one place: none may be accepted for what is not so.

Truth is what the analyser found of the graph itself. A damaged certificate that still proves its
claim may be accepted: a schedule in another order, a start that is later where nothing waits.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from random import Random
from typing import Any

from csdf.analysis import analyze
from csdf.certificates.certify import certify
from csdf.certificates.check import RefusedError, check
from csdf.formats import json_format
from csdf.model.graph import Graph
from csdf.timing.throughput import throughput
from tests.csdf.certified import deadlocks, one_less
from tests.csdf.graphs import inconsistent_graph, random_graph
from tests.fuzz.mutation import mutated

GRAPHS = 40
_ANYTHING: tuple[Any, ...] = (None, True, -1, 0, 1, 2**64, 1.5, "", "tokens", "space", "order", [])


class CertificateReader:
    """Certificates of some random graphs (`seeds`), and the checker for damaged ones."""

    def __init__(self) -> None:
        self.seeds: tuple[bytes, ...] = ()
        self._graphs: dict[str, tuple[Graph, bytes]] = {}
        for seed in range(GRAPHS):
            make = inconsistent_graph if seed % 8 == 0 else random_graph
            graph = make(Random(seed), bounded=seed % 2 == 1)
            file = json_format.write(graph).encode()
            content = certify(graph, file).content
            self.seeds += (json.dumps(content).encode(),)
            self._graphs[content["graph"]] = graph, file

    def read(self, data: bytes) -> bool:
        """Return whether it is accepted; raise if what it then proves is not true."""
        about = next((own for digest, own in self._graphs.items() if digest.encode() in data), None)
        graph, file = about or next(iter(self._graphs.values()))
        try:
            claims = check(data, file)
        except RefusedError:
            return False
        assert about is not None, "a certificate of another graph was accepted"
        holds(graph, claims)
        return True


def holds(graph: Graph, claims: dict[str, Any]) -> None:
    """Fail if one of the claims is not true of the graph."""
    truth = analyze(graph)
    assert claims["consistent"] == (truth.inconsistency is None)
    assert claims.get("live", False) == bool(truth.live)
    if "period" in claims:
        assert claims["period"] == truth.period
    for name in claims.get("capacities", ()):
        less = one_less(graph, name)
        assert deadlocks(less) or throughput(less).period > throughput(graph).period


def damaged(seeds: Sequence[bytes], random: Random) -> bytes:
    """One of the seeds with one value changed, moved, added or left out; some as any bytes."""
    if random.random() < 0.1:
        return mutated(seeds, random)
    found = json.loads(random.choice(seeds))
    places: list[tuple[Any, Any]] = []
    waiting = [found]
    while waiting:
        one = waiting.pop()
        keys = list(one) if isinstance(one, dict) else range(len(one))
        places += [(one, key) for key in keys]
        waiting += [one[key] for key in keys if isinstance(one[key], dict | list)]
    within, key = random.choice(places)
    value = within[key]
    other, other_key = random.choice(places)
    match random.randrange(6):
        case 0 if isinstance(value, int):
            within[key] = value + random.choice((-2, -1, 1, 2, 10, 10**6))
        case 1:
            within[key] = json.loads(json.dumps(other[other_key]))
        case 2 if isinstance(within, list):
            other_place = random.randrange(len(within))
            within[key], within[other_place] = within[other_place], value
        case 3 if isinstance(within, list):
            within.insert(key, json.loads(json.dumps(value)))
        case 4:
            del within[key]
        case _:
            within[key] = random.choice(_ANYTHING)
    return json.dumps(found).encode()
