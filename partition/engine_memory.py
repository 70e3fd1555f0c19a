"""What an agent holds besides weights, activations and channels: itself and its engine.

Measured by `python -m benchmarks.executor_memory` with ONNX Runtime 1.31 (CPU) on x86-64 (AMD
EPYC), Python 3.11, glibc 2.36, as resident memory of a process that has imported what an agent
imports. Other engines and processors differ; an agent tells its idle memory when it is greeted
(`Welcome.rss_bytes`).
"""

from __future__ import annotations

IDLE_AGENT_BYTES = 58_000_000
"""An agent with its engine imported and nothing loaded; 31 MB of it are shared libraries."""

FIRST_SESSION_BYTES = 12_000_000
"""What the first subnet adds: 8 to 9 MB of the engine's code, 3 MB of tables and arena."""

SESSION_BYTES = 50_000
"""What each further phase adds: a session's graph, measured as 33 kB, and its Python objects."""


def engine_bytes(phases: int) -> int:
    """Resident bytes of an agent that has loaded `phases` subnets, without their tensors."""
    if phases == 0:
        return IDLE_AGENT_BYTES
    return IDLE_AGENT_BYTES + FIRST_SESSION_BYTES + SESSION_BYTES * phases
