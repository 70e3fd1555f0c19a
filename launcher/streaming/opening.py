"""Opens both ends of a stream: the source, the task and the sinks that `cluster.yaml` names."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from cnn.model import Model
from launcher.config.ends.sink import Sink, SinkConfig
from launcher.config.ends.source import Source
from launcher.config.load import Cluster
from launcher.results.networks import run_inputs
from launcher.run.request import Request
from launcher.sinks.opening import open_sinks
from launcher.sources.files import InputFiles
from launcher.sources.opening import open_source
from launcher.tasks.base import Task
from launcher.tasks.opening import open_task


@dataclass(frozen=True)
class Ends:
    """Both ends of a stream: the source, the task and the sinks with their keys."""

    source: Source
    task: Task
    sinks: Sequence[tuple[SinkConfig, Sink]]


def open_ends(request: Request, cluster: Cluster, model: Model) -> Ends:
    """Open the ends that the cluster's file and the request name; nothing is connected yet.

    Raises `BadInputError` for an end that can never be used.
    """
    task = open_task(cluster, model)
    with ExitStack() as stack:
        source = _open_source(request, cluster, model)
        stack.callback(source.close)
        sinks = open_sinks(cluster)
        stack.pop_all()
    return Ends(source, task, sinks)


def _open_source(request: Request, cluster: Cluster, model: Model) -> Source:
    if cluster.config.input.source is None:
        return InputFiles(run_inputs(request, cluster, model))
    where = "--input" if request.inputs else cluster.source.where(("input",))
    return open_source(cluster.config.input, cluster.folder, where)
