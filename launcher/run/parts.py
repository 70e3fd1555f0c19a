"""Names the networks of a run, which are parts of the network that is run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cnn.merge import part_name
from nodes.protocol.payload import Array

if TYPE_CHECKING:
    from cnn.model import Model
    from cnn.network import Tensor


@dataclass(frozen=True)
class Part:
    """One of the networks of a run; if it `is_alone`, its tensors keep their names."""

    model: Model
    is_alone: bool

    @property
    def name(self) -> str:
        """The name that the user gave it."""
        return self.model.network.name

    @property
    def inputs(self) -> dict[str, Tensor]:
        """The network's inputs, by their names in it."""
        network = self.model.network
        return {name: network.tensors[name] for name in network.inputs}

    def common(self, name: str) -> str:
        """Return the name that a tensor of this network has in the network that is run."""
        return name if self.is_alone else part_name(self.name, name)

    def own(self, tensors: Mapping[str, Array], names: Sequence[str]) -> dict[str, Array]:
        """Return the run's tensors that are called `names` in this network, by these names."""
        return {name: tensors[self.common(name)] for name in names}


def parts_of(model: Model) -> tuple[Part, ...]:
    """Return the networks that `model` was merged from, or the only one."""
    if not model.parts:
        return (Part(model, True),)
    return tuple(Part(part, False) for part in model.parts)
