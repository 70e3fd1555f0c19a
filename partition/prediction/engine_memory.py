"""What an agent holds besides weights, activations and channels: itself and its engine.

Measured by `python -m benchmarks.executor_memory` with ONNX Runtime 1.31 (CPU) on x86-64 (AMD
EPYC), Python 3.11, glibc 2.36, in a process that has imported what an agent imports. Program pages
count only where their code runs. More of them are resident (23 to 36 MB), but those are clean, and
the kernel drops them where memory is short (decision 025). Other engines and processors differ; an
agent reports its idle memory, without any program code, when it is greeted (`Welcome.rss_bytes`).
"""

from __future__ import annotations

IDLE_AGENT_BYTES = 34_000_000
"""An agent with its engine imported and nothing loaded: 30 MB, and the code that an idle agent
runs."""

PREPARING_BYTES = 24_000_000
"""The process that prepares subnets, without code and besides what their weights take."""

START_UP_BYTES = 54_000_000
"""What a node holds in passing before its first subnet is loaded: agent (30 MB) and that process,
both without code."""

FIRST_SESSION_BYTES = 8_500_000
"""What computing a first subnet adds, and rehearsing it: tables and arena (4.5 MB), and the code
that runs."""

CODE_BYTES = 8_000_000
"""How much of the two is program code, which agents leave out of what they measure."""

SESSION_BYTES = 50_000
"""What each further phase adds: a session's graph, measured as 33 kB, and its Python objects."""

LAYER_BYTES = 7_000
"""What each layer adds: its kernel, its node in the graph, names and shapes. Measured over twelve
networks of 10 to 662 layers, which take 1.6 MB and 6.8 kB per layer once they are loaded."""


def engine_bytes(phases: int, layers: int = 0) -> int:
    """Return the bytes of an agent that has loaded `phases` subnets with `layers` layers
    in all, without their tensors."""
    if phases == 0:
        return IDLE_AGENT_BYTES
    sessions = FIRST_SESSION_BYTES + SESSION_BYTES * phases
    return IDLE_AGENT_BYTES + sessions + LAYER_BYTES * layers
