"""What an agent holds besides weights, activations and channels: itself and its engine.

Defaults until they are replaced by what the executors' own measurements give: an idle agent with
NumPy and ONNX Runtime imported holds 46 MB (ONNX Runtime 1.31, x86-64); every
loaded phase adds a session's graph and buffers.
"""

from __future__ import annotations

IDLE_AGENT_BYTES = 50_000_000
"""Resident memory of an agent with its engine imported and nothing loaded."""

SESSION_BYTES = 1_000_000
"""Resident memory that one more phase adds, besides its weights and activations."""


def engine_bytes(phases: int) -> int:
    """Resident bytes of an agent that has loaded `phases` subnets, without their tensors."""
    return IDLE_AGENT_BYTES + SESSION_BYTES * phases
