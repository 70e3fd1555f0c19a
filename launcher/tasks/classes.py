"""Recognises a classifier, finds its likeliest classes, and reads the names and the true classes.

A classifier is recognised by its output's shape.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from cnn.network import Network, Tensor
from launcher.config.units import brief
from launcher.errors import BadInputError
from launcher.files import read_small
from nodes.protocol.payload import Array

_CLASS = re.compile("[0-9]{1,18}")


@dataclass(frozen=True, slots=True)
class Guess:
    """A class that a classifier assigns to a frame, with its probability in 0..1."""

    number: int
    probability: float


def is_classifier(network: Network) -> bool:
    """Whether the network has one output, which is one score per class."""
    return len(network.outputs) == 1 and is_score_per_class(network.tensors[network.outputs[0]])


def is_score_per_class(tensor: Tensor) -> bool:
    """Whether an output is one floating-point score per class.

    Shapes are such as [1, 1000], [1, 1000, 1, 1] or [1000]: one axis is longer than 1, and the
    batch is 1.
    """
    long = [length for length in tensor.shape if length > 1]
    batch_is_one = len(tensor.shape) < 2 or tensor.shape[0] == 1
    is_float = np.dtype(tensor.dtype).kind == "f"
    return is_float and not tensor.varies and batch_is_one and len(long) == 1


def top_classes(output: Array, count: int) -> tuple[Guess, ...]:
    """Return the `count` likeliest classes of a classifier's output, the likeliest first.

    Scores that are not probabilities (within 0..1 with the sum 1) are first converted by a softmax.
    Of equal scores the lower class comes first.
    """
    scores = output.reshape(-1).astype(np.float64)
    best = np.argsort(-scores, kind="stable")[:count]
    probabilities = scores
    if scores.min() < 0 or abs(scores.sum() - 1) > 1e-2:
        powers = np.exp(scores - scores.max())
        probabilities = powers / powers.sum()
    return tuple(Guess(int(number), float(probabilities[number])) for number in best)


def top_class(outputs: Mapping[str, Array]) -> int:
    """Return the likeliest class of the only output."""
    (output,) = outputs.values()
    return int(np.argmax(output.reshape(-1)))


def read_labels(path: Path) -> tuple[str, ...]:
    """Read class names, one per line; raises `BadInputError` if the file cannot be read."""
    return tuple(line.strip() for line in _lines(path))


def read_truth(path: Path, inputs: int) -> tuple[int, ...]:
    """Read the true class of each input, one integer per line and as many as there are inputs.

    Raises `BadInputError` with file and line.
    """
    classes: list[int] = []
    for number, line in enumerate(_lines(path), start=1):
        if not _CLASS.fullmatch(line.strip()):
            raise BadInputError(
                f"{path}, line {number}: {brief(line.strip())} is not a class: write an integer"
            )
        classes.append(int(line))
    if len(classes) != inputs:
        raise BadInputError(
            f"{path}: has {len(classes)} classes for {inputs} inputs; write one line for each input"
        )
    return tuple(classes)


def _lines(path: Path) -> list[str]:
    try:
        return read_small(path).decode("utf-8-sig").rstrip().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise BadInputError(f"{path}: cannot be read as text: {error}") from None
