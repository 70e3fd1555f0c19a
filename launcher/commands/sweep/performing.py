"""Runs the trials of `ga sweep`, and checks a gain on other seeds before it is saved."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from ga.sweep.spaces import Sections
from ga.sweep.storage import shown
from ga.sweep.study import OnTrial, Result, Sweep, run
from ga.sweep.unseen import compare
from launcher.commands.options import SweepOptions
from launcher.commands.sweep.reading import read_sweep
from launcher.commands.sweep.report import SweepOutcome
from launcher.commands.sweep.saving import save
from launcher.config.load import Cluster, load_cluster
from launcher.errors import BadInputError
from launcher.progress import ProgressDisplay, open_progress
from partition.errors import PartitionError

PAGE = "sweep.html"


def perform(options: SweepOptions) -> SweepOutcome:
    """Run the trials and write the results; raises `BadInputError`."""
    # Matplotlib, which is missing without the extra `plots`, is imported before hours are spent.
    from launcher.commands.sweep.page import write_sweep  # noqa: PLC0415

    with open_progress() as progress:
        cluster = load_cluster(options.cluster)
        try:
            sweep = read_sweep(options, progress)
            with _output_folder(options.output):
                progress.say(f"study {sweep.study!r} in {shown(sweep.url)}")
                result = _results(options, sweep, _show(progress, options.trials))
                outcome = _outcome(options, sweep, result, cluster, progress)
                if not outcome.result.finished:
                    return outcome
                page = options.output / PAGE
                write_sweep(outcome.result, page)
                return replace(outcome, page=page)
        except PartitionError as error:
            raise BadInputError(str(error)) from error


def _results(options: SweepOptions, sweep: Sweep, on_trial: OnTrial) -> Result:
    if options.dask is None:
        return run(sweep, options.trials, options.seed, on_trial)
    from launcher.commands.sweep.on_dask import run_on_workers  # noqa: PLC0415 - slow to import

    return run_on_workers(options, options.dask, sweep, on_trial)


def _outcome(
    options: SweepOptions,
    sweep: Sweep,
    result: Result,
    cluster: Cluster,
    progress: ProgressDisplay,
) -> SweepOutcome:
    """Return the outcome; save the best trial's parameters if that is asked and their gain holds.

    Raises `BadInputError` if they cannot be written.
    """
    outcome = SweepOutcome(result, options.strategy, asked_to_save=options.save)
    best = result.best
    if best is None or result.gain <= 0 or result.alike:
        return outcome
    present = cluster.config.ga.sections()
    tuned = _with_budgets(sweep.space.sections(best.parameters), present)
    outcome = replace(outcome, tuned=tuned)
    if not options.save or result.interrupted:
        return outcome

    def on_search(done: int, total: int) -> None:
        progress.update("searching with other seeds", done, total)

    compared = compare(sweep, present, {**present, **tuned}, len(result.trials), on_search)
    outcome = replace(outcome, unseen=compared)
    if not compared.holds:
        return outcome
    save(options.cluster, tuned)
    return replace(outcome, saved=options.cluster)


def _with_budgets(tuned: Sections, present: Sections) -> Sections:
    """Return the tuned sections with the budgets that the user has given, and no others."""
    return {
        name: {
            **own,
            **{key: value for key, value in present.get(name, {}).items() if key == "budget"},
        }
        for name, own in tuned.items()
    }


def _show(progress: ProgressDisplay, trials: int) -> OnTrial:
    def show(done: int, part: float, best: float | None) -> None:
        note = "" if best is None else f"best {best:.4f} of the usual cost"
        if part:
            note = f"{note}{', ' if note else ''}next {part:.0%}"
        progress.update("tuning", done, trials, note)

    return show


@contextmanager
def _output_folder(folder: Path) -> Iterator[None]:
    """Make a folder before the trials, and remove it if nothing was written there."""
    try:
        missing = [each for each in (folder, *folder.parents) if not each.exists()]
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInputError(f"--output {str(folder)!r}: {error.strerror}; name a folder") from None
    try:
        yield
    finally:
        for each in missing:
            with contextlib.suppress(OSError):  # it is not empty
                each.rmdir()
