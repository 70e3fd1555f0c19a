"""Measures certificates: `python -m benchmarks.csdf_certificates [FOLDER]`.

FOLDER holds graphs in SDF3 XML or JSON; without it, the reference graphs of the tests and random
graphs are taken. For each, the table has the firings of an iteration, the kilobytes of the
certificate, the seconds to analyse the graph, to certify it and to check the certificate (one run,
one process), and what the certificate claims.

With `--plans`, the table has plans of networks over equal nodes (by the strategy `sequential`, and
with each layer on the next node, which makes the most phases): their phases, the kilobytes of
`plan.json` and of the certificate, the seconds to certify and to check (the median of five), and
how far period and fullest node are above the bounds (the period with cutting, firing and the wire,
the memory with activations and channels).
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Iterator
from itertools import pairwise, product
from pathlib import Path

import numpy as np

from benchmarks.csdf_suite import REFERENCE
from cnn.model import read
from csdf.analysis import analyze
from csdf.certificates.certify import certify
from csdf.certificates.check import check
from csdf.certificates.plans import certify_plan
from csdf.errors import CsdfError
from csdf.formats import files, json_format
from csdf.generation import generate
from csdf.model.graph import Graph
from ga.strategies import find_strategy
from launcher.plan.files import plan_text
from partition.devices import Device
from partition.planner import plan_solution
from partition.strategies.base import Problem, Solution


def graphs(folder: Path | None) -> Iterator[tuple[str, Graph]]:
    for path in sorted((folder or REFERENCE).iterdir()):
        if path.suffix in (".xml", ".json") and path.name != "reference.json":
            try:
                yield path.stem, files.read(path)
            except CsdfError as error:
                print(f"{path.stem:28} {error}")
    if folder is None:
        for actors, channels, firings in ((50, 75, 2800), (700, 3150, 5000)):
            yield f"{actors} actors", generate(actors, channels, firings)
        yield "50 actors, bounded", generate(50, 75, 2800, capacities="tight")


def plans(networks: list[str]) -> None:
    heads = ("phases", "plan kB", "kB", "certify", "check", "period", "memory")
    print("{:34} {:>7} {:>8} {:>7} {:>8} {:>7} {:>7} {:>7}".format("plan", *heads))
    for name in networks:
        model = read(f"onnx-wheel:{name}", input_shapes={}, seed=0)
        for count, strategy in product((4, 10), ("sequential", "in turn")):
            devices = tuple(Device(f"n{i}") for i in range(count))
            problem = Problem(model.network, devices, model=model)
            if strategy == "in turn":  # as many phases as can be
                numbers = np.arange(len(model.network.layers)) % count
                solution = Solution(problem.assignment(numbers), "each layer on the next node")
            else:
                solution = find_strategy(strategy).solve(problem)
            plan = plan_solution(problem, solution, strategy)
            file = plan_text(plan, name).encode()
            certify_s, check_s = list[float](), list[float]()
            for _ in range(5):
                began_s = time.perf_counter()
                certificate = json.dumps(certify_plan(file).content).encode()
                certified_s = time.perf_counter()
                claims = check(certificate, file)
                certify_s.append(certified_s - began_s)
                check_s.append(time.perf_counter() - certified_s)
            held = max(memory.total_bytes for memory in plan.memory.values())
            print(
                f"{f'{name}, {count} nodes, {strategy}':34} {len(plan.phases):7} "
                f"{len(file) / 1000:8.1f} {len(certificate) / 1000:7.1f} "
                f"{statistics.median(certify_s):8.3f} {statistics.median(check_s):7.3f} "
                f"{plan.period_s * 1e9 / claims['nanoseconds'] - 1:7.1%} "
                f"{held / claims['bytes'] - 1:7.1%}"
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("folder", nargs="?", type=Path, metavar="FOLDER")
    parser.add_argument("--plans", action="store_true", help="certify plans instead of graphs")
    parser.add_argument("--networks", default="resnet50,densenet121,squeezenet", metavar="A,B,…")
    options = parser.parse_args()
    if options.plans:
        plans(options.networks.split(","))
        return
    heads = ("firings", "kB", "analyse", "certify", "check")
    print("{:28} {:>8} {:>8} {:>8} {:>8} {:>8}  claims".format("graph", *heads))
    for name, graph in graphs(options.folder):
        seconds = [time.perf_counter()]
        found = analyze(graph)
        seconds.append(time.perf_counter())
        file = json_format.write(graph).encode()
        text = json.dumps(certify(graph, file).content).encode()
        seconds.append(time.perf_counter())
        claims = check(text, file)
        seconds.append(time.perf_counter())
        took = [later - before for before, later in pairwise(seconds)]
        said = ", ".join(
            f"{claim} {len(value) if isinstance(value, list) else value}"
            for claim, value in claims.items()
            if claim != "consistent" or not value
        )
        print(
            f"{name[:28]:28} {found.phase_firings or '-':>8} {len(text) / 1000:>8.1f} "
            f"{took[0]:>8.3f} {took[1]:>8.3f} {took[2]:>8.3f}  {said}"
        )


if __name__ == "__main__":
    main()
