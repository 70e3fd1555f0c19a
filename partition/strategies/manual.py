"""The manual strategy: the user pins every layer."""

from __future__ import annotations

from partition.errors import PartitionError
from partition.strategies.base import Problem, SearchProgress, Solution


class Manual:
    """The strategy `manual`: assigns every layer as it is pinned."""

    name = "manual"

    def solve(self, problem: Problem) -> Solution:
        """See `Strategy.solve`; raises `PartitionError` naming the first layers without a pin."""
        layers = [layer.name for layer in problem.network.layers]
        missing = [name for name in layers if name not in problem.pins]
        if missing:
            shown = ", ".join(repr(name) for name in missing[:3])
            more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
            raise PartitionError(
                f"strategy 'manual' needs a device for every layer, and {shown}{more} "
                f"{'has' if len(missing) == 1 else 'have'} none; pin every layer, or choose "
                "strategy 'vertical', which respects pins and assigns the rest"
            )
        problem.on_progress(SearchProgress(1, 1, "every layer is pinned"))
        return Solution({name: problem.pins[name] for name in layers}, "as pinned by the user")
