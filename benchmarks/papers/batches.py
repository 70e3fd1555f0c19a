"""Vanishree et al. (2020): Table III and the examples of §II and §IV-A.

Table III was measured on devices that are not here, with networks whose profiles are not
published. What the paper states in numbers can be recomputed: the ratio 36:27:37 of MobileNet
(which is put in as such), its re-balancing where GPU1 has memory for 6 images, and that the
competitor's ratio (by peak TFLOP/s of Table I) does not fit there. The experiment itself is
repeated on two devices of this machine (`benchmarks.papers.sub_batches`).
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping

from benchmarks.papers.rows import (
    MEASURED,
    RECOMPUTED,
    Row,
    Section,
    Values,
    checked,
    compared,
    impossible,
    published,
)
from benchmarks.papers.sub_batches import NETWORKS, Dealt, measure
from partition.pricing.linear_models import LinearTime, deal_by_ratio, deal_frames

PAPER_NAME = "Vanishree et al. (ICACCS 2020)"

TABLE_III = published("004")["table_iii"]
MEAN_SPEEDUP = 1.62
LINEAR_ERROR, REBALANCING = 3.53, 11.16
"""§II and §IV-A.2, in per cent."""

RATIO = (36, 27, 37)
"""Images of 100 that MobileNet's profile gives to CPU2, GPU1 and GPU2 (§IV-A.2)."""

REBALANCED = (46, 6, 48)
"""The same with memory for 6 images on GPU1."""

MOST = (None, 6, None)
"""The images that each device's memory holds."""

PEAK_FLOPS = (4 * 32 * 2.6e9, 512 * 2 * 1020e6, 2880 * 2 * 889e6)
"""CPU2, GPU1 and GPU2 by Table I: cores × operations per cycle × clock. A Skylake core does 32
single-precision operations per cycle, a CUDA core 2. The table's "889GHz" must be MHz."""


def sections(*, quick: bool = False) -> Iterator[Section]:
    """Yield the sections of this paper; `quick` omits what is measured, for about a minute."""
    yield Section(PAPER_NAME, "Eq. 1 and re-balancing, MobileNet, 100 images", _examples())
    yield Section(PAPER_NAME, "Table III, CoIn against CcT", _table_iii())
    if not quick:
        rows = tuple(measured({name: measure(*about) for name, about in NETWORKS.items()}))
        yield Section(PAPER_NAME, "Table III's shape, on two devices of this machine", rows)


def _examples() -> tuple[Row, ...]:
    devices = [LinearTime(0.0, 1 / share) for share in RATIO]
    rows = []
    for what, theirs, most in (
        ("shares", RATIO, (None,) * 3),
        ("re-balanced, GPU1 holds 6", REBALANCED, MOST),
    ):
        for name, deal in (("Eq. 1", deal_by_ratio), ("soonest end", deal_frames)):
            rows.append(
                compared(
                    f"{what}, by {name}",
                    theirs,
                    deal(devices, 100, most),
                    RECOMPUTED,
                    form="{}:{}:{}",
                    within=[0, 0, 0],
                    because="the rounding to whole images differs",
                    null="33:33:34, equal shares",
                )
            )
    return tuple(rows)


def _table_iii() -> tuple[Row, ...]:
    rows = []
    for name, (cct_s, coin_s, speedup) in TABLE_III.items():
        if cct_s is None or speedup is None:
            images = 100 * PEAK_FLOPS[1] / sum(PEAK_FLOPS)
            fits = images <= (MOST[1] or 0)
            rows.append(
                checked(
                    f"{name}: CcT's ratio",
                    "memory insufficient",
                    f"{images:.0f} images for GPU1, which holds {MOST[1]}",
                    RECOMPUTED,
                    agrees=not fits,
                    because="the ratio by peak TFLOP/s fits",
                )
            )
            continue
        rows.append(
            impossible(
                f"{name}: speed-up",
                f"{speedup}×",
                "the devices are not here and their profiles are not published (the published "
                f"times give {cct_s / coin_s:.2f}×)",
            )
        )
    speedups = [
        speedup for _, _, speedup in published("004")["table_iii"].values() if speedup is not None
    ]
    rows.append(
        compared(
            "mean of the table's speed-ups",
            [MEAN_SPEEDUP],
            [sum(speedups) / len(speedups)],
            RECOMPUTED,
            form="{:.2f}×",
            within=[0.005],
            because="the table's figures have another mean",
        )
    )
    what = "§IV-A: CPU, GPU and FPGA, CifarNet and SqueezeNet"
    reason = "the devices and their profiles are not here"
    rows.append(impossible(what, "43.88 and 56.89 %", reason))
    return tuple(rows)


def measured(found: Mapping[str, Dealt]) -> Iterator[Row]:
    """Compare what was measured with two devices, one of them without optimisations."""
    error = 100 * statistics.mean(own.error for own in found.values())
    yield compared(
        f"§II: error of times linear in the batch, {len(found)} networks",
        [LINEAR_ERROR],
        [error],
        MEASURED,
        form="{:.2f} %",
        within=[2.0],
        because="an engine computes batches of some sizes better than others",
    )
    for name, own in found.items():
        speedup = TABLE_III[name][2]
        shown = ":".join(map(str, own.shares))
        yield Row(
            f"{name}: CoIn's shares against CcT's",
            "memory insufficient" if speedup is None else f"{speedup}×",
            f"{own.cct_s / own.coin_s:.2f}×, {shown}",
            "differs",
            "the devices are two cores of one machine, one with an engine that does not optimise",
            "1.00×, equal shares (CcT's, by equal peaks)",
        )
    saved = 100 * statistics.mean(1 - own.tight_s / own.alone_s for own in found.values())
    yield compared(
        "§IV-A: what re-balancing gains over the device that has room, mean of the networks",
        Values.of([REBALANCING], "{} %, four networks"),
        Values.of([saved], "{:.1f} %, where the other device holds a ninth of the batch"),
        MEASURED,
        within=[3.0],
        because="it follows from what the other device holds, and from how fast it is",
    )
