"""Runs the trials of a sweep on the workers of a Dask cluster (`ga sweep --dask ADDRESS`).

Each trial is a task. A worker reads `cluster.yaml` and the model itself, once, and adds the trial
to the study, whose database all workers reach; the tasks carry only the command's options, as JSON.
If a worker is lost, Dask gives its tasks to another one, and repeats tasks whose results were lost,
so a study may get more trials than were asked for. The trial that the lost worker left unfinished
is found by its missing heartbeat (`ga.sweep.storage`).

Ctrl-C cancels the tasks that no worker has begun. Dask cannot stop the others, which finish their
trials.
"""

from __future__ import annotations

import json
from concurrent.futures import CancelledError
from dataclasses import asdict, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from ga.sweep.study import OnTrial, Result, Sweep, run
from launcher.commands.options import SweepOptions
from launcher.commands.sweep.reading import read_sweep
from launcher.errors import BadInputError, LauncherError
from launcher.progress import open_progress

CONNECT_S = 10
"""Seconds to wait for the scheduler."""


def run_on_workers(options: SweepOptions, address: str, sweep: Sweep, on_trial: OnTrial) -> Result:
    """Add the trials of `options` to the study on a cluster's workers; return its state then.

    Raises `BadInputError` if the cluster cannot be used, and `PartitionError` as
    `ga.sweep.study.run` does.
    """
    where = f"--dask {address}"
    try:
        import distributed  # noqa: PLC0415 - optional
    except ImportError as error:
        raise BadInputError(
            f"--dask: {error.name or 'distributed'} is not installed; "
            "pip install 'csdf-edge[dask]' here and on every worker"
        ) from None
    try:
        scheme, _ = distributed.comm.addressing.parse_address(address)
        distributed.comm.registry.get_backend(scheme)  # before a client begins to run
        client = distributed.Client(address, timeout=CONNECT_S, set_as_default=False)
    except (OSError, ValueError) as error:
        raise BadInputError(
            f"{where}: no scheduler answers there ({error}); write its address, as in "
            "tcp://10.0.0.5:8786"
        ) from None
    with client:
        if not client.scheduler_info()["workers"]:
            raise BadInputError(f"{where}: the scheduler has no workers; start `dask worker` first")
        before = len(run(sweep, 0, options.seed, on_trial).trials)
        text = _as_text(options, sweep)
        tasks = [
            client.submit(add_trial, text, _seed(options, number), pure=False)
            for number in range(options.trials)
        ]
        interrupted = False
        best: float | None = None
        try:
            finished = distributed.as_completed(tasks, loop=client.loop)
            for done, task in enumerate(finished, start=1):
                found = task.result()
                task.release()  # or Dask would repeat it after the loss of its worker
                best = found if best is None or (found is not None and found < best) else best
                on_trial(done, 0.0, best)
        except KeyboardInterrupt:
            interrupted = True
        except distributed.KilledWorker as error:
            raise BadInputError(f"{where}: {error}") from None
        except (CancelledError, OSError) as error:
            raise BadInputError(
                f"{where}: the connection to the scheduler was lost ({error}); finished trials are "
                "kept, and the same command continues"
            ) from None
        except ImportError as error:
            raise BadInputError(
                f"{where}: a worker cannot import {error.name} ({error}); install csdf-edge[dask] "
                "of this version on every worker"
            ) from None
        except LauncherError as error:
            raise BadInputError(f"{where}, on a worker: {error}") from None
        finally:
            client.cancel(tasks)
    result = run(sweep, 0, options.seed, on_trial)
    return replace(result, before=before, interrupted=interrupted)


def add_trial(options: str, seed: int | None) -> float | None:
    """Add a trial, on a worker; return the least cost of the study's finished trials."""
    result = run(_sweep(options), 1, seed, lambda _done, _part, _best: None)
    return min((trial.cost for trial in result.finished), default=None)


@lru_cache(maxsize=1)
def _sweep(options: str) -> Sweep:
    with open_progress() as progress:
        return read_sweep(_as_options(options), progress)


def _seed(options: SweepOptions, number: int) -> int | None:
    return None if options.seed is None else options.seed + number


def _as_text(options: SweepOptions, sweep: Sweep) -> str:
    """Return options as JSON, with paths that do not depend on the current folder."""
    models = [
        str(Path(each).absolute()) if Path(each).exists() else each for each in options.model or []
    ]
    whole = replace(
        options,
        cluster=options.cluster.absolute(),
        model=models or None,
        storage=sweep.url,
        study=sweep.study,
    )
    return json.dumps(asdict(whole), default=str, sort_keys=True)


def _as_options(text: str) -> SweepOptions:
    given: dict[str, Any] = json.loads(text)
    given.update({name: Path(given[name]) for name in ("cluster", "output")})
    return SweepOptions(**given)
