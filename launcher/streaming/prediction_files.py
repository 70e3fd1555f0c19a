"""Writes what a task finds into the folder of `--output`: a line per frame, and pictures.

They are the sinks `json-lines` and `images`, which the user need not write into `cluster.yaml`.
"""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path

from cnn.model import Model
from launcher.config.ends.sink import SinkConfig
from launcher.config.kinds import imported
from launcher.config.load import Cluster
from launcher.errors import BadInputError
from launcher.files import cannot_write, whole_file
from launcher.results.journal.ranges import FrameRanges
from launcher.run.request import Request
from launcher.sinks.images import ImagesConfig
from launcher.sinks.json_lines import JsonLinesConfig
from launcher.tasks.metadata import model_facts

PREDICTIONS = "predictions.jsonl"

PICTURES = "pictures"


def prediction_sinks(request: Request, cluster: Cluster, model: Model) -> tuple[SinkConfig, ...]:
    """Return the sinks that `--output` and `--annotate` add; none without a task.

    A classifier without the key `task` has its classes in `classes.csv` already. Raises
    `BadInputError` for `--annotate` without a folder or a task.
    """
    if request.output is None:
        if request.annotate:
            raise BadInputError("--annotate: has no effect without --output FOLDER; add it")
        return ()
    if not _has_task(cluster, model):
        if request.annotate:
            raise BadInputError(
                "--annotate: needs a task, which says what the outputs mean; write it into "
                "cluster.yaml, such as task: detect"
            )
        return ()
    folder = request.output.absolute()
    lines = JsonLinesConfig(path=str(folder / PREDICTIONS))
    if not request.annotate:
        return (lines,)
    return lines, ImagesConfig(path=str(folder / PICTURES))


def _has_task(cluster: Cluster, model: Model) -> bool:
    task = cluster.task_of(model.network.name)
    if len(cluster.models) > 1 or (task is not None and task.kind == "none"):
        return False
    if task is not None:
        imported("cv2", f"{PREDICTIONS} in --output", "stream")
        return True
    return model_facts(model.metadata).task != "" and find_spec("cv2") is not None


def keep_lines(path: Path, settled: FrameRanges) -> None:
    """Remove the lines of an earlier run from a file, except those of `settled` frames.

    Raises `BadInputError` if it cannot be written.
    """
    try:
        if not settled:
            path.unlink(missing_ok=True)
        elif path.exists():
            with path.open("rb") as before, whole_file(path, durable=True) as file:
                file.writelines(line for line in before if _number(line) in settled)
    except OSError as error:
        raise BadInputError(f"--output: {path}: {cannot_write(error)}") from None


def _number(line: bytes) -> int:
    """Return the number of a line's frame; -1 if it is not a whole line."""
    try:
        number = json.loads(line)["index"]
    except (ValueError, TypeError, KeyError, RecursionError):
        return -1
    return number if isinstance(number, int) else -1
