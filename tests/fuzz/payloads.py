"""Encoded tensors, as another node sends them. An input's first byte chooses the encoding."""

from __future__ import annotations

import numpy as np

from nodes.execution.encoding import AVAILABLE, UndecodableError, decode, encode
from nodes.protocol.messages import ChannelSpec

ENCODINGS = tuple(encoding for encoding in AVAILABLE if encoding != "raw")
SHAPE = (1, 4, 4, 8)


def read_payload(data: bytes) -> bool:
    """The decoder of a channel."""
    encoding = ENCODINGS[data[0] % len(ENCODINGS) if data else 0]
    channel = ChannelSpec(1, "t", "float32", SHAPE, "a", 0, "b", (0,), 1, encoding=encoding)
    try:
        found = decode(data[1:], channel)
    except UndecodableError:
        return False
    assert found.shape == SHAPE
    assert found.dtype == np.float32
    return True


def payloads() -> tuple[bytes, ...]:
    """One of every encoding."""
    values = np.maximum(np.random.default_rng(0).normal(size=SHAPE), 0).astype(np.float32)
    return tuple(
        bytes([number]) + encode(values, encoding).tobytes()
        for number, encoding in enumerate(ENCODINGS)
    )
