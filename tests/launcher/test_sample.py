"""The sample of a stream's frames: bounded, and spread evenly, however long the stream is."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from launcher.results.comparison.agreement import FirstResults
from launcher.results.sample import FrameSample


@settings(
    deadline=None, max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(frames=st.integers(1, 300), every=st.integers(1, 7), most=st.integers(1, 9))
def test_frames_are_kept_at_equal_distances_and_never_too_many(
    frames: int, every: int, most: int, tmp_path_factory
) -> None:
    folder: Path = tmp_path_factory.mktemp("sample")
    first = FirstResults(folder / "first")
    sample = FrameSample(folder / "inputs", every, first, most_frames=most)
    for number in range(frames):
        if not sample.wants(number):
            continue
        sample.add(number, {"x": np.array([number])})
        if number in sample:
            first.add(number, {"y": np.array([2 * number])})
        assert len(sample.numbers) <= most
    assert sample.numbers[0] == 0
    step = sample.numbers[1] if len(sample.numbers) > 1 else frames
    assert sample.numbers == list(range(0, frames, step))[: len(sample.numbers)]
    wanted = len(range(0, frames, every))
    assert len(sample.numbers) == wanted or 2 * len(sample.numbers) >= most
    for number in sample.numbers:
        assert sample.frame(number)["x"] == [number]
        assert first.get(number, ("y",))["y"] == [2 * number]
    assert len(list((folder / "first").iterdir())) == len(sample.numbers)
    assert len(list((folder / "inputs").iterdir())) == len(sample.numbers)


def test_large_frames_are_bounded_by_their_bytes(tmp_path: Path) -> None:
    first = FirstResults(tmp_path / "first")
    sample = FrameSample(tmp_path / "inputs", 1, first, most_bytes=10_000)
    for number in range(100):
        if sample.wants(number):
            sample.add(number, {"x": np.zeros(999, np.uint8)})
    assert 5 <= len(sample.numbers) <= 10
