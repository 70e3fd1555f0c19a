"""Exact analyses of cyclo-static dataflow graphs: what they can do, how fast, with which buffers.

Everything that a user of the library calls can be imported from here. Each name is imported from
its module when it is first used, so `import csdf` costs nothing.

>>> import csdf
>>> from fractions import Fraction
>>> producer = csdf.Actor("producer", (Fraction(2),), concurrency=1)
>>> consumer = csdf.Actor("consumer", (Fraction(1), Fraction(3)), concurrency=1)
>>> tokens = csdf.Channel("tokens", "producer", "consumer", (2,), (1, 1))
>>> graph = csdf.Graph("pair", (producer, consumer), (tokens,))
>>> csdf.throughput(graph).period
Fraction(4, 1)
>>> [(point.size, str(point.period)) for point in csdf.CapacitySearch(graph).front().points]
[(2, '6'), (3, '4')]
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from csdf.analysis import Analysis, analyze
    from csdf.buffers.capacities import CapacitySearch, Front, Point, Smallest
    from csdf.buffers.latency_front import LatencyFront, LatencyPoint, latency_front
    from csdf.buffers.shared_memory import Buffer, SharedMemory, shared_memory
    from csdf.certificates.certify import Certificate, certify
    from csdf.conversion.dataflow_graphs import device_graph, phase_graph
    from csdf.conversion.from_network import Dataflow, convert
    from csdf.conversion.proof import Proof, prove
    from csdf.conversion.skew import Pipeline, retime
    from csdf.errors import (
        ConversionError,
        CsdfError,
        DeadlockError,
        GraphError,
        InconsistentGraphError,
        NotProvedError,
        OvertakingError,
        PeriodBoundsError,
        TooLargeError,
    )
    from csdf.execution.liveness import Deadlock, check_liveness, live_actors
    from csdf.execution.shared_machine import Machine, Platform
    from csdf.execution.simulation import (
        Firing,
        Link,
        Timeline,
        simulate,
        static_orders,
        with_links,
    )
    from csdf.execution.static_orders import Entry, Ordered, ordered, with_orders
    from csdf.formats.files import read, write
    from csdf.formats.json_format import read_parametric
    from csdf.formats.networkx_form import from_networkx, to_networkx
    from csdf.formats.sdf3_scenarios import read_scenarios
    from csdf.generation import generate
    from csdf.model.consistency import repetition_vector
    from csdf.model.graph import Actor, Channel, Graph
    from csdf.model.parametric import ParametricGraph, symbolic_repetitions
    from csdf.model.scenarios import Scenarios
    from csdf.parametric_analysis import ParametricAnalysis, analyze_parameters
    from csdf.timing.best_binding import BestBinding, best_binding
    from csdf.timing.best_orders import BestOrders, best_orders
    from csdf.timing.expansion import homogeneous
    from csdf.timing.k_periodic import KPeriodic, k_periodic_schedule
    from csdf.timing.latency import Latency, latency
    from csdf.timing.max_plus import MaxPlusMatrix, max_plus_matrix
    from csdf.timing.scenarios import ScenarioPeriods, scenario_periods
    from csdf.timing.schedule import Schedule, periodic_schedule
    from csdf.timing.slack import slack
    from csdf.timing.tdma import Slice, with_slices
    from csdf.timing.throughput import (
        Throughput,
        accumulating_channels,
        actor_periods,
        throughput,
    )

__all__ = [
    "Actor",
    "Analysis",
    "BestBinding",
    "BestOrders",
    "Buffer",
    "CapacitySearch",
    "Certificate",
    "Channel",
    "ConversionError",
    "CsdfError",
    "Dataflow",
    "Deadlock",
    "DeadlockError",
    "Entry",
    "Firing",
    "Front",
    "Graph",
    "GraphError",
    "InconsistentGraphError",
    "KPeriodic",
    "Latency",
    "LatencyFront",
    "LatencyPoint",
    "Link",
    "Machine",
    "MaxPlusMatrix",
    "NotProvedError",
    "Ordered",
    "OvertakingError",
    "ParametricAnalysis",
    "ParametricGraph",
    "PeriodBoundsError",
    "Pipeline",
    "Platform",
    "Point",
    "Proof",
    "ScenarioPeriods",
    "Scenarios",
    "Schedule",
    "SharedMemory",
    "Slice",
    "Smallest",
    "Throughput",
    "Timeline",
    "TooLargeError",
    "accumulating_channels",
    "actor_periods",
    "analyze",
    "analyze_parameters",
    "best_binding",
    "best_orders",
    "certify",
    "check_liveness",
    "convert",
    "device_graph",
    "from_networkx",
    "generate",
    "homogeneous",
    "k_periodic_schedule",
    "latency",
    "latency_front",
    "live_actors",
    "max_plus_matrix",
    "ordered",
    "periodic_schedule",
    "phase_graph",
    "prove",
    "read",
    "read_parametric",
    "read_scenarios",
    "repetition_vector",
    "retime",
    "scenario_periods",
    "shared_memory",
    "simulate",
    "slack",
    "static_orders",
    "symbolic_repetitions",
    "throughput",
    "to_networkx",
    "with_links",
    "with_orders",
    "with_slices",
    "write",
]

_MODULES = {
    "analysis": ("Analysis", "analyze"),
    "buffers.capacities": ("CapacitySearch", "Front", "Point", "Smallest"),
    "buffers.latency_front": ("LatencyFront", "LatencyPoint", "latency_front"),
    "buffers.shared_memory": ("Buffer", "SharedMemory", "shared_memory"),
    "certificates.certify": ("Certificate", "certify"),
    "conversion.dataflow_graphs": ("device_graph", "phase_graph"),
    "conversion.from_network": ("Dataflow", "convert"),
    "conversion.proof": ("Proof", "prove"),
    "conversion.skew": ("Pipeline", "retime"),
    "errors": (
        "ConversionError",
        "CsdfError",
        "DeadlockError",
        "GraphError",
        "InconsistentGraphError",
        "NotProvedError",
        "OvertakingError",
        "PeriodBoundsError",
        "TooLargeError",
    ),
    "execution.liveness": ("Deadlock", "check_liveness", "live_actors"),
    "execution.shared_machine": ("Machine", "Platform"),
    "execution.simulation": (
        "Firing",
        "Link",
        "Timeline",
        "simulate",
        "static_orders",
        "with_links",
    ),
    "execution.static_orders": ("Entry", "Ordered", "ordered", "with_orders"),
    "formats.files": ("read", "write"),
    "formats.json_format": ("read_parametric",),
    "formats.networkx_form": ("from_networkx", "to_networkx"),
    "formats.sdf3_scenarios": ("read_scenarios",),
    "generation": ("generate",),
    "model.consistency": ("repetition_vector",),
    "model.graph": ("Actor", "Channel", "Graph"),
    "model.parametric": ("ParametricGraph", "symbolic_repetitions"),
    "model.scenarios": ("Scenarios",),
    "timing.best_binding": ("BestBinding", "best_binding"),
    "timing.best_orders": ("BestOrders", "best_orders"),
    "timing.expansion": ("homogeneous",),
    "timing.k_periodic": ("KPeriodic", "k_periodic_schedule"),
    "timing.latency": ("Latency", "latency"),
    "timing.max_plus": ("MaxPlusMatrix", "max_plus_matrix"),
    "parametric_analysis": ("ParametricAnalysis", "analyze_parameters"),
    "timing.scenarios": ("ScenarioPeriods", "scenario_periods"),
    "timing.schedule": ("Schedule", "periodic_schedule"),
    "timing.slack": ("slack",),
    "timing.tdma": ("Slice", "with_slices"),
    "timing.throughput": ("Throughput", "accumulating_channels", "actor_periods", "throughput"),
}
_HOMES = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'csdf' has no attribute {name!r}")
    return getattr(import_module(f"csdf.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
