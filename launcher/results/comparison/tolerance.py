"""Decides whether a result agrees with the whole model's, by rules that follow from rounding.

Two engines, or one engine at two levels of fusion, add numbers in different orders, so results are
not required to be equal. The allowed error follows from the precision of the network's numbers. If
that does not suffice, it follows from the *movement*: how far the whole model's own result moves
when only rounding changes, that is if ONNX Runtime fuses none of its operators and, in half
precision, rounds every tensor. The error of a floating-point output is

    max |found − wanted| / max(max |wanted|, FLOOR),

so outputs close to zero are compared absolutely. The error of a discrete output (integers,
booleans) is the share of elements that differ, or of rows if their number depends on the data. A
small error in every element is not the same as in a single one, so movement is measured both as the
largest difference and as the root mean square, and bounds both.

| rule      | when it is applied                  | the result agrees if                           |
|-----------|-------------------------------------|------------------------------------------------|
| given     | the user sets a tolerance           | error ≤ tolerance; only `ties` applies besides |
| precision | always                              | error ≤ `ErrorLimits.strict` of the numbers    |
| ties      | precision fails, the network ranks  | precision holds once rows with tied scores are |
|           |                                     | in the whole model's order (`ranking`)         |
| replay    | ties fails, and the plan's subnets  | the subnets give the nodes' results; each,     |
|           | can be run here                     | given the whole model's own tensors, computes  |
|           |                                     | what the whole model does (`judge_step`); and  |
|           |                                     | error ≤ max(`proven`, 4 × movement); or with   |
|           |                                     | nothing fused, plan and whole model agree, and |
|           |                                     | error ≤ 4 × the movement of the plan by        |
|           |                                     | fusion, in 8 bits also ≤ `most`                |
| movement  | the nodes may round differently     | error ≤ 4 × movement, and ≤ `most`; and each   |
|           | from this machine, or no subnet can | subnet that can be run here computes what the  |
|           | be run here                         | whole model does                               |

Only `replay` may exceed `ErrorLimits.most`, because it proves that no single step of the plan is
wrong. Without that proof, an unstable network would widen its tolerance until it hides real errors.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal, TypeAlias

import numpy as np

from launcher.results.comparison.ranking import RANKING_OPERATORS, aligned
from nodes.protocol.payload import Array

Outputs: TypeAlias = Mapping[str, Array]

Precision: TypeAlias = Literal["single", "half", "8-bit"]


@dataclass(frozen=True, slots=True)
class Numbers:
    """The least precise numbers of a network, and whether it ranks rows (`TopK`, for example)."""

    precision: Precision = "single"
    ranks: bool = False

    @property
    def limits(self) -> ErrorLimits:
        """The error limits of this precision."""
        return LIMITS[self.precision]


Rule: TypeAlias = Literal["given", "precision", "ties", "replay", "movement"]

FACTOR = 4.0
"""A result may differ from the whole model's by this multiple of its movement, which is that of one
or two ways to round among many."""

FLOOR = 1e-3
"""Outputs smaller than this are compared absolutely. Times `ErrorLimits.strict`, it is about one
unit in the last place of 1.0."""

SMALL = 0.1
"""For outputs smaller than this, `ErrorLimits.most` is a fraction of `SMALL`. For example, a
normalisation of an image of one colour leaves only rounding errors, which move by more than their
size."""


@dataclass(frozen=True, slots=True)
class Difference:
    """The largest difference between elements of two outputs, and the root mean square of all."""

    largest: float = 0.0
    rms: float = 0.0

    def maximum(self, other: Difference) -> Difference:
        """Return the larger value of each field."""
        return Difference(max(self.largest, other.largest), max(self.rms, other.rms))


@dataclass(frozen=True, slots=True)
class ErrorLimits:
    """Relative errors that count as agreement.

    `strict` always does; `proven` does if every step of the plan was found right; `most` limits
    what movement allows. `step` is the error of a single unfused subnet: another order of addition
    rounds a few 8-bit values to a neighbouring integer.
    """

    strict: float
    proven: float
    most: float
    step: Difference


LIMITS: Mapping[Precision, ErrorLimits] = {
    "single": ErrorLimits(1e-4, 1e-4, 1e-2, Difference(1e-4, 1e-4)),
    "half": ErrorLimits(2e-3, 4e-3, 5e-2, Difference(2e-3, 2e-3)),
    "8-bit": ErrorLimits(1e-4, 1e-2, 1e-1, Difference(2e-2, 2e-3)),
}


@dataclass(frozen=True, slots=True)
class WorstOutput:
    """The output with the largest error relative to the allowed one, and the rule applied."""

    output: str
    error: float
    allowed: float
    rule: Rule

    @property
    def agrees(self) -> bool:
        """Whether this output agrees, and with it all others."""
        return self.error <= self.allowed

    @property
    def ratio(self) -> float:
        """The error divided by the allowed one; verdicts are compared by it."""
        if self.error == 0.0:
            return 0.0
        if math.isinf(self.error):
            return 1.0 if math.isinf(self.allowed) else math.inf
        return self.error / self.allowed if self.allowed > 0 else math.inf


@dataclass(frozen=True, slots=True)
class FirstDifference:
    """Where a run's computation first differs from the whole model's; unknown fields are empty."""

    sentence: str
    phase: str = ""
    node: str = ""
    layer: str = ""
    tensor: str = ""


def numbers_of(dtypes: Iterable[str], operators: Iterable[str]) -> Numbers:
    """Return the numbers of a network with tensors of `dtypes` and with these `operators`."""
    names = set(operators)
    ranks = not names.isdisjoint(RANKING_OPERATORS)
    if any("uantize" in name or "QLinear" in name or "Integer" in name for name in names):
        return Numbers("8-bit", ranks)
    half = any(dtype in ("float16", "bfloat16") for dtype in dtypes)
    return Numbers("half" if half else "single", ranks)


def difference(found: Array, wanted: Array, numbers: Numbers) -> Difference:
    """Return the relative difference between two outputs, as the module's docstring defines it.

    It is infinite if the shapes differ, or if only one of both has NaN or infinity somewhere.
    """
    return relative_difference(absolute_difference(found, wanted, numbers), wanted, numbers)


def absolute_difference(found: Array, wanted: Array, numbers: Numbers) -> Difference:
    """Return the difference in the outputs' unit; for discrete outputs, the share that differs."""
    if _is_discrete(wanted, numbers.precision):
        share = _share(found, wanted)
        return Difference(share, share)
    if found.shape != wanted.shape:
        return Difference(math.inf, math.inf)
    one, other = found.astype(np.float64), wanted.astype(np.float64)
    same = (one == other) | (np.isnan(one) & np.isnan(other))
    with np.errstate(all="ignore"):
        sizes = np.where(same, 0.0, np.abs(one - other))
    largest = float(np.max(sizes, initial=0.0))
    if not math.isfinite(largest):
        return Difference(math.inf, math.inf)
    return Difference(largest, float(np.sqrt(np.mean(sizes**2))) if sizes.size else 0.0)


def relative_difference(absolute: Difference, wanted: Array, numbers: Numbers) -> Difference:
    """Return an absolute difference relative to the size of `wanted`."""
    if _is_discrete(wanted, numbers.precision):
        return absolute
    largest, rms = _scales(wanted)
    return Difference(absolute.largest / largest, absolute.rms / rms)


def strict(
    found: Outputs,
    wanted: Outputs,
    numbers: Numbers,
    given: float | None = None,
    spread: Mapping[str, float] = MappingProxyType({}),
) -> WorstOutput:
    """Judge by the rules that need only both results: given or precision, and ties.

    `spread` maps outputs to what is to be added to their errors.
    """
    allowed = numbers.limits.strict if given is None else given
    rule: Rule = "precision" if given is None else "given"
    plain = _worst(found, wanted, numbers, allowed, rule, spread)
    if plain.agrees or not numbers.ranks:
        return plain
    ordered = aligned(found, wanted, allowed)
    tied = _worst(ordered, wanted, numbers, allowed, "ties", spread)
    return tied if tied.agrees else plain


def within_movement(
    found: Outputs,
    wanted: Outputs,
    variants: Sequence[Outputs],
    numbers: Numbers,
    rule: Literal["replay", "movement"],
    spread: Mapping[str, float] = MappingProxyType({}),
) -> WorstOutput:
    """Judge by the movement of `wanted` to its `variants`, which are rounded otherwise; the caller
    checks the other conditions of `rule`."""
    limits = numbers.limits
    least = limits.proven if rule == "replay" else limits.strict
    most = math.inf if rule == "replay" else limits.most
    moved = movement(variants, wanted, numbers)
    ordered = _ordered(found, wanted, numbers)
    return _bounded(ordered, wanted, moved, Difference(least, least), most, numbers, rule, spread)


def judge_step(found: Outputs, wanted: Outputs, numbers: Numbers) -> WorstOutput:
    """Judge whether a single unfused subnet computes what it should."""
    still = dict.fromkeys(wanted, Difference())
    ordered = _ordered(found, wanted, numbers)
    return _bounded(ordered, wanted, still, numbers.limits.step, 0.0, numbers, "movement")


def within_fusing(
    found: Outputs, wanted: Outputs, unfused: Outputs, right: Outputs, numbers: Numbers
) -> WorstOutput:
    """Judge whether `found` differs from `wanted` only because operators are fused differently.

    With nothing fused, the plan computes `unfused` and the whole model `right`. If these agree,
    `found` may differ from `wanted` by `FACTOR` times what fusion moves the plan's result. In 8
    bits it may by `ErrorLimits.most` at most, because optimisers that are wrong for quantised
    networks, of which ONNX Runtime has several (`nodes.executors.onnx.quantised`), move it further.
    """
    rule: Rule = "replay"
    same = judge_step(unfused, right, numbers)
    if not same.agrees:
        return WorstOutput(same.output, same.error, same.allowed, rule)
    moved, limit = movement([unfused], found, numbers), numbers.limits.proven
    ordered = _ordered(found, wanted, numbers)
    most = numbers.limits.most if numbers.precision == "8-bit" else math.inf
    return _bounded(ordered, wanted, moved, Difference(limit, limit), most, numbers, rule)


def movement(variants: Sequence[Outputs], of: Outputs, numbers: Numbers) -> dict[str, Difference]:
    """Output → the largest difference between `variants` and `of`, with ties in order."""
    moved = dict.fromkeys(of, Difference())
    for variant in variants:
        ordered = _ordered(variant, of, numbers)
        for name, array in of.items():
            moved[name] = moved[name].maximum(difference(ordered[name], array, numbers))
    return moved


def _bounded(
    found: Outputs,
    wanted: Outputs,
    moved: Mapping[str, Difference],
    least: Difference,
    most: float,
    numbers: Numbers,
    rule: Rule,
    spread: Mapping[str, float] = MappingProxyType({}),
) -> WorstOutput:
    verdicts = []
    for name, array in wanted.items():
        off, own = difference(found[name], array, numbers), moved[name]
        largest, rms = (1.0, 1.0) if _is_discrete(array, numbers.precision) else _scales(array)
        for error, movement, floor, cap in (
            (off.largest, own.largest, least.largest, most * max(1.0, SMALL / largest)),
            (off.rms, own.rms, least.rms, most * max(1.0, SMALL / rms)),
        ):
            allowed = max(floor, min(FACTOR * movement, cap))
            verdicts.append(WorstOutput(name, error + spread.get(name, 0.0), allowed, rule))
    return worst(verdicts, rule)


def worst(verdicts: Iterable[WorstOutput], rule: Rule = "precision") -> WorstOutput:
    """Return the verdict with the largest error relative to the allowed one."""
    return max(verdicts, key=lambda found: found.ratio, default=WorstOutput("", 0.0, 0.0, rule))


def _ordered(found: Outputs, wanted: Outputs, numbers: Numbers) -> Outputs:
    """Put tied rows in order, and replace rows at the end that tie with rows that are missing."""
    if not numbers.ranks:
        return found
    return aligned(found, wanted, numbers.limits.strict, forgive=True)


def _worst(
    found: Outputs,
    wanted: Outputs,
    numbers: Numbers,
    allowed: float,
    rule: Rule,
    spread: Mapping[str, float],
) -> WorstOutput:
    verdicts = []
    for name, array in wanted.items():
        error = difference(found[name], array, numbers).largest + spread.get(name, 0.0)
        verdicts.append(WorstOutput(name, error, allowed, rule))
    return worst(verdicts, rule)


def _is_discrete(array: Array, precision: Precision) -> bool:
    """Whether elements are choices and not quantities; 8-bit networks have 8-bit quantities."""
    if array.dtype.kind == "f":
        return False
    return not (precision == "8-bit" and array.dtype.itemsize == 1 and array.dtype.kind in "iu")


def _share(found: Array, wanted: Array) -> float:
    """The share of elements that differ; of rows, in any order, if the numbers of rows differ."""
    if found.shape == wanted.shape:
        return float(np.mean(found != wanted)) if wanted.size else 0.0
    if found.ndim != wanted.ndim or found.shape[1:] != wanted.shape[1:]:
        return math.inf
    here = {row.tobytes() for row in found}
    there = {row.tobytes() for row in wanted}
    return len(here ^ there) / max(len(here | there), 1)


def _scales(wanted: Array) -> tuple[float, float]:
    """The largest and the root mean square of the finite absolute values, at least `FLOOR`."""
    sizes = np.abs(wanted.astype(np.float64))
    sizes = sizes[np.isfinite(sizes)]
    if not sizes.size:
        return FLOOR, FLOOR
    return max(float(sizes.max()), FLOOR), max(float(np.sqrt(np.mean(sizes**2))), FLOOR)
