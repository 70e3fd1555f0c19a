"""Turns a plan into a chain of one part per board, each of which reads only from the one before.

csdf-edge runs any plan. `torch.distributed.pipelining` and a plain script of PUSH and PULL sockets
run chains, so the comparison uses a plan of a contiguous strategy, which usually is one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cnn.network import Tensor
from launcher.errors import BadInputError
from launcher.run.runtime import SubnetFiles
from partition.plan import Plan


@dataclass(frozen=True)
class Part:
    """What one board computes; tensors in the order in which they travel."""

    device: str
    graph: Path
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]

    def as_json(self) -> dict[str, Any]:
        """For programs that know nothing of plans."""
        named = {"inputs": self.inputs, "outputs": self.outputs}
        tensors = {k: [(t.name, t.dtype, t.shape) for t in some] for k, some in named.items()}
        return {"device": self.device, "graph": str(self.graph), **tensors}


@dataclass(frozen=True)
class Chain:
    """The parts in the order in which frames meet them."""

    parts: tuple[Part, ...]

    def write(self, path: Path) -> None:
        """Write a JSON list of the parts."""
        path.write_text(json.dumps([part.as_json() for part in self.parts], indent=1), "utf-8")


def chain_of(
    plan: Plan,
    subnets: Mapping[str, SubnetFiles],
    inputs: Sequence[str],
    outputs: Sequence[str],
) -> Chain:
    """The plan's phases as a chain from the network's inputs to its outputs.

    Raises `BadInputError` if a board has several phases, or a tensor skips one.
    """
    tensors = {channel.tensor.name: channel.tensor for channel in plan.channels}
    left = list(plan.phases)
    if len({phase.device for phase in left}) < len(left):
        raise BadInputError(
            f"{plan.strategy} gives a board several phases, which is no chain of stages: choose a "
            "contiguous strategy, such as --strategy sequential"
        )
    parts: list[Part] = []
    there = tuple(inputs)
    while left:
        found = [phase for phase in left if set(phase.inputs) == set(there)]
        if len(found) != 1:
            raise BadInputError(
                f"no board reads just {', '.join(there)}: a tensor skips a stage; choose another "
                "number of devices or another strategy"
            )
        phase = found[0]
        left.remove(phase)
        made = tuple(outputs) if not left else phase.outputs
        if set(made) != set(phase.outputs):
            raise BadInputError("a result of the network is made before the last stage")
        parts.append(
            Part(
                phase.device,
                subnets[phase.name].graph,
                tuple(tensors[name] for name in there),
                tuple(tensors[name] for name in made),
            )
        )
        there = made
    return Chain(tuple(parts))
