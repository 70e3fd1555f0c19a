"""Contracts that sources, sinks, engines and meters of other packages must keep, as classes of
tests to inherit."""

from __future__ import annotations

from csdf_edge.testing.executor_contract import EngineContract, ExecutorContract
from csdf_edge.testing.meter_contract import MeterContract
from csdf_edge.testing.sink_contract import SinkContract
from csdf_edge.testing.source_contract import FRAMES, SourceContract

__all__ = [
    "FRAMES",
    "EngineContract",
    "ExecutorContract",
    "MeterContract",
    "SinkContract",
    "SourceContract",
]
