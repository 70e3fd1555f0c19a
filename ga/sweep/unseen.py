"""Checks whether a gain holds on seeds that the search for parameters has not seen.

The best of many trials is partly the luckiest one, so its gain in the study is biased. Here the
strategy is compared on other seeds, with the parameters and the budget with which it will be used.
The gain holds if the mean of the ratios is below 1 by more than twice its standard error; of two
objectives, for one of them, while the other's mean is not above 1.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ga.sweep.spaces import Sections, tuned
from ga.sweep.study import Sweep
from partition.errors import PartitionError

SEEDS = 5
"""The number of seeds. With this many, chance alone passes about once in twenty comparisons."""

_CERTAIN = 2.0
_CLOSE = 1e-9


@dataclass(frozen=True)
class UnseenGain:
    """The cost of new parameters relative to the present ones: means, and standard errors, of each
    objective over `searches` searches.
    """

    value_names: tuple[str, ...]
    means: tuple[float, ...]
    errors: tuple[float, ...]
    searches: int

    @property
    def holds(self) -> bool:
        """Whether the gain is more than chance; see the module's docstring."""
        surely = [
            mean + _CERTAIN * error < 1 for mean, error in zip(self.means, self.errors, strict=True)
        ]
        return any(surely) and all(mean <= 1 + _CLOSE for mean in self.means)

    def __str__(self) -> str:
        """Say each objective's mean and its standard error."""
        return " and ".join(
            f"{name} {mean - 1:+.2%} ± {error:.2%}"
            for name, mean, error in zip(self.value_names, self.means, self.errors, strict=True)
        )


def compare(
    sweep: Sweep,
    present: Sections,
    new: Sections,
    trials: int,
    on_search: Callable[[int, int], None],
) -> UnseenGain:
    """Search with the `present` and the `new` sections of `cluster.yaml` on unseen seeds.

    `trials` is the number of trials of the study: seeds of one comparison are not used again after
    more trials. `on_search` gets the searches done and their number. Raises `PartitionError` if
    one of the two finds nothing that fits.
    """
    name = sweep.space.name
    searches = sweep.searches(sweep.repeats + SEEDS * trials, SEEDS)
    values = []
    for done, problem in enumerate(searches):
        on_search(2 * done, 2 * len(searches))
        usual = sweep.figures(problem, tuned(name, present))
        on_search(2 * done + 1, 2 * len(searches))
        try:
            found = sweep.figures(problem, tuned(name, new))
        except PartitionError as error:
            raise PartitionError(
                f"with the new parameters and seed {problem.seed}: {error}"
            ) from error
        values.append(sweep.values(problem, found, usual))
    on_search(2 * len(searches), 2 * len(searches))
    ratios = np.array(values)
    errors = ratios.std(axis=0, ddof=1) / np.sqrt(len(ratios))
    means = ratios.mean(axis=0)
    return UnseenGain(sweep.value_names, tuple(means.tolist()), tuple(errors.tolist()), len(ratios))
