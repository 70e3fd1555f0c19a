"""Derives a board's figures from the seconds of its probes, and finds doubtful measurements.

With `run` for the constant of a run, `cut` for a byte that enters or leaves a network, `tensor` and
`weight` for a byte that a layer touches, and `x` for a multiply-accumulate of a kind, a probe of n
layers takes

    run + bytes of its input and output × cut
        + n × (multiply-accumulates × x + bytes of tensors × tensor + bytes of weights × weight).

Sums of tensors have no multiply-accumulates and are not converted at the border, one row times a
matrix touches hardly any tensors, and two probes of depthwise convolutions differ only in n. So
each figure follows from one probe and the figures before it.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from nodes.measuring.probes import ADDED, DENSE, DEPTHWISE, MATRIX, POINTWISE, SIDE
from nodes.protocol.messages import BoardFigures

IMAGE = SIDE * SIDE

LEAST_PART = 0.1
"""The arithmetic of a layer counts as at least this part of its time, because differences of
measured times may be off by more than all of it."""

MOST_SPREAD = 2.0
"""The largest factor between the median and the lower quartile of a probe's runs. Probes that take
less than `SHORT_S` are exempt, because timers and interrupts disturb them."""

MOST_DRIFT = 1.5
"""The largest factor between the lower quartiles of a probe's earlier and later runs."""

SHORT_S = 1e-4

FASTEST_S, SLOWEST_S = 1e-15, 1e-4
"""Bounds of the time of a multiply-accumulate: a tenth of that on the fastest GPU, and more than in
an emulator."""


@dataclass(frozen=True, slots=True)
class Samples:
    """Measured seconds: of the runs of each probe, by its name, and of messages.

    `suspended_s` is the lead of the clock that counts suspension over the one that does not.
    """

    seconds: Mapping[str, Sequence[float]]
    message_s: float
    byte_s: float
    encode_s_per_byte: float
    suspended_s: float = 0.0

    @property
    def typical_s(self) -> dict[str, float]:
        """Return the lower quartile of each probe, because every disturbance makes a run longer."""
        return {name: lower_quartile(runs) for name, runs in self.seconds.items()}


def lower_quartile(values: Sequence[float]) -> float:
    """Return the largest of the smallest quarter, rounded down, of the values."""
    return sorted(values)[len(values) // 4]


def derived(samples: Samples, threads: int) -> BoardFigures:
    """Return the figures of a board that computes with `threads` threads."""
    took = samples.typical_s
    run_s = took["run"]
    tensor_s = _positive(took["added"] - run_s, took["added"]) / 4 / (12 * ADDED * IMAGE)
    weight_s = _positive(took["matrix"] - run_s, took["matrix"]) / (4 * MATRIX[0] * MATRIX[1])
    layer_s = _positive((took["depthwise4"] - took["depthwise"]) / 3, took["depthwise"] / 4)
    border = 8 * DEPTHWISE * IMAGE
    cut_s = max(0.0, took["depthwise"] - layer_s - run_s) / border

    def arithmetic_s(layer_s: float, channels: int, weights: int) -> float:
        """Return the seconds per multiply-accumulate of a layer that keeps its channels."""
        bytes_s = 8 * channels * IMAGE * tensor_s + 4 * weights * weight_s
        return _positive(layer_s - bytes_s, layer_s) / (weights * IMAGE)

    def of_two(name: str, channels: int, weights: int) -> float:
        whole_s = took[name] - run_s - 8 * channels * IMAGE * cut_s
        return arithmetic_s(_positive(whole_s, took[name]) / 2, channels, weights)

    integer_s = _positive(took["integer"] - run_s, took["integer"])
    return BoardFigures(
        threads=threads,
        dense_s_per_mac=of_two("dense", DENSE, 9 * DENSE * DENSE),
        pointwise_s_per_mac=of_two("pointwise", POINTWISE, POINTWISE * POINTWISE),
        depthwise_s_per_mac=arithmetic_s(layer_s, DEPTHWISE, 9 * DEPTHWISE),
        integer_s_per_mac=arithmetic_s(integer_s, DENSE, 9 * DENSE * DENSE),
        weight_s_per_byte=weight_s,
        tensor_s_per_byte=tensor_s,
        cut_s_per_byte=cut_s,
        run_s=run_s,
        message_s=samples.message_s,
        byte_s=samples.byte_s,
        encode_s_per_byte=samples.encode_s_per_byte,
    )


def doubt(samples: Samples) -> str:
    """Return why the measurement cannot be believed, as a clause; empty if it can."""
    if samples.suspended_s > 0:
        return f"the board was suspended during the measurement, for {samples.suspended_s:.1f} s"
    others = (samples.message_s, samples.byte_s, samples.encode_s_per_byte)
    if min(map(min, samples.seconds.values())) <= 0 or min(others) < 0:
        return "its clocks stood still or went backwards"
    for runs in samples.seconds.values():
        least_s, middle_s = lower_quartile(runs), statistics.median(runs)
        if least_s >= SHORT_S and middle_s > MOST_SPREAD * least_s:
            return (
                f"other programs disturbed it: one computation took {1e3 * least_s:.2f} ms in a "
                f"quarter of its runs, and more than {1e3 * middle_s:.2f} ms in half of them; stop "
                "other programs on that board"
            )
    if (drift := _drift(samples.seconds)) > MOST_DRIFT:
        return f"its processor became {drift:.1f} times slower or faster during the measurement"
    if not FASTEST_S <= derived(samples, 1).dense_s_per_mac <= SLOWEST_S:
        return "the measured time of a multiply-accumulate is impossible"
    return ""


def under_share(figures: BoardFigures, computing: float, serving: float) -> BoardFigures:
    """Return the figures under a quota, from those without one.

    The computing thread has `computing` of a core, and all threads together have `serving`.
    """
    changed = {
        name: getattr(figures, name) / (serving if name in ("message_s", "byte_s") else computing)
        for name in BoardFigures.__slots__
        if name != "threads"
    }
    return replace(figures, **changed)


def _drift(seconds: Mapping[str, Sequence[float]]) -> float:
    """Return the factor by which the later half of the runs of all long probes differs from the
    earlier half."""
    before = after = 0.0
    for runs in seconds.values():
        half = len(runs) // 2
        if half and lower_quartile(runs) >= SHORT_S:
            before += lower_quartile(runs[:half])
            after += lower_quartile(runs[-half:])
    return max(before / after, after / before) if before and after else 1.0


def _positive(part_s: float, whole_s: float) -> float:
    """Return a part of a time, but at least `LEAST_PART` of the whole."""
    return max(part_s, LEAST_PART * whole_s)
