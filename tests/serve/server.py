"""The results of the digits network, which `Serving` serves, and clients that ask for them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from benchmarks.service.server import images, whole
from benchmarks.serving.clients import Arrays, Asked, Clients
from benchmarks.serving.server import DIGITS, ON_THREE, ROOT, WAIT_S, Serving

__all__ = ["DIGITS", "ON_THREE", "ROOT", "WAIT_S", "Serving", "ask_all", "expected", "images"]


def expected() -> list[np.ndarray]:
    """What ONNX Runtime makes of all frames with the whole network."""
    return whole(DIGITS / "digits.onnx", len(images()))


async def ask_all(
    address: str,
    kind: str,
    model: str,
    frames: Sequence[Arrays],
    wanted: Sequence[Arrays],
    *,
    clients: int,
    each: int,
    asked: Asked | None = None,
) -> Asked:
    """So many clients of a model's version 1 at once, each with `each` frames in an order of its
    own."""
    asking = Clients(
        [(kind, address)] * clients, model, frames, {1: wanted}, each=each, asked=asked
    )
    async with asking:
        await asking.ended()
    return asking.asked
