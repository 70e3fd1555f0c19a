"""How far a result may be from the whole model's, and by which rule.

Two engines, or one at two levels of fusion, add up in another order, so results are never asked to
be equal. How far apart they may be follows from the numbers that the network computes with, and,
where that is not enough, from how far the whole model's own result moves when nothing but rounding
changes: when its input moves by one unit in the last place, up, down or both ways, and when ONNX
Runtime fuses its operators less or not at all (its *variants*). The error of a floating-point
output is

    max |found − wanted| / max(max |wanted|, FLOOR),

so outputs that are all about zero are compared absolutely. The error of a discrete output (whole
numbers, truth values) is the share of its elements that differ, or of rows where the number of rows
depends on the data. A 100th of an error in every element is not the same as in one, so movement is
measured by the largest difference and by the root of the mean square, and bounds both.

| rule      | when it is asked                    | agrees if                                      |
|-----------|-------------------------------------|------------------------------------------------|
| given     | the user set a tolerance            | error ≤ that; no other rule but ties is asked  |
| precision | always                              | error ≤ `ErrorLimits.strict` of the numbers    |
| ties      | precision fails, the network ranks  | so it does once rows whose scores tie are in   |
|           |                                     | the whole model's order (`ranking`)            |
| replay    | ties fails, and the plan's subnets  | the subnets give what the nodes gave; each,    |
|           | can be run here                     | given the whole model's own tensors, computes  |
|           |                                     | what the whole model does (`right_step`); and  |
|           |                                     | error ≤ max(`proven`, 4 × movement); or with   |
|           |                                     | nothing fused, plan and whole model agree, and |
|           |                                     | error ≤ 4 × what fusing moves the plan by      |
| movement  | the nodes may round in another way  | error ≤ 4 × movement, `most` at most; and each |
|           | than this machine, or nothing can   | subnet that can be run here computes what the  |
|           | be replayed                         | whole model does                               |

Only `replay` may go beyond `ErrorLimits.most`, as an unstable network would have every tolerance
widened until it hides real errors: there the proof is that no single step of the plan is wrong.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal, TypeAlias

import numpy as np

from launcher.results.comparison.ranking import RANKING_OPERATORS, aligned
from launcher.run.runtime import Array

Outputs: TypeAlias = Mapping[str, Array]

Precision: TypeAlias = Literal["single", "half", "8-bit"]


@dataclass(frozen=True, slots=True)
class Numbers:
    """What a network computes with: the coarsest of its numbers, and whether it ranks (`TopK`)."""

    precision: Precision = "single"
    ranks: bool = False

    @property
    def limits(self) -> ErrorLimits:
        """The limits of the precision."""
        return LIMITS[self.precision]


Rule: TypeAlias = Literal["given", "precision", "ties", "replay", "movement"]

FACTOR = 4.0
"""A result may be this many times as far from the whole model's as its variants are: these are few,
and the largest of a few differences is less than the largest of many."""

FLOOR = 1e-3
"""Outputs smaller than this are compared absolutely; times `ErrorLimits.strict`, about one unit in
the last place of 1.0."""

SMALL = 0.1
"""Of outputs smaller than this, `ErrorLimits.most` is a part of it: behind a norm, an image of one
colour leaves nothing but rounding, which moves by more than its own size."""


@dataclass(frozen=True, slots=True)
class Difference:
    """The largest relative difference of two outputs, and the root of its mean square."""

    largest: float = 0.0
    rms: float = 0.0

    def beside(self, other: Difference) -> Difference:
        """The larger of both, for each field."""
        return Difference(max(self.largest, other.largest), max(self.rms, other.rms))


@dataclass(frozen=True, slots=True)
class ErrorLimits:
    """Relative errors: `strict` always counts as agreement, `proven` does where every step of the
    plan was seen to be right, `most` is as far as movement may widen, and `step` is what one
    unfused subnet may be off: where a sum lies between two whole numbers, another order of adding
    takes the other one of a few 8-bit values. An input is moved by `unit`, relative to itself
    (8-bit: to its largest)."""

    strict: float
    proven: float
    most: float
    step: Difference
    unit: float


LIMITS: Mapping[Precision, ErrorLimits] = {
    "single": ErrorLimits(1e-4, 1e-4, 1e-2, Difference(1e-4, 1e-4), 2.0**-23),
    "half": ErrorLimits(2e-3, 4e-3, 5e-2, Difference(2e-3, 2e-3), 2.0**-10),
    "8-bit": ErrorLimits(1e-4, 1e-2, 1e-1, Difference(2e-2, 2e-3), 2.0**-8),
}


@dataclass(frozen=True, slots=True)
class WorstOutput:
    """The output that is worst beside what its rule allows."""

    output: str
    error: float
    allowed: float
    rule: Rule

    @property
    def agrees(self) -> bool:
        """Whether every output does."""
        return self.error <= self.allowed

    @property
    def ratio(self) -> float:
        """Error over what is allowed; verdicts are compared by it."""
        if self.error == 0.0:
            return 0.0
        if math.isinf(self.error):
            return 1.0 if math.isinf(self.allowed) else math.inf
        return self.error / self.allowed if self.allowed > 0 else math.inf


@dataclass(frozen=True, slots=True)
class Beginning:
    """Where a run begins to differ from the whole model; empty text where that is not known."""

    sentence: str
    phase: str = ""
    node: str = ""
    layer: str = ""
    tensor: str = ""


def numbers_of(dtypes: Iterable[str], operators: Iterable[str]) -> Numbers:
    """What a network of these tensors and operators computes with."""
    names = set(operators)
    ranks = not names.isdisjoint(RANKING_OPERATORS)
    if any("uantize" in name or "QLinear" in name or "Integer" in name for name in names):
        return Numbers("8-bit", ranks)
    half = any(dtype in ("float16", "bfloat16") for dtype in dtypes)
    return Numbers("half" if half else "single", ranks)


def difference(found: Array, wanted: Array, numbers: Numbers) -> Difference:
    """How far `found` is from `wanted`: see the module's docstring.

    Infinite for other shapes, and for NaN or infinity that only one of both has.
    """
    return relative(apart(found, wanted, numbers), wanted, numbers)


def apart(found: Array, wanted: Array, numbers: Numbers) -> Difference:
    """The difference in the outputs' own unit; of discrete ones it is a share already."""
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


def relative(apart: Difference, wanted: Array, numbers: Numbers) -> Difference:
    """`apart` beside the size of what is wanted."""
    if _is_discrete(wanted, numbers.precision):
        return apart
    largest, rms = _scales(wanted)
    return Difference(apart.largest / largest, apart.rms / rms)


def strict(
    found: Outputs,
    wanted: Outputs,
    numbers: Numbers,
    given: float | None = None,
    spread: Mapping[str, float] = MappingProxyType({}),
) -> WorstOutput:
    """By the rules that need nothing but both results: given, precision, and ties with either.

    `spread` has what is to be added to an output's error.
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
    """By how far `variants` are from `wanted`; the caller sees to the rest of what `rule` asks."""
    limits = numbers.limits
    least = limits.proven if rule == "replay" else limits.strict
    most = math.inf if rule == "replay" else limits.most
    moved = movement(variants, wanted, numbers)
    ordered = _ordered(found, wanted, numbers)
    return _bounded(ordered, wanted, moved, Difference(least, least), most, numbers, rule, spread)


def right_step(
    found: Outputs, wanted: Outputs, variants: Sequence[Outputs], numbers: Numbers
) -> WorstOutput:
    """Whether one unfused subnet computes what it should; `variants` are of `found`, not of
    `wanted`, so that an error in the subnet does not allow itself."""
    limits = numbers.limits
    moved = movement(variants, found, numbers)
    ordered = _ordered(found, wanted, numbers)
    return _bounded(ordered, wanted, moved, limits.step, limits.most, numbers, "movement")


def by_fusing(
    found: Outputs, wanted: Outputs, unfused: Outputs, right: Outputs, numbers: Numbers
) -> WorstOutput:
    """Whether `found` differs from `wanted` only because engines fuse a plan's subnets in another
    way than the whole model: with nothing fused, the plan computes `unfused` and the whole model
    `right`. If these are the same, `found` may be as far from `wanted` as fusing moves the plan."""
    rule: Rule = "replay"
    same = right_step(unfused, right, [], numbers)
    if not same.agrees:
        return WorstOutput(same.output, same.error, same.allowed, rule)
    moved, limit = movement([unfused], found, numbers), numbers.limits.proven
    ordered = _ordered(found, wanted, numbers)
    return _bounded(ordered, wanted, moved, Difference(limit, limit), math.inf, numbers, rule)


def movement(variants: Sequence[Outputs], of: Outputs, numbers: Numbers) -> dict[str, Difference]:
    """Output → how far the variants are from `of` at most, ties put in order."""
    moved = dict.fromkeys(of, Difference())
    for variant in variants:
        ordered = _ordered(variant, of, numbers)
        for name, array in of.items():
            moved[name] = moved[name].beside(difference(ordered[name], array, numbers))
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
    """The verdict with the largest error beside what is allowed."""
    return max(verdicts, key=lambda found: found.ratio, default=WorstOutput("", 0.0, 0.0, rule))


def _ordered(found: Outputs, wanted: Outputs, numbers: Numbers) -> Outputs:
    """With ties in order, and rows at the end forgiven that tie with some that were not taken."""
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
    """Whether elements are choices rather than amounts; 8-bit networks have amounts of 8 bits."""
    if array.dtype.kind == "f":
        return False
    return not (precision == "8-bit" and array.dtype.itemsize == 1 and array.dtype.kind in "iu")


def _share(found: Array, wanted: Array) -> float:
    """The share of elements that differ; of rows, in any order, if their number differs."""
    if found.shape == wanted.shape:
        return float(np.mean(found != wanted)) if wanted.size else 0.0
    if found.ndim != wanted.ndim or found.shape[1:] != wanted.shape[1:]:
        return math.inf
    here = {row.tobytes() for row in found}
    there = {row.tobytes() for row in wanted}
    return len(here ^ there) / max(len(here | there), 1)


def _scales(wanted: Array) -> tuple[float, float]:
    """(largest, root of mean square) of the finite sizes, and no less than `FLOOR`."""
    sizes = np.abs(wanted.astype(np.float64))
    sizes = sizes[np.isfinite(sizes)]
    if not sizes.size:
        return FLOOR, FLOOR
    return max(float(sizes.max()), FLOOR), max(float(np.sqrt(np.mean(sizes**2))), FLOOR)
