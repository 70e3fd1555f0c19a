"""Strategies with the parameters that `cluster.yaml` has for them in its section `ga`."""

from __future__ import annotations

from ga.strategies import find_strategy
from launcher.config.genetic import GaConfig, PaperTuning, VerticalTuning
from partition.strategies.base import Strategy


def configured(ga: GaConfig, name: str) -> Strategy:
    """The strategy called `name`, tuned as `ga` says; raises `PartitionError` if there is none."""
    tuning: dict[str, VerticalTuning | PaperTuning | None] = {
        "vertical": ga.vertical,
        "vertical-paper": ga.vertical_paper,
        "auto": ga.vertical,
    }
    found = tuning.get(name)
    if found is None:
        return find_strategy(name)
    from ga.sweep.use import Tuned, tuned_auto  # noqa: PLC0415 - slow to import

    if name == "auto":
        return tuned_auto(found.given(), found.budget)
    return Tuned(name, found.given(), found.budget)
