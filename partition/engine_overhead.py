"""The memory that an engine takes besides tensors, as engines declare it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class EngineOverhead:
    """The memory of an agent with an engine, in bytes; the defaults are those of ONNX Runtime.

    `idle_bytes` is that of an agent that has opened the engine and loaded nothing, including the
    code that an idle agent runs; `subnet_bytes` and `layer_bytes` are what each further subnet and
    each layer adds. ONNX Runtime's 50 kB of a subnet are a session's graph, measured as 33 kB, and
    its Python objects. `partition.pricing.memory_budget` says how the defaults were measured,
    and what is the same for every engine.
    """

    idle_bytes: int = 34_000_000
    subnet_bytes: int = 50_000
    layer_bytes: int = 7_000


ONNX_RUNTIME = EngineOverhead()
