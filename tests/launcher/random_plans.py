"""Plans of random networks on random devices, as the text of their `plan.json`."""

from __future__ import annotations

from random import Random

from cnn.network import Layer, Network, Tensor
from cnn.rewrite.rewrites import Copies
from launcher.plan.files import plan_text
from partition.devices import Device
from partition.plan import Plan
from partition.planner import make_plan


def random_plan(draw: Random, most_layers: int = 6, most_devices: int = 3) -> tuple[Plan, Network]:
    """A plan, and the network that it computes: any assignment, sometimes dealt out to copies."""
    dealt = draw.choice(((1,), (1,), (1,), (1, 1), (2, 1)))
    tensors: dict[str, Tensor] = {}
    weights: dict[str, Tensor] = {}
    layers: list[Layer] = []
    inputs, outputs, assignment = list[str](), list[str](), dict[str, str]()
    devices = tuple(
        Device(
            f"n{i}",
            macs_per_s=draw.choice((1e9, 2e9, 1e10)),
            host=draw.choice((None, None, "pc")),
            wire_is_free=draw.random() < 0.3,
        )
        for i in range(max(len(dealt), draw.randint(1, most_devices)))
    )
    shape = _reads(draw, draw.randint(1, most_layers))
    for copy in range(len(dealt)):
        own = [device.name for i, device in enumerate(devices) if i % len(dealt) == copy]
        names = [f"c{copy}.t{i}" for i in range(len(shape) + 1)]
        for name, size in zip(
            names, [draw.choice((1, 8, 1000, 100_000)) for _ in names], strict=True
        ):
            tensors[name] = Tensor(name, (1, size), "float32")
        inputs.append(names[0])
        for i, (reads, heavy) in enumerate(shape):
            weight = f"w{draw.randrange(3)}" if draw.random() < 0.3 else f"w{copy}.{i}"
            weights.setdefault(weight, Tensor(weight, (draw.choice((1, 10**5, 10**7)),), "float32"))
            read = tuple(names[place] for place in reads)
            layers.append(Layer(f"c{copy}.l{i}", "Conv", read, (names[i + 1],), (weight,), heavy))
            assignment[f"c{copy}.l{i}"] = draw.choice(own)
        used = {place for reads, _ in shape for place in reads}
        outputs += [names[i] for i in range(1, len(names)) if i not in used or draw.random() < 0.1]
    network = Network("random", tuple(layers), tensors, weights, tuple(inputs), tuple(outputs))
    rewrites = () if dealt == (1,) else (Copies(dealt),)
    how = {"strategy": "random", "explanation": "", "rewrites": rewrites}
    slack = draw.choice((0, 1, 1, 2))
    return make_plan(network, "d" * 64, devices, assignment, slack_frames=slack, **how), network  # type: ignore[arg-type]


def _reads(draw: Random, count: int) -> list[tuple[list[int], int]]:
    """The layers that each layer of a copy reads (0: the input), and its multiply-accumulates."""
    return [
        (
            sorted(
                {
                    i if draw.random() < 0.7 else draw.randrange(i + 1)
                    for _ in range(draw.choice((1, 1, 2)))
                }
            ),
            draw.choice((0, 10**4, 10**6, 10**7, 10**8)),
        )
        for i in range(count)
    ]


def random_plan_text(seed: int) -> str:
    """The `plan.json` of a small random plan."""
    return plan_text(random_plan(Random(seed), most_layers=5)[0], "random.onnx")
