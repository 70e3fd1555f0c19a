"""Export the names that a program may import from csdf-edge; all others may change without notice.

Each name is imported from its own package when it is first used, so `import csdf_edge` costs
nothing. Two actors and a bounded channel, analysed and simulated:

>>> from csdf_edge import Actor, Channel, Graph, analyze, simulate
>>> from fractions import Fraction
>>> producer = Actor("producer", (Fraction(2),), concurrency=1)
>>> consumer = Actor("consumer", (Fraction(1), Fraction(3)), concurrency=1)
>>> channel = Channel("tokens", "producer", "consumer", (2,), (1, 1), capacity=2)
>>> graph = Graph("pair", (producer, consumer), (channel,))
>>> found = analyze(graph)
>>> found.live, found.period
(True, Fraction(6, 1))
>>> len(simulate(graph, iterations=3).firings)
9

A network partitioned over two devices:

>>> from csdf_edge import Device, partition_network, read_network
>>> model = read_network("examples/digits/digits.onnx")
>>> plan = partition_network(model, [Device("a"), Device("b")], strategy="sequential")
>>> sorted(set(plan.assignment.values()))
['a', 'b']

A cluster, and the plan that `launch` would run on it (`launch` without `plan_only` runs it):

>>> from pathlib import Path
>>> from csdf_edge import Request, launch, load_cluster
>>> target = Path("examples/digits/cluster.yaml")
>>> [node.name for node in load_cluster(target).config.nodes]
['left', 'middle', 'right']
>>> outcome = launch(Request(target, strategy="sequential", plan_only=True))
>>> outcome.plan.strategy
'sequential'

The same nodes, with frames from a program:

>>> import csdf_edge, numpy as np
>>> with csdf_edge.open(target, strategy="sequential") as cluster:
...     frame = {"image": np.zeros((1, 1, 8, 8), "float32")}
...     result = cluster.infer(frame)
...     many = list(cluster.stream([frame] * 3))
...     found = cluster.predict(np.zeros((8, 8), "uint8"))
>>> {name: array.shape for name, array in result.items()}, len(many)
({'probabilities': (1, 10)}, 3)
>>> found.kind, len(found.classes)
('classify', 5)
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cnn.errors import CnnError
    from cnn.model import Model
    from cnn.model import read as read_network
    from csdf.analysis import Analysis, analyze
    from csdf.errors import CsdfError
    from csdf.execution.simulation import Timeline, simulate
    from csdf.formats.files import read as read_graph
    from csdf.model.graph import Actor, Channel, Graph
    from csdf_edge.running import launch, open, partition_network  # noqa: A004
    from launcher.config.cluster import ClusterConfig
    from launcher.config.load import Cluster, load_cluster
    from launcher.errors import FullError, LauncherError
    from launcher.run.request import Request
    from launcher.streaming.job import Outcome
    from launcher.streaming.live_cluster import LiveCluster
    from launcher.streaming.live_model import LiveModel, TensorInfo
    from launcher.streaming.predicting import ImagePrediction
    from partition.devices import Device
    from partition.errors import PartitionError
    from partition.plan import Plan

    __version__: str

__all__ = [
    "Actor",
    "Analysis",
    "Channel",
    "Cluster",
    "ClusterConfig",
    "CnnError",
    "CsdfError",
    "Device",
    "FullError",
    "Graph",
    "ImagePrediction",
    "LauncherError",
    "LiveCluster",
    "LiveModel",
    "Model",
    "Outcome",
    "PartitionError",
    "Plan",
    "Request",
    "TensorInfo",
    "Timeline",
    "__version__",
    "analyze",
    "launch",
    "load_cluster",
    "open",
    "partition_network",
    "read_graph",
    "read_network",
    "simulate",
]

_HOMES = {
    "Actor": "csdf.model.graph",
    "Analysis": "csdf.analysis",
    "Channel": "csdf.model.graph",
    "Cluster": "launcher.config.load",
    "ClusterConfig": "launcher.config.cluster",
    "CnnError": "cnn.errors",
    "CsdfError": "csdf.errors",
    "Device": "partition.devices",
    "FullError": "launcher.errors",
    "Graph": "csdf.model.graph",
    "LauncherError": "launcher.errors",
    "LiveCluster": "launcher.streaming.live_cluster",
    "LiveModel": "launcher.streaming.live_model",
    "Model": "cnn.model",
    "Outcome": "launcher.streaming.job",
    "PartitionError": "partition.errors",
    "Plan": "partition.plan",
    "ImagePrediction": "launcher.streaming.predicting",
    "Request": "launcher.run.request",
    "TensorInfo": "launcher.streaming.live_model",
    "Timeline": "csdf.execution.simulation",
    "__version__": "nodes.cli:VERSION",
    "analyze": "csdf.analysis",
    "launch": "csdf_edge.running",
    "load_cluster": "launcher.config.load",
    "open": "csdf_edge.running",
    "partition_network": "csdf_edge.running",
    "read_graph": "csdf.formats.files:read",
    "read_network": "cnn.model:read",
    "simulate": "csdf.execution.simulation",
}
"""The module of each public name, followed by `:` and its name there if that is another one."""


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'csdf_edge' has no attribute {name!r}")
    module, _, original = _HOMES[name].partition(":")
    return getattr(import_module(module), original or name)


def __dir__() -> list[str]:
    return sorted(__all__)
