"""A network that simplification has changed is refused before it runs, also without `verify`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import cnn
from cnn.merge import merge
from launcher.errors import BadInputError
from launcher.results.simplified import check_simplified
from tests.cnn.models import convolution, node, save


def model(tmp_path: Path, name: str = "model", rectifier: str = "Relu") -> cnn.Model:
    more = (node(rectifier, ["y"], ["r"]), node("GlobalMaxPool", ["r"], ["z"]))
    return cnn.read(save(convolution((1, 3, 8, 8), *more), tmp_path, f"{name}.onnx"))


def changed(built: cnn.Model, factor: float) -> cnn.Model:
    """As a wrong simplification would leave it: with another kernel."""
    weights = {name: np.asarray(x * np.float32(factor)) for name, x in built.weights.items()}
    return replace(built, _weights=weights)


def check(built: cnn.Model, tmp_path: Path) -> list[tuple[int, int]]:
    heard: list[tuple[int, int]] = []
    tell = lambda done, total: heard.append((done, total))  # noqa: E731
    check_simplified(built, tmp_path / "passing", tmp_path / "cache", tell)
    return heard


def test_one_that_computes_the_same_is_compared_once(tmp_path: Path) -> None:
    assert check(model(tmp_path), tmp_path)[-1] == (8, 8)
    assert check(model(tmp_path), tmp_path) == []


@pytest.mark.parametrize("factor", [1.01, -1.0, 0.0])
def test_one_that_computes_something_else_is_refused_each_time(
    factor: float, tmp_path: Path
) -> None:
    for _ in range(2):
        with pytest.raises(BadInputError, match=r"'z' differs by .*report this model"):
            check(changed(model(tmp_path), factor), tmp_path)


def test_rounding_is_not_a_difference(tmp_path: Path) -> None:
    check(changed(model(tmp_path), 1 + 1e-5), tmp_path)


def test_of_several_networks_the_one_that_differs_is_named(tmp_path: Path) -> None:
    good, bad = model(tmp_path, "good"), changed(model(tmp_path, "bad", "Elu"), 2.0)
    with pytest.raises(BadInputError, match=r"^bad: "):
        check(merge([good, bad]), tmp_path)
