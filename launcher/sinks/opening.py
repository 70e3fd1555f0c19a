"""Opens the sinks of a `cluster.yaml`."""

from __future__ import annotations

from contextlib import ExitStack

from launcher.config.ends.sink import Sink, SinkConfig
from launcher.config.load import Cluster
from launcher.errors import BadInputError
from launcher.sinks.stdout import StdoutConfig


def open_sinks(cluster: Cluster) -> list[tuple[SinkConfig, Sink]]:
    """Return every sink of the file with its keys, in the file's order; none is connected yet.

    Raises `BadInputError` with file, line and key for a sink that can never be used.
    """
    opened: list[tuple[SinkConfig, Sink]] = []
    with ExitStack() as stack:
        for index, config in enumerate(cluster.config.sinks):
            sink = _open(cluster, index, config)
            stack.callback(sink.close)
            opened.append((config, sink))
        stack.pop_all()
    return opened


def _open(cluster: Cluster, index: int, config: SinkConfig) -> Sink:
    try:
        return config.open(cluster.folder)
    except BadInputError as error:
        raise cluster.error(("sinks", index), str(error)) from error


def takes_standard_output(cluster: Cluster) -> bool:
    """Whether a sink of the file writes to standard output, which has no room for a report then."""
    return any(isinstance(config, StdoutConfig) for config in cluster.config.sinks)
