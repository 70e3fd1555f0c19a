"""Contracts that sources and sinks of other packages must keep, as classes of tests to inherit."""

from __future__ import annotations

from csdf_edge.testing.sink_contract import SinkContract
from csdf_edge.testing.source_contract import FRAMES, SourceContract

__all__ = ["FRAMES", "SinkContract", "SourceContract"]
