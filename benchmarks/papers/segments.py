"""Villarrubia et al. (2025): Tables 1 to 7 and the data of their figures.

Sizes follow from the networks and from the rule of their compiler (`partition.pricing.spill`).
Times are those of our cost model with seconds of layers in proportion to their weights, scaled so
that one device takes the published time (`pipeline`): so the speed-ups compare the segmentations,
and not an Edge TPU. The 2 GB/s at which a device fetches weights from its host were
fitted to Tables 3 and 7. The null model of a speed-up has no network: n devices with an n-th of the
published time each, without what fetching costs at that rate.

The paper measures batches of 15 frames. A pipeline takes the time of all its stages for the first
frame, and that of the slowest for each other one. Our speed-ups are those of an endless stream, as
the fitted rate is; what a batch of 15 leaves of them is given beside, and what it takes to fit it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from math import comb

import numpy as np

import cnn
from benchmarks.papers.rows import (
    COMPUTED,
    FITTED,
    NOTHING,
    RECOMPUTED,
    Row,
    Section,
    Source,
    Values,
    checked,
    compared,
    impossible,
    published,
)
from benchmarks.papers.segmentation import (
    BATCH,
    MIB,
    MODELS,
    TPU,
    at_8_bits,
    host_bytes,
    pipeline,
    synthetic,
    synthetic_network,
)
from cnn.network import Network

PAPER_NAME = "Villarrubia et al. (J. Supercomputing 2025)"
PUBLISHED = published("000")

ABSENT = "Keras does not make this network with the backend that exports it"
MORE = MODELS.parent / "papers"
"""The networks that only these tables need."""

PADDED = "the compiler pads tensors, and its rule is not published"

TOLERANCE_MIB, TOLERANCE = 0.015, 0.01
"""What the published sizes hold besides weights: hundredths of a MiB, and up to 1 %."""

SPEEDUP = 0.15
"""Speed-ups that differ by 15 % count as equal: our devices are no Edge TPUs."""

FEWEST_FILTERS, MOST_FILTERS = 32, 1152


def sections(*, quick: bool = False) -> Iterator[Section]:
    """Yield the sections of this paper; `quick` omits real networks and most synthetic ones."""
    filters = [482, 602] if quick else list(PUBLISHED["table_4"])
    yield _section("Table 2: one synthetic network on one device", map(_table_2, _keys("table_2")))
    for table, title, by in (
        ("table_4", "Table 4: SEGM_COMP (sequential-count), 4 devices", "count"),
        ("table_6", "Table 6: SEGM_PROF (sequential-profiled), 4 devices", "profiled"),
    ):
        yield _section(title, (segments_of(number, table, by) for number in filters))
    drops = PUBLISHED["figure_4"][: 1 if quick else None]
    yield _section("Figure 4: where weights begin to stay with the host", _figure_4(drops))
    if not quick:
        for title, table, row in (
            ("Table 1: parameters, operations, depth", "table_1", table_1),
            ("Table 3: a real network on one device", "table_3", _table_3),
            ("Table 5: SEGM_COMP (sequential-count)", "table_5", _table_5),
            ("Table 7: SEGM_BALANCED (sequential-balanced)", "table_5", _table_7),
        ):
            yield _section(title, (row(name, network_of(name)) for name in _keys(table)))
    yield _section("Figures, and claims of the text", _claims())


def _section(title: str, rows: Iterator[Row]) -> Section:
    return Section(PAPER_NAME, title, tuple(rows))


def _keys(table: str) -> list[str]:
    return list(PUBLISHED[table])


@cache
def network_of(name: str) -> Network | None:
    """The fixture at 8 bits per weight; None if there is none."""
    paths = [folder / f"{name}.onnx" for folder in (MODELS, MORE)]
    path = next((one for one in paths if one.exists()), None)
    return None if path is None else at_8_bits(cnn.read(str(path)).network)


def depth_of(network: Network) -> int:
    """Return the number of layers on the longest path."""
    depth: dict[str, int] = {}
    for layer in network.layers:
        before = [depth[network.producer[t]] for t in layer.inputs if t in network.producer]
        depth[layer.name] = 1 + max(before, default=0)
    return max(depth.values())


def table_1(name: str, network: Network | None) -> Row:
    parameters, macs, depth = PUBLISHED["table_1"][name]
    theirs = Values((parameters, macs), f"{parameters} M, {macs} M MACs, depth {depth}")
    if network is None:
        return impossible(name, theirs.shown, ABSENT)
    held = network.weight_bytes(tuple(network.layer)) / 1e6
    own = sum(layer.macs for layer in network.layers) / 1e6
    return compared(
        name,
        theirs,
        Values((held, own), f"{held:.1f} M, {own:.0f} M MACs, depth {depth_of(network)}"),
        COMPUTED,
        within=[0.01 * parameters + 0.05, 0.005 * macs],
        because="our file was exported with normalisation as part of convolutions",
    )


def _memory(
    what: str,
    mib: Sequence[float],
    network: Network,
    tolerance: float,
    because: str,
    source: Source,
) -> Row:
    host = host_bytes(network) / MIB
    return compared(
        what,
        mib,
        [network.weight_bytes(tuple(network.layer)) / MIB - host, host],
        source,
        form="{:.2f} + {:.2f} MiB (host)",
        within=[TOLERANCE_MIB + tolerance * size for size in mib],
        because=because,
    )


def _table_2(filters: str) -> Row:
    size, *mib = PUBLISHED["table_2"][filters]
    network = synthetic_network(int(filters))
    return _memory(f"{size} MiB ({filters} filters)", mib, network, 2 * TOLERANCE, PADDED, FITTED)


def _table_3(name: str, network: Network | None) -> Row:
    device, host = PUBLISHED["table_3"][name]
    if network is None:
        return impossible(name, f"{device:.2f} + {host:.2f} MiB (host)", ABSENT)
    weights = network.weight_bytes(tuple(network.layer)) / MIB
    because = (
        f"the compiler reports {device + host - weights:.2f} MiB more than the {weights:.2f} MiB "
        "of weights, and does not say for what"
    )
    return _memory(name, (device, host), network, 0.05, because, COMPUTED)


def segments_of(filters: int, table: str, by: str) -> Row:
    """The sizes of a synthetic network's four segments by a strategy, beside those of a table."""
    theirs, ours = PUBLISHED[table][filters], synthetic(filters)[by]
    return compared(
        f"{filters} filters",
        theirs,
        (*ours.device_mib, ours.host_mib),
        COMPUTED,
        form=" ".join(["{:.2f}"] * (len(theirs) - 1)) + " + {:.2f} MiB (host)",
        within=[TOLERANCE_MIB + TOLERANCE * size for size in theirs],
        because="the segments are not the same",
    )


def _figure_4(drops: Sequence[tuple[float, float]]) -> Iterator[Row]:
    """Drops are found by bisection: more filters never leave less with the host."""
    layers = synthetic_network(8).layers
    for drop, (before, after) in enumerate(drops, start=1):
        fewest, most = FEWEST_FILTERS, MOST_FILTERS
        while most - fewest > 1:
            middle = (fewest + most) // 2
            network = synthetic_network(middle)
            large = network.weight_bytes((layers[-1].name,))
            reached = host_bytes(network) >= drop * large
            fewest, most = (fewest, middle) if reached else (middle, most)
        size = synthetic_network(fewest).weight_bytes(tuple(layer.name for layer in layers)) / MIB
        yield checked(
            f"drop {drop}: the largest network before it",
            f"{before} to {after} MiB",
            f"{size:.2f} MiB",
            FITTED if drop == len(PUBLISHED["figure_4"]) else COMPUTED,
            agrees=before - TOLERANCE_MIB <= size <= after,
            because=PADDED,
        )


def _table_5(name: str, network: Network | None) -> Row:
    devices, host, spread, alone_ms, ms = PUBLISHED["table_5"][name]
    form = "host {:.2f} MiB, Δs {:.2f} MiB, {:.2f}×"
    theirs = Values.of([host, spread, alone_ms / ms], form)
    if network is None:
        return impossible(name, theirs.shown, ABSENT)
    found = pipeline(network, devices, alone_ms)
    own_spread = max(found.count) - min(found.count)
    row = compared(
        f"{name}, {devices} devices",
        theirs,
        [found.count_host, own_spread, found.count_speedup],
        FITTED,
        form=form,
        within=[0.05, 0.1 * spread, SPEEDUP * alone_ms / ms],
        because=(
            "equal numbers of layers, which give all of Table 4, leave segments so unequal here "
            "that the compiler must weigh parameters in real networks, by a rule that is not "
            "published"
        ),
    )
    in_batch = f"{found.count_batch_speedup:.2f}× in a batch of {BATCH}"
    return replace(row, ours=f"{row.ours}; {in_batch}")


def _table_7(name: str, network: Network | None) -> Row:
    devices, _, _, alone_ms, _ = PUBLISHED["table_5"][name]
    form = "host {:.2f} MiB, {:.2f}×"
    theirs = Values.of([0.0, alone_ms / PUBLISHED["table_7"][name]], form)
    if network is None:
        return impossible(name, theirs.shown, ABSENT)
    found = pipeline(network, devices, alone_ms)
    fetching_ms = PUBLISHED["table_3"][name][1] * MIB * TPU.cache_s_per_byte * 1e3
    in_batch = f"{found.balanced_batch_speedup:.2f}× in a batch of {BATCH}"
    row = compared(
        f"{name}, {devices} devices",
        theirs,
        [found.balanced_host, found.balanced_speedup],
        FITTED,
        form=form,
        within=[0.01, SPEEDUP * theirs.numbers[1]],
        null=f"{devices * alone_ms / (alone_ms - fetching_ms):.2f}×",
        because=(
            "an Edge TPU's time is not proportional to weights; ours is, and one device pays "
            "2 GB/s for what is with the host"
        ),
    )
    return replace(row, ours=f"{row.ours}; {in_batch}; {found.seconds:.1f} s, {found.way}")


def _claims() -> Iterator[Row]:
    cuts = comb(208, 5)
    yield checked(
        "§5.3: cuts of ResNet101 (depth 209) into 6 segments",
        "more than 3·10⁹",
        f"{cuts:.3g}",
        RECOMPUTED,
        agrees=cuts > 3e9,
        because="C(208, 5) is another number",
    )
    alone_ms, ms = PUBLISHED["table_5"]["ResNet101V2"][3], PUBLISHED["table_7"]["ResNet101V2"]
    for what, theirs, ours, source, form, within, because in (
        (
            "§6.1.2: operations of Algorithm 1 for ResNet101, d · log ΣP",
            *(5311, float(209 * np.log2(44.7e6)), RECOMPUTED, "{:.0f}", 5),
            "the logarithm has another base",
        ),
        (
            "Fig. 6: largest speed-up of SEGM_COMP with 4 devices, no weights with the host",
            *(1.8, _even_speedup((1, 1, 1, 2)), COMPUTED, "{:.1f}×", 0.05),
            "ours is the bound that two of four equal layers in one segment set; theirs includes "
            "transfers through the host, which are not published",
        ),
        (
            "Table 7: speed-up of ResNet101V2 by the published times",
            *(8.43, alone_ms / ms, RECOMPUTED, "{:.2f}×", 0.01),
            "54.94 ms are 9.95 times 5.52 ms; all other rows agree with their times",
        ),
    ):
        yield compared(what, [theirs], [ours], source, form=form, within=[within], because=because)
    resnet = network_of("ResNet50")
    yield Row(
        "Table 1: depth of ResNet50",
        str(PUBLISHED["table_1"]["ResNet50"][2]),
        NOTHING if resnet is None else str(depth_of(resnet)),
        "differs",
        "theirs are the depths that Keras lists for its models; our files have normalisation as "
        "part of convolutions, and each activation, sum and pool is a layer",
    )
    rates = sorted(_fetching_rates())
    yield Row(
        "Table 7: the rate of fetching weights that fits",
        "PCIe 3.0; the paper gives no rate",
        f"{np.median(_fetching_rates(None)):.1f} GB/s for an endless stream, "
        f"{np.median(rates):.1f} GB/s for batches of {BATCH} ({rates[0]:.1f} to {rates[-1]:.1f})",
        FITTED,
    )
    yield Row(
        "Fig. 7: speed-up of SEGM_PROF with 4 devices",
        "6×",
        f"{_even_speedup((2, 1, 1, 1)):.1f}× without weights with the host",
        "differs",
        "theirs is against a device that fetches weights, and what that costs on synthetic "
        "networks is a curve without numbers",
    )
    for figure, content in (
        ("Fig. 2 and 3", "TOPS of an Edge TPU and its speed-up over a processor"),
        ("Fig. 10", "times of the slowest stages"),
    ):
        reason = "the text has no numbers, and no Edge TPU is here"
        yield impossible(f"{figure}: {content}", "bars and curves", reason)


def _fetching_rates(batch: int | None = BATCH) -> list[float]:
    """Return the GB/s of fetching weights with which stages of equal times have each speed-up of
    Table 7, of a batch or of an endless stream."""
    found = []
    for name, ms in PUBLISHED["table_7"].items():
        devices, _, _, alone_ms, _ = PUBLISHED["table_5"][name]
        filling = 0.0 if batch is None else (devices - 1) / batch
        fetching_ms = alone_ms - ms * devices / (1 + filling)
        host_mib = PUBLISHED["table_3"][name][1]
        if fetching_ms > 0:
            found.append(host_mib * MIB / fetching_ms / 1e6)
    return found


def _even_speedup(layers: tuple[int, ...]) -> float:
    """The speed-up of segments of so many layers of 542 filters, by their work."""
    work = [float(layer.macs) for layer in synthetic_network(542).layers]
    ends = np.cumsum(layers)
    return sum(work) / max(sum(work[end - n : end]) for end, n in zip(ends, layers, strict=True))
