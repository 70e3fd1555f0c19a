"""Vanishree et al. (2020): Table III and the examples of §II and §IV-A.

Table III was measured on devices that are not here, with networks whose profiles are not
published. What the paper states in numbers can be recomputed: the ratio 36:27:37 of MobileNet
(which is put in as such), its re-balancing where GPU1 has memory for 6 images, and that the
competitor's ratio (by peak TFLOP/s of Table I) does not fit there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from benchmarks.papers.rows import RECOMPUTED, Row, Section, Values, checked, compared, impossible
from partition.pricing.linear_models import LinearTime, deal_by_ratio, deal_frames

PAPER_NAME = "Vanishree et al. (ICACCS 2020)"

TABLE_III: Mapping[str, tuple[float | None, float, float | None]] = {
    "Cifar10Net": (0.017, 0.0076, 2.23),
    "LeNet": (0.0087, 0.0048, 1.78),
    "SqueezeNet": (0.2842, 0.21, 1.34),
    "MobileNet": (None, 0.94, None),
    "GoogleNet": (0.6062, 0.416, 1.45),
    "resnet-18": (0.5041, 0.38, 1.318),
}
"""Network → seconds with CcT's ratio and with CoIn's for 100 images, and the speed-up."""

MEAN_SPEEDUP = 1.62

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
    """Yield the sections of this paper."""
    del quick  # all of it takes milliseconds
    yield Section(PAPER_NAME, "Eq. 1 and re-balancing, MobileNet, 100 images", _examples())
    yield Section(PAPER_NAME, "Table III, CoIn against CcT", _table_iii())


def _examples() -> tuple[Row, ...]:
    devices = [LinearTime(0.0, 1 / share) for share in RATIO]
    rows = []
    for what, published, most in (
        ("shares", RATIO, (None,) * 3),
        ("re-balanced, GPU1 holds 6", REBALANCED, MOST),
    ):
        for name, deal in (("Eq. 1", deal_by_ratio), ("soonest end", deal_frames)):
            rows.append(
                compared(
                    f"{what}, by {name}",
                    Values.of(published, "{}:{}:{}"),
                    Values.of(deal(devices, 100, most), "{}:{}:{}"),
                    RECOMPUTED,
                    within=[0, 0, 0],
                    because="the rounding to whole images differs",
                    null="33:33:34, equal shares",
                )
            )
    return tuple(rows)


def _table_iii() -> tuple[Row, ...]:
    rows = []
    for name, (cct_s, coin_s, published) in TABLE_III.items():
        if cct_s is None or published is None:
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
                f"{published}×",
                "the devices are not here and their profiles are not published (the published "
                f"times give {cct_s / coin_s:.2f}×)",
            )
        )
    speedups = [speedup for _, _, speedup in TABLE_III.values() if speedup is not None]
    rows.append(
        compared(
            "mean of the table's speed-ups",
            Values.of([MEAN_SPEEDUP], "{:.2f}×"),
            Values.of([sum(speedups) / len(speedups)], "{:.2f}×"),
            RECOMPUTED,
            within=[0.005],
            because="the table's figures have another mean",
        )
    )
    for what, theirs in (
        ("§II: error of time linear in the batch", "3.53 %"),
        ("§IV-A: re-balancing where GPU1 holds 6 images, four networks", "11.16 %"),
        ("§IV-A: CPU, GPU and FPGA, CifarNet and SqueezeNet", "43.88 and 56.89 %"),
    ):
        rows.append(impossible(what, theirs, "the devices and their profiles are not here"))
    return tuple(rows)
