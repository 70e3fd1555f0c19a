"""Tunes a genetic algorithm, reports the best parameters, and can save them (`ga sweep`).

`--save` writes them into the section `ga` of the user's `cluster.yaml`. Everything else in the
file stays as it is, including comments and the parameters of other strategies.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml
from rich.console import Group
from rich.table import Table
from rich.text import Text

from ga.sweep.spaces import SPACES, as_yaml
from ga.sweep.study import Result, Sweep, run, shown, storage_url
from launcher.commands.options import SweepOptions
from launcher.commands.problems import cluster_problem, load_cluster_for
from launcher.errors import BadInputError
from launcher.files import write_whole
from launcher.progress import ProgressDisplay, open_progress
from launcher.results.report_text import open_console
from partition.errors import PartitionError

KEY = "ga"

STORAGE = "ga-sweep.db"
"""The default storage, beside `cluster.yaml`."""

PAGE = "sweep.html"

_SHOWN = 10
"""Trials in the table, the best first."""


def with_tuning(text: str, strategy: str, parameters: Mapping[str, float]) -> str:
    """Return the text of a cluster.yaml with these parameters of a strategy.

    Raises `ValueError` if they cannot be inserted without changing other keys.
    """
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    if not isinstance(root, yaml.MappingNode) or root.flow_style:
        raise ValueError("it is not written as a block of keys and values")
    data = yaml.safe_load(text)
    section = as_yaml({**(data.get(KEY) or {}), strategy: parameters})
    lines = text.splitlines(keepends=True)
    for key, value in root.value:
        if key.value == KEY:
            first, last = key.start_mark.line, max(key.start_mark.line, _last_line(value))
            found = "".join([*lines[:first], section, *lines[last + 1 :]])
            break
    else:
        separator = "" if not text or text.endswith("\n") else "\n"
        found = f"{text}{separator}\n# found by ga sweep\n{section}"
    if yaml.safe_load(found) != {**data, KEY: {**(data.get(KEY) or {}), strategy: parameters}}:
        raise ValueError("its section cannot be replaced without changing other keys")
    return found


def save(path: Path, strategy: str, parameters: Mapping[str, float]) -> None:
    """Write the parameters into the file; raises `BadInputError` and leaves it unchanged if not."""
    advice = "copy these lines into it instead:\n" + as_yaml({strategy: dict(parameters)})
    try:
        text = path.read_text("utf-8-sig")
        write_whole(path, with_tuning(text, strategy, parameters), durable=True)
    except OSError as error:
        raise BadInputError(f"--save: {path}: {error.strerror}; {advice}") from None
    except ValueError as error:
        raise BadInputError(f"--save: {path}: {error}; {advice}") from None


def _last_line(node: Any) -> int:
    """Return the last line of a YAML node, whose end mark may be where the next key begins."""
    if isinstance(node, yaml.MappingNode) and not node.flow_style and node.value:
        return max(_last_line(part) for pair in node.value for part in pair)
    if isinstance(node, yaml.SequenceNode) and not node.flow_style and node.value:
        return max(map(_last_line, node.value))
    line: int = node.end_mark.line
    return line


@dataclass(frozen=True)
class SweepOutcome:
    """A study after a sweep; `page` has the plots and is None if no trial is finished."""

    result: Result
    page: Path | None
    strategy: str
    budget: float
    saved: Path | None = None

    @property
    def tuned(self) -> dict[str, dict[str, float]]:
        """The section `ga` of cluster.yaml with the best trial's parameters; {} without a trial."""
        if not self.result.ranked:
            return {}
        best = self.result.ranked[0].parameters
        return {self.strategy: {**best, "budget": self.budget}}

    def as_json(self) -> dict[str, Any]:
        """Return JSON-like data; `best` is null if no trial is finished."""
        result = self.result
        best = result.ranked[0] if result.ranked else None
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
            "best": best
            and {
                "number": best.number,
                "value": best.value,
                "seconds": best.seconds,
                "parameters": dict(best.parameters),
                "settings": dict(best.settings),
            },
            "ga": self.tuned,
            "saved": None if self.saved is None else str(self.saved),
            "usual_value": result.usual,
            "gain": result.gain,
            "importance": dict(result.importance),
            "page": None if self.page is None else str(self.page),
            "interrupted": result.interrupted,
        }

    def print(self) -> None:
        """Print a table of the best trials, and what follows from them."""
        parts = [_table(self.result)] if self.result.ranked else []
        open_console().print(Group(*parts, *map(Text, _lines(self))))


def perform(options: SweepOptions) -> SweepOutcome:
    """Run the trials and write the results; raises `BadInputError`."""
    _check_output(options.output)
    url = storage_url(options.storage or str(options.cluster.parent / STORAGE))
    try:
        name = shown(url)
    except PartitionError as error:
        raise BadInputError(str(error)) from error
    with open_progress() as progress:
        cluster = load_cluster_for(options.model, options.cluster)
        seed = cluster.config.seed
        model, problem = cluster_problem(cluster, options.objective, seed, progress)
        study = options.study or f"{model.network.name}, {options.strategy}, {options.objective}"
        progress.say(f"study {study!r} in {name}")
        space = SPACES[options.strategy]
        sweep = Sweep(space, problem, model.digest, url, study, options.repeats, options.budget)
        try:
            result = run(sweep, options.trials, options.seed, _show(progress, options.trials))
        except PartitionError as error:
            raise BadInputError(str(error)) from error
    outcome = SweepOutcome(result, None, options.strategy, options.budget)
    if result.ranked:
        from launcher.commands.pages import write_sweep  # noqa: PLC0415 - slow to import

        write_sweep(result, options.output / PAGE)
        outcome = replace(outcome, page=options.output / PAGE)
        if options.save:
            save(options.cluster, options.strategy, outcome.tuned[options.strategy])
            outcome = replace(outcome, saved=options.cluster)
    return outcome


def _show(progress: ProgressDisplay, trials: int) -> Any:
    def show(done: int, part: float, best: float | None) -> None:
        note = "" if best is None else f"best {best:.6g}"
        if part:
            note = f"{note}{', ' if note else ''}next {part:.0%}"
        progress.update("tuning", done, trials, note)

    return show


def _check_output(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInputError(f"--output {str(folder)!r}: {error.strerror}; name a folder") from None


def _table(result: Result) -> Table:
    table = Table(title=f"best trials of {result.study}")
    table.add_column("trial", justify="right")
    names = list(result.ranked[0].parameters)
    for column in (result.value_name, "seconds", *names):
        table.add_column(column, justify="right")
    for trial in result.ranked[:_SHOWN]:
        table.add_row(
            str(trial.number),
            f"{trial.value:.6g}",
            f"{trial.seconds:.1f}",
            *(_number(trial.parameters[name]) for name in names),
        )
    return table


def _lines(outcome: SweepOutcome) -> list[str]:
    result = outcome.result
    counts = (
        f"{len(result.trials)} trials, {result.before} of them from before: "
        f"{result.count('complete')} finished, {result.count('pruned')} given up, "
        f"{result.count('fail')} failed"
    )
    running = result.count("running")
    lines = [counts + (f", {running} still running" if running else "")]
    if result.interrupted:
        lines.append("interrupted; finished trials are kept, and the same command continues")
    if result.ranked:
        lines.append("best: " + _named(result.ranked[0].settings))
    if result.gain is not None:
        lines.append(
            f"{result.gain:.2%} better than the usual parameters ({result.value_name} "
            f"{result.usual:.6g})"
            if result.gain > 0
            else "nothing better than the usual parameters was found"
        )
    if result.importance:
        parts = [f"{name} {part:.0%}" for name, part in result.importance.items()]
        finished = result.count("complete")
        lines.append(f"importance, from {finished} finished trials: {', '.join(parts)}")
    if result.ranked and outcome.saved is None and (result.gain is None or result.gain > 0):
        lines.append(
            f"these lines in cluster.yaml give {_users(outcome)} the best trial's parameters:"
        )
        lines += ["", *as_yaml(outcome.tuned).splitlines(), ""]
    elif outcome.saved is not None:
        lines.append(f"written to the section ga of {outcome.saved}, for {_users(outcome)}")
    if outcome.page is not None:
        lines.append(f"plots: {outcome.page}; trials: {result.storage}")
    return lines


def _users(outcome: SweepOutcome) -> str:
    users = ("vertical", "auto") if outcome.strategy == "vertical" else (outcome.strategy,)
    return " and ".join(f"strategy {name}" for name in users)


def _named(values: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {_number(value)}" for name, value in values.items())


def _number(value: float) -> str:
    return str(value) if isinstance(value, int) else f"{value:.3g}"
