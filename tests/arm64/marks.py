"""Marks of tests for what ARM lacks, or QEMU's user emulation of it (environment.sh)."""

from __future__ import annotations

import os
import platform

import pytest

not_in_qemu = pytest.mark.skipif(
    "QEMU_CPU" in os.environ,
    reason="in QEMU its own memory counts, no limit of memory holds, the kernel's counts of a "
    "connection (TCP_INFO) are missing, and an abort adds a line",
)
has_blocks = pytest.mark.skipif(
    platform.machine() != "x86_64",
    reason="ONNX Runtime has blocks of channels on x86-64 only (decision 069)",
)
