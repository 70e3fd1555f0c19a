"""How many threads a board computes with, and what makes its figures other ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from nodes.measuring.conditions import conditions, fast_cores


def machine(
    folder: Path,
    *,
    capacities: tuple[int, ...] = (),
    frequencies: tuple[int, ...] = (),
    siblings: tuple[str, ...] = (),
) -> Path:
    for name, values in (
        ("cpu_capacity", capacities),
        ("cpufreq/cpuinfo_max_freq", frequencies),
        ("topology/thread_siblings_list", siblings),
    ):
        for cpu, value in enumerate(values):
            path = folder / f"devices/system/cpu/cpu{cpu}" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"{value}\n")
    return folder


@pytest.mark.parametrize(
    ("given", "allowed", "expected"),
    [
        ({}, range(4), 4),
        ({"capacities": (446,) * 4 + (1024,) * 4}, range(8), 4),  # big.LITTLE
        ({"capacities": (530,) * 4 + (1024,) * 4}, range(4), 4),  # only little ones allowed
        ({"capacities": (250,) * 3 + (870,) * 4 + (1024,)}, range(8), 5),
        ({"frequencies": (1_800_000,) * 4}, range(4), 4),
        ({"frequencies": (1_400_000,) * 4 + (2_000_000,) * 2}, range(6), 2),
        ({"siblings": ("0-1", "0-1", "2-3", "2-3")}, range(4), 2),
        ({"siblings": ("0,2", "1,3", "0,2", "1,3")}, (0, 2), 1),
        ({"capacities": (446, 1024)}, (0, 1, 2), 3),  # one of them does not say
    ],
    ids=str,
)
def test_threads_are_the_fast_cores_that_may_be_used(
    tmp_path: Path, given: dict[str, tuple[int, ...]], allowed: tuple[int, ...], expected: int
) -> None:
    assert fast_cores(allowed, machine(tmp_path, **given)) == expected


@pytest.mark.parametrize(
    "file",
    [
        "devices/system/cpu/cpufreq/policy0/scaling_governor",
        "devices/system/cpu/cpufreq/policy0/scaling_max_freq",
        "devices/system/cpu/online",
        "class/devfreq/17000000.gpu/max_freq",
    ],
)
def test_another_governor_frequency_or_power_mode_makes_other_conditions(
    tmp_path: Path, file: str
) -> None:
    path = tmp_path / file
    path.parent.mkdir(parents=True)
    path.write_text("first\n")
    before = conditions(tmp_path)
    assert conditions(tmp_path) == before
    path.write_text("second\n")
    assert conditions(tmp_path) != before
