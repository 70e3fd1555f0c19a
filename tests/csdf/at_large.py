"""Holds analyses to each other and to plain executions: `python -m tests.csdf.at_large --help`.

What the tests ask of some hundred random graphs, of as many as wanted: `--only` one of the analyses
below, or all of them. Ends at the first disagreement, with the seed of its graph.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections import Counter

from csdf.certificates.certify import certify
from csdf.certificates.check import check
from csdf.errors import OvertakingError, TooLargeError
from csdf.execution.liveness import check_liveness, remedies_together
from csdf.formats import json_format
from csdf.model.graph import Graph
from csdf.timing import schedule
from csdf.timing.expansion import homogeneous
from csdf.timing.throughput import actor_periods, throughput
from tests.csdf.graphs import connected_parts, random_graph
from tests.csdf.test_best_binding import is_best
from tests.csdf.test_best_orders import are_best
from tests.csdf.test_critical import bounds
from tests.csdf.test_initial_phases import as_executed
from tests.csdf.test_k_periodic import is_fastest
from tests.csdf.test_latency_front import is_the_front, sizable
from tests.csdf.test_live_actors import fire_for_ever, pile_up
from tests.csdf.test_liveness import applied, is_live, smaller_than, together
from tests.csdf.test_max_plus import follows_executions
from tests.csdf.test_plain_executions import agreeing
from tests.csdf.test_scenarios import is_worst, random_scenarios
from tests.csdf.test_shared_memory import is_smallest
from tests.csdf.test_tdma import none_is_later
from tests.fuzz.certificates import holds


def remedies(found: Graph, seen: Counter[str]) -> None:
    deadlock = check_liveness(found)
    assert deadlock is not None
    for remedy in deadlock.remedies:
        seen["remedies"] += 1
        assert is_live(applied(found, remedy))
        assert not any(is_live(applied(found, one)) for one in smaller_than(found, remedy))
    changes = remedies_together(found)
    assert is_live(together(found, changes))


def periods(found: Graph, seen: Counter[str]) -> None:
    period, own = throughput(found).period, actor_periods(found)
    assert max(own.values()) == period
    parts = [actor_periods(part) for part in connected_parts(found)]
    assert own == {name: one for part in parts for name, one in part.items()}
    for effort in (0, 3, 10, 30):
        least, most = bounds(found, effort)
        assert most is not None
        assert least <= period <= most
    try:
        expanded = homogeneous(found)
    except (OvertakingError, TooLargeError):
        return
    seen["homogeneous"] += 1
    assert throughput(expanded).period == period


def certificates(found: Graph, seen: Counter[str]) -> None:
    file = json_format.write(found).encode()
    claims = check(json.dumps(certify(found, file).content).encode(), file)
    holds(found, file, claims)
    seen.update(f"certified: {claim}" for claim in claims)


def liveness(found: Graph, seen: Counter[str]) -> bool:
    live = is_live(found)
    seen["live" if live else "dead"] += 1
    assert (check_liveness(found) is None) == live
    return live


def basics(found: Graph, seen: Counter[str], _: random.Random) -> None:
    """Remedies of deadlocks, periods and their bounds, homogeneous graphs."""
    (periods if liveness(found, seen) else remedies)(found, seen)


def certified(found: Graph, seen: Counter[str], _: random.Random) -> None:
    """Certificates."""
    certificates(found, seen)


def executed(_: Graph, seen: Counter[str], draw: random.Random) -> None:
    """Everything about a graph, by plain executions; and graphs with initial phases."""
    seen.update(f"executed: {kind}" for kind in agreeing(draw.randrange(1 << 32)))
    seen[f"with initial phases: {as_executed(draw.randrange(1 << 32))}"] += 1


def max_plus(found: Graph, seen: Counter[str], draw: random.Random) -> None:
    """Max-plus matrices."""
    seen["matrices"] += follows_executions(found, draw)


def k_periodic(found: Graph, seen: Counter[str], draw: random.Random) -> None:
    """K-periodic schedules."""
    seen["K-periodic schedules"] += is_fastest(found, draw)


def scenarios(_: Graph, seen: Counter[str], draw: random.Random) -> None:
    """Scenarios."""
    seen["scenarios"] += is_worst(random_scenarios(draw))


def latency_fronts(_: Graph, seen: Counter[str], draw: random.Random) -> None:
    """Smallest capacities for latencies."""
    seen["latency fronts"] += is_the_front(sizable(draw), draw)


def live(found: Graph, seen: Counter[str], _: random.Random) -> None:
    """Actors that fire for ever, and channels in which tokens pile up."""
    seen["actors that fire for ever"] += fire_for_ever(found)
    if is_live(found):
        seen["channels that grow"] += pile_up(found)


def orders(found: Graph, seen: Counter[str], draw: random.Random) -> None:
    """The best static orders."""
    seen["best orders"] += are_best(found, draw)


def bindings(found: Graph, seen: Counter[str], draw: random.Random) -> None:
    """The best binding to processors."""
    seen["best bindings"] += is_best(found, draw)


def memory(found: Graph, seen: Counter[str], draw: random.Random) -> None:
    """Buffers that share memory."""
    seen["shared memory"] += is_smallest(found, draw)


def tdma(found: Graph, seen: Counter[str], draw: random.Random) -> None:
    """Slices of a time wheel."""
    seen["slices"] += none_is_later(found, draw)


ANALYSES = {
    one.__name__: one
    for one in (
        basics,
        certified,
        executed,
        max_plus,
        k_periodic,
        scenarios,
        latency_fronts,
        live,
        orders,
        bindings,
        memory,
        tdma,
    )
}


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.csdf.at_large", description=(__doc__ or "").split(":")[0]
    )
    parser.add_argument("--graphs", type=int, default=100_000, help="number (default: 10^5)")
    parser.add_argument("--seed", type=int, default=0, help="of the first graph (default: 0)")
    parser.add_argument("--only", choices=ANALYSES, help="analysis (default: all)")
    options = parser.parse_args()
    chosen = list(ANALYSES.values()) if options.only is None else [ANALYSES[options.only]]
    schedule.FIRING_LIMIT = 10_000  # most executions that recur do so sooner
    seen: Counter[str] = Counter()
    for seed in range(options.seed, options.seed + options.graphs):
        found = random_graph(random.Random(seed), bounded=seed % 2 == 0)
        try:
            for one in chosen:
                one(found, seen, random.Random(seed))
        except Exception:
            sys.stderr.write(f"seed {seed}\n")
            raise
    sys.stdout.write("".join(f"{kind}: {count}\n" for kind, count in sorted(seen.items())))
    return 0


if __name__ == "__main__":
    sys.exit(main())
