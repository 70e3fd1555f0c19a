"""Measures certificates: `python -m benchmarks.csdf_certificates [FOLDER]`.

FOLDER holds graphs in SDF3 XML or JSON; without it, the reference graphs of the tests and random
graphs are taken. For each, the table has the firings of an iteration, the kilobytes of the
certificate, the seconds to analyse the graph, to certify it and to check the certificate (one run,
one process), and what the certificate claims.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

from benchmarks.csdf_suite import REFERENCE
from csdf.analysis import analyze
from csdf.certificates.certify import certify
from csdf.certificates.check import check
from csdf.errors import CsdfError
from csdf.formats import files, json_format
from csdf.model.generation import generate
from csdf.model.graph import Graph


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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("folder", nargs="?", type=Path, metavar="FOLDER")
    options = parser.parse_args()
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
