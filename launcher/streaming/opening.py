"""Opens both ends of a stream: the source, the task and the sinks that `cluster.yaml` names."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from cnn.model import Model
from launcher.config.ends.sink import Sink, SinkConfig
from launcher.config.ends.source import Source
from launcher.config.load import Cluster
from launcher.inputs.frames import Inputs
from launcher.results.collecting import Results
from launcher.run.request import Request
from launcher.sinks.opening import open_sinks
from launcher.sources.files import InputFiles
from launcher.sources.opening import open_source
from launcher.streaming.prediction_files import PREDICTIONS, keep_lines, prediction_sinks
from launcher.tasks.opening import Task, open_task


@dataclass(frozen=True)
class Ends:
    """Both ends of a stream: the source, the task and the sinks with their keys.

    `repeats` is as `SourceConfig.repeats`; a source that numbers its frames does not.
    """

    source: Source
    task: Task | None
    sinks: Sequence[tuple[SinkConfig, Sink]]
    repeats: bool = False


def open_ends(request: Request, cluster: Cluster, model: Model, results: Results) -> Ends:
    """Open the ends that the cluster's file and the request name; nothing is connected yet.

    With a task, the folder of results gets predictions too. Files that go to no sink need no task.
    Raises `BadInputError` for an end that can never be used.
    """
    config = cluster.config
    added = prediction_sinks(request, cluster, model)
    if results.inputs is not None and not config.sinks and not added:
        return Ends(_files(cluster, results, results.inputs, pictures=False), None, ())
    task = open_task(cluster, model)
    if task.decoder is None:  # the model's metadata name a task that is not known here
        added = ()
    if request.output is not None and added:
        keep_lines(request.output / PREDICTIONS, results.settled)
    with ExitStack() as stack:
        source = _open_source(request, cluster, results)
        stack.callback(source.close)
        sinks = [*open_sinks(cluster), *((sink, sink.open(cluster.folder)) for sink in added)]
        stack.pop_all()
    described = config.input.source
    repeats = described is not None and described.repeats(cluster.folder)
    return Ends(source, task, sinks, repeats)


def _open_source(request: Request, cluster: Cluster, results: Results) -> Source:
    if results.inputs is not None:
        return _files(cluster, results, results.inputs, pictures=True)
    where = "--input" if request.inputs else cluster.source.where(("input",))
    return open_source(cluster.config.input, cluster.folder, where)


def _files(cluster: Cluster, results: Results, inputs: Inputs, *, pictures: bool) -> InputFiles:
    pace = cluster.config.pace
    may_drop = pace is not None and pace.on_overload != "block"
    return InputFiles(inputs, results.open, pictures=pictures, late=may_drop)
