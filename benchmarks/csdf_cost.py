"""What converting, scheduling and proving costs as networks grow: `python -m benchmarks.csdf_cost`.

Dense blocks as in DenseNet (every layer reads up to eight before it), spread at random over ten
devices. Times in milliseconds, best of three, one thread.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import TypeVar

from cnn.network import Layer, Network, Tensor
from csdf.from_network import Converter
from csdf.proof import prove
from csdf.skew import schedule
from csdf.throughput import throughput

T = TypeVar("T")


def dense_network(layers: int, rng: random.Random) -> Network:
    names = ["x", *(f"l{i}" for i in range(layers))]
    made = []
    for i in range(1, layers + 1):
        before = names[max(0, i - 8) : i]
        read = {names[i - 1], *rng.sample(before, rng.choice((0, 0, 1, 2)) % (len(before) + 1))}
        made.append(Layer(names[i], "Conv", tuple(sorted(read)), (names[i],)))
    tensors = {name: Tensor(name, (1, rng.randint(1, 512), 28, 28), "float32") for name in names}
    return Network("dense", tuple(made), tensors, {}, ("x",), (names[-1],))


def timed(work: Callable[[], T]) -> tuple[float, T]:
    best, result = float("inf"), None
    for _ in range(3):
        start = time.perf_counter()
        result = work()
        best = min(best, time.perf_counter() - start)
    assert result is not None
    return best * 1000, result


def main() -> None:
    print(f"{'layers':>7} {'phases':>7} {'convert':>9} {'skews':>9} {'proof':>9} {'period':>9}")
    for layers in (125, 250, 500, 1000, 2000):
        rng = random.Random(1)
        network = dense_network(layers, rng)
        partition = {layer.name: f"dev{rng.randrange(10)}" for layer in network.layers}
        converter = Converter(network)
        convert_ms, dataflow = timed(lambda c=converter, p=partition: c(p))
        skew_ms, pipeline = timed(lambda d=dataflow: schedule(d))
        proof_ms, _ = timed(lambda d=dataflow, p=pipeline: prove(d, p))
        graph = dataflow.phase_graph(capacity_frames=pipeline.capacity_frames)
        period_ms, _ = timed(lambda g=graph: throughput(g))
        print(
            f"{layers:>7} {len(dataflow.phases):>7} {convert_ms:>9.1f} {skew_ms:>9.1f} "
            f"{proof_ms:>9.1f} {period_ms:>9.1f}"
        )


if __name__ == "__main__":
    main()
