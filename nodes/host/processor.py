"""Identifies the kind of this machine's processor, and its consequences for engines."""

from __future__ import annotations

import platform
from functools import cache
from pathlib import Path

_WANTED = (
    *("vendor_id", "cpu family", "model", "model name", "stepping", "flags", "Features"),
    *("CPU implementer", "CPU architecture", "CPU variant", "CPU part"),
)


@cache
def processor_kind() -> str:
    """Return what identifies this kind of processor, for which engines prepare subnets.

    It is the same text on two machines if their processors have the same instructions.
    """
    try:
        first = Path("/proc/cpuinfo").read_text("utf-8").partition("\n\n")[0]
    except OSError:
        first = platform.processor()
    lines = [line for line in first.splitlines() if line.partition("\t")[0].strip() in _WANTED]
    return "\n".join([platform.machine(), *sorted(lines)])


@cache
def channels_per_block() -> int:
    """Return of how many channels the blocks are in which ONNX Runtime computes convolutions.

    Its library MLAS has blocks of 16 channels with AVX-512 and of 8 on other x86-64 processors. For
    processors of which that is not known here the result is 1: no blocks. An agent compares it with
    the engine before it uses it (`nodes.executors.onnx.borders.check_block`).
    """
    if platform.machine() not in ("x86_64", "AMD64"):
        return 1
    return 16 if "avx512f" in processor_kind().split() else 8
