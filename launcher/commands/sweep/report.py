"""The outcome of a sweep: a table of the best trials, what follows from them, and JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ga.fronts import hypervolume
from ga.sweep.spaces import AUTO_PARTS, Sections, as_yaml
from ga.sweep.study import Result, Trial, points
from ga.sweep.unseen import UnseenGain
from launcher.quantities import counted
from launcher.results.report_text import print_table
from launcher.results.tables import RowTable

_SHOWN = 10
"""Trials in the table, the best first."""


@dataclass(frozen=True)
class SweepOutcome:
    """A study after a sweep.

    `tuned` are the sections of cluster.yaml with the best trial's parameters; they are empty if no
    trial is better than the usual parameters. `unseen` compares them with the present sections, if
    they were to be saved, and `saved` is the file that they were written into. `page` has the plots
    and is None if no trial is finished.
    """

    result: Result
    strategy: str
    page: Path | None = None
    tuned: Sections = field(default_factory=dict)
    unseen: UnseenGain | None = None
    saved: Path | None = None
    asked_to_save: bool = False

    def as_json(self) -> dict[str, Any]:
        """Return JSON-like data; `best` is null if no trial is as good as the usual parameters."""
        result, unseen = self.result, self.unseen
        return {
            "study": result.study,
            "storage": result.storage,
            "trials": {
                "finished": result.count("complete"),
                "pruned": result.count("pruned"),
                "failed": result.count("fail"),
                "running": result.count("running"),
                "before": result.before,
            },
            "best": None if result.best is None else self._trial(result.best),
            "front": [self._trial(trial) for trial in result.front],
            "hypervolume": hypervolume([points(trial) for trial in result.finished])
            if result.front
            else None,
            "alike": result.alike,
            "gain": result.gain,
            "ga": {name: dict(own) for name, own in self.tuned.items()},
            "unseen": unseen
            and {
                "means": dict(zip(unseen.value_names, unseen.means, strict=True)),
                "standard_errors": dict(zip(unseen.value_names, unseen.errors, strict=True)),
                "searches": unseen.searches,
                "holds": unseen.holds,
            },
            "saved": None if self.saved is None else str(self.saved),
            "importance": dict(result.importance),
            "page": None if self.page is None else str(self.page),
            "interrupted": result.interrupted,
        }

    def _trial(self, trial: Trial) -> dict[str, Any]:
        return {
            "number": trial.number,
            "values": dict(zip(self.result.value_names, trial.values, strict=True)),
            "seconds": trial.seconds,
            "parameters": dict(trial.parameters),
            "settings": dict(trial.settings),
        }

    def print(self) -> None:
        """Print a table of the best trials, and what follows from them."""
        best = self.result.ranked[:_SHOWN]
        print_table(trials_table(self.result, best) if best else None, _lines(self))


def trials_table(result: Result, trials: Sequence[Trial]) -> RowTable:
    """Return a row for each of a study's finished trials."""
    names = list(trials[0].parameters)
    values = [f"{name} ÷ usual" for name in result.value_names]
    rows = [
        (
            str(trial.number),
            *(f"{value:.4f}" for value in trial.values),
            f"{trial.seconds:.1f}",
            *(_number(trial.parameters[name]) for name in names),
        )
        for trial in trials
    ]
    return RowTable(
        ("trial", *values, "seconds", *names), rows, title=f"best trials of {result.study}"
    )


def _lines(outcome: SweepOutcome) -> list[str]:
    result = outcome.result
    counts = (
        f"{counted(len(result.trials), 'trial')}, {result.before} of them from before: "
        f"{result.count('complete')} finished, {result.count('pruned')} pruned, "
        f"{result.count('fail')} failed"
    )
    running = result.count("running")
    lines = [counts + (f", {running} still running" if running else "")]
    if result.interrupted:
        lines.append("interrupted; finished trials are kept, and the same command continues")
    if result.alike:
        lines.append(
            f"all {len(result.finished)} finished trials are equal: the parameters make no "
            "difference for this network and these nodes, so there is nothing to tune"
        )
    elif result.finished:
        lines += _found(outcome)
    if result.front:
        area = hypervolume([points(trial) for trial in result.finished])
        front = counted(len(result.front), "trial")
        lines.append(f"{front} on the front; hypervolume {area:.4f}")
    if result.importance:
        parts = [f"{name} {part:.0%}" for name, part in result.importance.items()]
        finished = result.count("complete")
        lines.append(f"importance, from {finished} finished trials: {', '.join(parts)}")
    if outcome.page is not None:
        lines.append(f"plots: {outcome.page}; trials: {result.storage}")
    return lines


def _found(outcome: SweepOutcome) -> list[str]:
    """Say what is better than the usual parameters, whether that holds, and where it is written."""
    best = outcome.result.best
    if best is None or not outcome.tuned:
        nothing = "; nothing was written" if outcome.asked_to_save else ""
        return [f"nothing better than the usual parameters was found{nothing}"]
    lines = [
        f"trial {best.number} is {outcome.result.gain:.2%} better than the usual parameters on the "
        f"seeds of the study: {_named(best.settings)}"
    ]
    users = _users(outcome)
    if outcome.unseen is not None:
        compared = (
            f"{outcome.unseen.searches} other searches, at the budget of {users}: {outcome.unseen}"
        )
        if outcome.saved is None:
            return [*lines, f"{compared}; the gain does not hold, so nothing was written"]
        return [*lines, compared, f"written to the section ga of {outcome.saved}, for {users}"]
    return [
        *lines,
        f"these lines in cluster.yaml give {users} its parameters; --save checks first whether "
        "the gain holds on other seeds:",
        "",
        *as_yaml(outcome.tuned).splitlines(),
        "",
    ]


def _users(outcome: SweepOutcome) -> str:
    """Return the strategies that search with the tuned parameters."""
    own = list(outcome.tuned)
    names = [*own, *(["auto"] if any(name in AUTO_PARTS for name in own) else [])]
    return ("strategy " if len(names) == 1 else "strategies ") + " and ".join(names)


def _named(values: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {_number(value)}" for name, value in values.items())


def _number(value: float) -> str:
    return str(value) if isinstance(value, int) else f"{value:.3g}"
