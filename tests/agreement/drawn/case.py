"""A network under comparison, a division of it, and the outcome of one comparison."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import cnn
from cnn.rewrite.rewrites import Copies, Rewrite, copy_name
from launcher.results.comparison.tolerance import Outputs
from tests.agreement.drawn.engine import Arrays, Graph


@dataclass(frozen=True)
class Case:
    """A network as it was read, its frames, and what its file computes from them."""

    model: cnn.Model
    frames: Sequence[Arrays]
    wanted: Sequence[Outputs]
    folder: Path
    load: Callable[[Path], Graph] = Graph


@dataclass(frozen=True)
class Division:
    """A rewritten model and a device for each of its layers."""

    rewrites: tuple[Rewrite, ...]
    model: cnn.Model
    assignment: Mapping[str, str]

    def __str__(self) -> str:
        return f"{len(set(self.assignment.values()))} devices, rewrites {list(self.rewrites)}"

    def copies(self, names: Sequence[str]) -> Iterator[dict[str, str]]:
        """The network's own tensors to what they are called: in each copy, if it was copied."""
        count = next((x.count for x in self.rewrites if isinstance(x, Copies)), 0)
        if not count:
            yield {name: name for name in names}
        for copy in range(1, count + 1):
            yield {name: copy_name(name, copy) for name in names}


@dataclass(frozen=True)
class Found:
    """Whether results agree and by which rule, or else why they do not."""

    agrees: bool
    rule: str
    words: str = ""
