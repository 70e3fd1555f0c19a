"""A result passes only if it is close to the whole model's, in every frame and every output."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from launcher.errors import RunFailedError
from launcher.results.comparison.agreement import FirstResults, compare
from launcher.results.comparison.tolerance import FLOOR, WorstOutput
from launcher.results.whole import reference_results


def agreement(folder: Path, results: list[tuple[int, list[float]]], wanted: list[float]) -> float:
    """The error of results (input number, output) against one wanted output for every input."""
    first = FirstResults(folder)
    for number, values in results:
        first.add(number, {"y": np.array(values, np.float32)})
    numbers = sorted({number for number, _ in results})
    references = ((number, {"y": np.array(wanted, np.float32)}) for number in numbers)
    compared = compare(first, ("y",), references)
    errors = [verdict.error for verdict in compared.doubtful.values()]
    return max([compared.agreement.max_relative_error, *errors])


def test_the_same_numbers_agree_exactly(tmp_path: Path) -> None:
    assert agreement(tmp_path, [(0, [1, -2]), (1, [1, -2]), (0, [1, -2])], [1, -2]) == 0


def test_the_error_is_relative_to_the_largest_of_the_output(tmp_path: Path) -> None:
    assert agreement(tmp_path, [(0, [1.5, -4])], [1, -4]) == pytest.approx(0.125)


def test_a_repeat_that_strays_counts(tmp_path: Path) -> None:
    assert agreement(tmp_path, [(0, [1, 4]), (0, [2, 4]), (0, [1, 4])], [1, 4]) == 0.25


def test_the_worst_frame_and_output_are_named(tmp_path: Path) -> None:
    first = FirstResults(tmp_path)
    for number in range(3):
        first.add(number, {"a": np.ones(2), "b": np.ones(3)})
    worse = {"a": np.ones(2), "b": np.array([1, 1, 2.0])}
    same = {"a": np.ones(2), "b": np.ones(3)}
    found = compare(first, ("a", "b"), iter([(0, same), (1, worse), (2, same)]))
    assert found.doubtful == {1: WorstOutput("b", 0.5, 1e-4, "precision")}


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_nan_and_infinity_pass_only_where_the_whole_model_has_them(
    tmp_path: Path, bad: float
) -> None:
    assert agreement(tmp_path / "first", [(0, [1, bad])], [1, 2]) == math.inf
    assert agreement(tmp_path / "repeat", [(0, [1, 2]), (0, [1, bad])], [1, 2]) == math.inf
    assert agreement(tmp_path / "wanted", [(0, [1, 2])], [1, bad]) == math.inf
    assert agreement(tmp_path / "both", [(0, [1, bad])], [1, bad]) == 0
    assert agreement(tmp_path / "place", [(0, [1, bad])], [bad, 1]) == math.inf
    assert (
        agreement(tmp_path / "kind", [(0, [1, bad])], [1, math.inf if bad < 0 else -math.inf])
        == math.inf
    )
    assert agreement(tmp_path / "repeats", [(0, [3, bad]), (0, [4, bad])], [4, bad]) == 0.5


def test_another_shape_never_passes(tmp_path: Path) -> None:
    assert agreement(tmp_path, [(0, [1, 1])], [1]) == math.inf


def test_next_to_nothing_is_compared_absolutely(tmp_path: Path) -> None:
    assert agreement(tmp_path / "same", [(0, [0, 0])], [0, 0]) == 0
    assert agreement(tmp_path / "less", [(0, [0, 1e-9])], [0, -2e-9]) <= 1e-4
    assert agreement(tmp_path / "more", [(0, [0, 1e-5])], [0, 0]) > 1e-4


@given(
    st.lists(st.floats(-10, 10, width=32), min_size=3, max_size=3),
    st.lists(
        st.lists(st.floats(-10, 10, width=32), min_size=3, max_size=3), min_size=1, max_size=4
    ),
)
def test_no_frame_is_further_off_than_the_error_that_is_reported(
    tmp_path_factory: pytest.TempPathFactory, wanted: list[float], repeats: list[list[float]]
) -> None:
    folder = tmp_path_factory.mktemp("first")
    told = agreement(folder, [(0, values) for values in repeats], wanted)
    reference = np.array(wanted, np.float64)
    for values in repeats:
        off = float(np.abs(np.array(values, np.float64) - reference).max())
        scale = max(float(np.abs(reference).max()), FLOOR)
        assert told == math.inf or off <= told * scale * (1 + 1e-9)


def test_a_reference_that_fails_is_a_sentence(tmp_path: Path) -> None:
    model = tmp_path / "broken.onnx"
    model.write_text("no model")
    frame = {"x": np.zeros(1, np.float32)}
    with pytest.raises(RunFailedError, match=r"the whole model could not be run .*--no-verify"):
        list(reference_results(model, ["y"], 1, lambda _: frame, tmp_path, lambda _: None))
