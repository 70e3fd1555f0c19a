"""Which results agree with the whole model's, by which rule, and how far each rule goes."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from launcher.results.comparison.tolerance import (
    FACTOR,
    LIMITS,
    Numbers,
    WorstOutput,
    difference,
    judge_step,
    numbers_of,
    strict,
    within_fusing,
    within_movement,
    worst,
)

SINGLE, HALF, EIGHT = Numbers("single"), Numbers("half"), Numbers("8-bit")


def out(*values: float, dtype: str = "float32") -> dict[str, np.ndarray]:
    return {"y": np.array(values, dtype)}


def ranked(scores: list[float], boxes: list[float]) -> dict[str, np.ndarray]:
    return {"score": np.array([scores], "f4"), "box": np.array([boxes], "f4")[..., None]}


@pytest.mark.parametrize(
    ("dtypes", "operators", "wanted"),
    [
        (["float32"], ["Conv"], Numbers("single")),
        (["float32", "uint8"], ["Cast", "Conv"], Numbers("single")),
        (["float32", "float16"], ["Conv", "TopK"], Numbers("half", ranks=True)),
        (["float32", "float16"], ["Conv", "DequantizeLinear"], Numbers("8-bit")),
        (["float32"], ["DynamicQuantizeLinear", "ConvInteger"], Numbers("8-bit")),
        (["uint8"], ["QLinearConv", "NonMaxSuppression"], Numbers("8-bit", ranks=True)),
    ],
)
def test_the_coarsest_numbers_of_a_network_count(
    dtypes: list[str], operators: list[str], wanted: Numbers
) -> None:
    assert numbers_of(dtypes, operators) == wanted


def test_an_empty_frames_outputs_of_about_nothing_agree() -> None:
    assert strict(out(3e-9, 0), out(0, 2e-9), SINGLE).agrees
    assert not strict(out(3e-6, 0), out(0, 2e-9), SINGLE).agrees


def test_half_precision_agrees_to_two_units_in_the_last_place() -> None:
    assert not strict(out(1.001), out(1), SINGLE).agrees
    assert strict(out(1.001), out(1), HALF).agrees
    assert not strict(out(1.01), out(1), HALF).agrees


def test_of_classes_and_masks_the_share_that_differs_is_the_error() -> None:
    wanted = {"mask": np.arange(10_000)}
    one, two = wanted["mask"].copy(), wanted["mask"].copy()
    one[0], two[:2] = 77, 77
    assert strict({"mask": one}, wanted, SINGLE).agrees
    assert not strict({"mask": two}, wanted, SINGLE).agrees
    assert not strict(out(3, dtype="int64"), out(4, dtype="int64"), HALF).agrees


def test_bytes_are_amounts_in_a_quantised_network_and_choices_elsewhere() -> None:
    found, wanted = np.array([100], "uint8"), np.array([101], "uint8")
    assert difference(found, wanted, SINGLE).largest == 1
    assert difference(found, wanted, EIGHT).largest == pytest.approx(1 / 101)


def test_rows_of_suppression_are_compared_as_a_set() -> None:
    wanted = np.array([[0, 0, 5], [0, 1, 7], [0, 1, 9]])
    found = np.array([[0, 1, 7], [0, 0, 5]])
    assert difference(found, wanted, SINGLE).largest == pytest.approx(1 / 3)


def test_rows_whose_scores_tie_may_come_in_any_order() -> None:
    wanted = ranked([0.9, 0.5, 0.5, 0.1], [1, 2, 3, 4])
    found = ranked([0.9, 0.5, 0.5, 0.1], [1, 3, 2, 4])
    assert not strict(found, wanted, SINGLE).agrees
    verdict = strict(found, wanted, Numbers("single", ranks=True))
    assert verdict.agrees
    assert verdict.rule == "ties"


def test_rows_whose_scores_differ_must_not_be_swapped() -> None:
    wanted = ranked([0.9, 0.6, 0.5, 0.1], [1, 2, 3, 4])
    found = ranked([0.9, 0.6, 0.5, 0.1], [1, 3, 2, 4])
    assert not strict(found, wanted, Numbers("single", ranks=True)).agrees


def test_rows_at_the_end_are_forgiven_only_where_movement_counts_and_never_all() -> None:
    numbers = Numbers("single", ranks=True)
    wanted = ranked([0.9, 0.5, 0.5, 0.5], [1, 2, 3, 4])
    other = ranked([0.9, 0.5, 0.5, 0.5], [1, 2, 3, 8])
    assert not strict(other, wanted, numbers).agrees
    assert within_movement(other, wanted, [wanted], numbers, "replay").agrees
    foreign = ranked([0.9, 0.5, 0.5, 0.5], [1, 7, 8, 9])
    assert not within_movement(foreign, wanted, [wanted], numbers, "replay").agrees


def test_channels_are_not_taken_for_rows_that_tie() -> None:
    zeros, maps = np.zeros((1, 4), "f4"), np.arange(8, dtype="f4").reshape(1, 4, 2)
    wanted, found = {"sum": zeros, "map": maps}, {"sum": zeros, "map": maps[:, ::-1]}
    assert not strict(found, wanted, SINGLE).agrees


def test_a_result_may_be_a_few_times_as_far_off_as_the_whole_model_moves() -> None:
    wanted, moved = out(1, -1), out(1.0005, -1.0005)
    for rule in ("movement", "replay"):
        assert within_movement(out(1.001, -1.001), wanted, [moved], SINGLE, rule).agrees
        assert not within_movement(out(1.01, -1.01), wanted, [moved], SINGLE, rule).agrees


def test_an_error_everywhere_is_not_allowed_by_movement_in_one_place() -> None:
    wanted = {"y": np.ones(1000, "f4")}
    moved = {"y": np.ones(1000, "f4")}
    moved["y"][0] = 1.01
    everywhere = {"y": np.full(1000, 1.01, "f4")}
    assert within_movement(moved, wanted, [moved], EIGHT, "movement").agrees
    assert not within_movement(everywhere, wanted, [moved], EIGHT, "movement").agrees


@given(st.floats(0, 100), st.floats(1e-6, 100), st.sampled_from(list(LIMITS)))
def test_movement_alone_never_allows_more_than_the_most_of_its_precision(
    moved: float, error: float, precision: str
) -> None:
    numbers = Numbers(precision)
    found, variant = out(1 + error), out(1 + moved)
    if within_movement(found, out(1), [variant], numbers, "movement").agrees:
        assert error <= max(numbers.limits.most, numbers.limits.strict) * (1 + 1e-5)
        assert error <= max(FACTOR * moved, numbers.limits.strict) * (1 + 1e-4) + 1e-6


def test_where_a_norm_leaves_nothing_but_rounding_its_movement_may_be_larger_than_it() -> None:
    """As of an image of one colour behind an instance norm: noise of 1e-4, where other images give
    numbers about 1."""
    wanted, moved = out(1e-4, -2e-5), out(4e-5, 4e-5)
    rounded = out(5e-5, 2e-5)
    assert within_movement(rounded, wanted, [moved], SINGLE, "movement").agrees
    assert not within_movement(out(5e-3, 0), wanted, [moved], SINGLE, "movement").agrees


def test_a_quantised_subnet_may_round_a_few_values_otherwise_but_not_all() -> None:
    wanted = {"y": np.full(10_000, 200.0, "f4")}
    few, all_of_them = {"y": wanted["y"].copy()}, {"y": wanted["y"] + 2}
    few["y"][:50] += 2
    assert judge_step(few, wanted, EIGHT).agrees
    assert not judge_step(all_of_them, wanted, EIGHT).agrees


def test_a_tolerance_that_was_given_is_the_only_rule() -> None:
    assert strict(out(1.3), out(1), SINGLE, given=0.5) == WorstOutput(
        "y", pytest.approx(0.3), 0.5, "given"
    )
    assert not strict(out(1.00001), out(1), SINGLE, given=0.0).agrees


def test_nan_and_infinity_are_infinitely_far_unless_the_model_has_them_too() -> None:
    assert strict(out(math.nan), out(1), SINGLE).error == math.inf
    assert not within_movement(out(math.nan), out(1), [out(1)], SINGLE, "replay").agrees
    assert within_movement(out(math.nan), out(1), [out(math.nan)], SINGLE, "replay").agrees


def test_the_worst_output_is_the_furthest_relative_to_what_is_allowed() -> None:
    loose, tight = WorstOutput("a", 0.5, 1.0, "given"), WorstOutput("b", 0.2, 0.1, "given")
    assert worst([loose, tight]) == tight


def test_a_plan_may_be_as_far_off_as_fusing_moves_it_where_it_is_right_unfused() -> None:
    """One 8-bit step of a coarse output, which the plan's engine rounds up and the whole's down."""
    found, wanted = out(1.0, 0.52), out(1.0, 0.5)
    assert within_fusing(found, wanted, unfused=wanted, right=wanted, numbers=EIGHT).agrees
    assert not within_fusing(found, wanted, unfused=found, right=found, numbers=EIGHT).agrees


def test_fusing_moves_results_of_8_bits_by_a_tenth_at_most() -> None:
    """A larger difference is not rounding: an optimiser of the engine is wrong."""
    found, wanted = out(1.0, 0.7), out(1.0, 0.5)
    assert not within_fusing(found, wanted, unfused=wanted, right=wanted, numbers=EIGHT).agrees
    assert within_fusing(found, wanted, unfused=wanted, right=wanted, numbers=SINGLE).agrees


def test_a_plan_that_is_wrong_unfused_is_wrong() -> None:
    found, wanted = out(1.0, 0.52), out(1.0, 0.5)
    wrong = out(1.0, 0.6)
    assert not within_fusing(found, wanted, unfused=wrong, right=wanted, numbers=EIGHT).agrees
