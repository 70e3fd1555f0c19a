"""If the disk of a cache has changed its content, results are right and no run fails."""

from __future__ import annotations

from pathlib import Path

import pytest

from launcher.run.runtime import RunOptions
from tests.launcher_runtime.clusters import Cluster, RandomFrames, results


def flip(path: Path) -> None:
    """A bit in the middle, in a float's exponent or elsewhere."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0x40
    path.write_bytes(content)


def run(cluster: Cluster, cache: Path) -> None:
    taken = results()
    cluster.run(RandomFrames(6), taken, RunOptions(cache=cache))
    cluster.check(taken.outputs, 6)


@pytest.mark.parametrize(
    "rots",
    [
        pytest.param(("blobs",), id="blobs, with nothing derived left", marks=pytest.mark.further),
        pytest.param(("derived",), id="derived", marks=pytest.mark.further),
        pytest.param(("blobs", "derived"), id="everything", marks=pytest.mark.slow),
    ],
)
def test_a_cache_that_has_rotted_changes_no_result_and_fails_no_run(
    two: Cluster, tmp_path: Path, rots: tuple[str, ...]
) -> None:
    run(two, tmp_path)
    for part in rots:
        rotten = [path for path in (tmp_path / part).rglob("*") if path.is_file()]
        assert rotten
        for path in rotten:
            if path.stat().st_size:
                flip(path)
    if "derived" not in rots:
        for entry in (tmp_path / "derived").iterdir():
            entry.rename(tmp_path / "partial" / entry.name)
    run(two, tmp_path)


def test_after_a_run_nothing_in_the_cache_can_be_read_by_others(
    two: Cluster, tmp_path: Path
) -> None:
    run(two, tmp_path / "cache")
    left = list((tmp_path / "cache").rglob("*"))
    assert any(path.is_file() for path in left)
    assert not [path for path in (tmp_path / "cache", *left) if path.stat().st_mode & 0o077]
