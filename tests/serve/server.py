"""The frames of the digits network, which `Serving` serves, and their results."""

from __future__ import annotations

import numpy as np
import onnxruntime as ort

from benchmarks.serving.server import DIGITS, ON_THREE, ROOT, WAIT_S, Serving

__all__ = ["DIGITS", "ON_THREE", "ROOT", "WAIT_S", "Serving", "expected", "images"]


def images() -> np.ndarray:
    """All frames: [number, 1, 1, 8, 8]."""
    return np.load(DIGITS / "test_images.npy")[:, None]


def expected() -> list[np.ndarray]:
    """What ONNX Runtime makes of them with the whole network."""
    session = ort.InferenceSession(DIGITS / "digits.onnx", providers=["CPUExecutionProvider"])
    return [session.run(["probabilities"], {"image": image})[0] for image in images()]
