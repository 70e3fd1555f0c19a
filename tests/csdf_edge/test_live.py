"""`csdf_edge.open`: a program's frames through a cluster of real agents."""

from __future__ import annotations

import asyncio
import itertools
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
import onnxruntime as ort
import pytest

import csdf_edge
from csdf_edge import LauncherError, LiveCluster
from launcher.errors import BadInputError

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
DIGITS = ROOT / "examples" / "digits"
WAIT_S = 20.0

Frame = dict[str, np.ndarray]


@contextmanager
def opened() -> Iterator[tuple[LiveCluster, list[int]]]:
    """A cluster, and the process ids of its agents."""
    others = agents_of(os.getpid())
    with csdf_edge.open(
        DIGITS / "cluster.yaml", strategy="sequential", most_in_flight=16
    ) as cluster:
        yield cluster, [agent for agent in agents_of(os.getpid()) if agent not in others]


@pytest.fixture(scope="module")
def cluster() -> Iterator[LiveCluster]:
    """For tests that leave it as it was."""
    with opened() as (cluster, _):
        yield cluster


def frames() -> list[Frame]:
    images = np.load(DIGITS / "test_images.npy")
    return [{"image": image[None]} for image in images]


def check(results: list[dict[str, np.ndarray]]) -> None:
    """Raises unless these are the whole network's results of the first frames."""
    session = ort.InferenceSession(DIGITS / "digits.onnx", providers=["CPUExecutionProvider"])
    for frame, result in zip(frames(), results, strict=False):
        (wanted,) = session.run(["probabilities"], frame)
        assert list(result) == ["probabilities"]
        np.testing.assert_allclose(result["probabilities"], wanted, rtol=1e-4, atol=1e-6)


def agents_of(process: int) -> list[int]:
    """The process ids of the agents that a process has started; its threads may end meanwhile."""
    found = []
    for children in Path(f"/proc/{process}/task").glob("*/children"):
        with suppress(FileNotFoundError, ProcessLookupError):
            found += [int(child) for child in children.read_text().split()]
    return [child for child in found if b"nodes.cli" in Path(f"/proc/{child}/cmdline").read_bytes()]


def have_ended(processes: list[int]) -> bool:
    return not any(Path(f"/proc/{process}").exists() for process in processes)


def test_a_frame_a_stream_and_futures_of_many_threads(cluster: LiveCluster) -> None:
    assert list(cluster.inputs) == ["image"]
    assert cluster.inputs["image"].shape == (1, 1, 8, 8)
    assert cluster.outputs["probabilities"].dtype == "float32"
    check([cluster.infer(frames()[0])])
    check(list(cluster.stream(frames(), in_flight=4)))
    with ThreadPoolExecutor(8) as threads:
        check([f.result(WAIT_S) for f in threads.map(cluster.submit, frames())])


def test_what_does_not_fit_is_refused_before_it_is_sent(cluster: LiveCluster) -> None:
    image = frames()[0]["image"]
    with pytest.raises(LauncherError, match="no input 'picture'; its inputs are image"):
        cluster.infer({"picture": image})
    with pytest.raises(LauncherError, match="input 'image' is missing"):
        cluster.infer({})
    with pytest.raises(LauncherError, match=r"is float64\[1, 1, 8, 8\], but .* takes float32"):
        cluster.submit({"image": image.astype("float64")})
    with pytest.raises(LauncherError, match=r"float32\[8, 8\]"):
        cluster.submit({"image": image[0, 0]})
    check([cluster.infer({"image": image.tolist()})])


@pytest.mark.parametrize("limit_s", [math.inf, 1e30])
def test_a_limit_beyond_what_threads_can_wait_is_none(cluster: LiveCluster, limit_s: float) -> None:
    assert cluster.infer(frames()[0], timeout_s=limit_s)
    assert cluster.submit(frames()[0], timeout_s=limit_s).result()


@pytest.mark.parametrize("limit_s", [math.nan, -1.0, -math.inf])
def test_a_limit_that_is_not_a_time_is_refused(cluster: LiveCluster, limit_s: float) -> None:
    for wait in (cluster.infer, cluster.submit):
        with pytest.raises(BadInputError, match="timeout_s must be at least 0, not"):
            wait(frames()[0], timeout_s=limit_s)


def test_an_array_may_be_written_to_once_it_is_submitted(cluster: LiveCluster) -> None:
    shared = np.empty((1, 1, 8, 8), np.float32)
    futures = []
    for frame in frames()[:12]:
        shared[:] = frame["image"]
        futures.append(cluster.submit({"image": shared}))
    check([future.result(WAIT_S) for future in futures])


def test_a_stream_may_never_end_and_its_consumer_may_stop(cluster: LiveCluster) -> None:
    read: list[int] = []

    def camera() -> Iterator[Frame]:
        for number, frame in enumerate(itertools.cycle(frames())):
            read.append(number)
            yield frame

    results = cluster.stream(camera(), in_flight=3)
    check([next(results) for _ in range(20)])
    assert len(read) <= 24
    results.close()
    check([cluster.infer(frames()[0])])
    assert len(read) <= 24


def test_results_come_as_soon_as_they_are_there(cluster: LiveCluster) -> None:
    came: list[int] = []

    def slow() -> Iterator[Frame]:
        for number, frame in enumerate(frames()[:4]):
            assert len(came) >= number  # each result came before the next frame was read
            yield frame
            deadline_s = time.monotonic() + WAIT_S
            while len(came) <= number and time.monotonic() < deadline_s:
                os.sched_yield()

    for result in cluster.stream(slow()):
        came.append(len(result))  # noqa: PERF401 - while the stream continues
    assert len(came) == 4


def test_an_exception_of_the_source_comes_after_the_results_before_it(cluster: LiveCluster) -> None:
    def broken() -> Iterator[Frame]:
        yield from frames()[:5]
        raise OSError("the camera is gone")

    got = []
    with pytest.raises(OSError, match="the camera is gone"):  # noqa: PT012
        for result in cluster.stream(broken()):
            got.append(result)  # noqa: PERF402 - until it raises
    assert len(got) == 5
    check(got)


def test_results_can_be_awaited(cluster: LiveCluster) -> None:
    async def both() -> list[dict[str, np.ndarray]]:
        first = await asyncio.gather(*(cluster.infer_async(frame) for frame in frames()[:8]))
        check(list(first))
        return [result async for result in cluster.stream_async(frames()[:8])]

    check(asyncio.run(both()))


def test_no_frame_is_lost_when_a_node_is_killed() -> None:
    with opened() as (cluster, agents):
        results = cluster.stream(frames() * 2)
        got = [next(results) for _ in range(20)]
        os.kill(agents[1], signal.SIGKILL)
        got += results
    assert len(got) == 2 * len(frames())
    check(got[: len(frames())])
    check(got[len(frames()) :])


def test_what_the_program_raises_is_not_the_cluster_s_error() -> None:
    with (
        pytest.raises(FileNotFoundError, match=r"labels\.txt"),
        csdf_edge.open(DIGITS / "cluster.yaml", strategy="sequential"),
    ):
        raise FileNotFoundError("labels.txt")


def test_a_closed_cluster_computes_nothing_and_leaves_no_agent() -> None:
    with opened() as (cluster, agents):
        future = cluster.submit(frames()[0])
        assert len(agents) == 3
    check([future.result(0)])
    assert have_ended(agents)
    with pytest.raises(LauncherError, match="the cluster is closed"):
        cluster.infer(frames()[0])


def test_an_exception_inside_ends_everything_at_once() -> None:
    futures = []
    with pytest.raises(ZeroDivisionError), opened() as (cluster, agents):  # noqa: PT012
        futures = [cluster.submit(frame) for frame in frames()[:50]]
        raise ZeroDivisionError
    assert all(future.done() for future in futures)
    assert have_ended(agents)


def test_a_cluster_that_cannot_be_opened_says_why(tmp_path: Path) -> None:
    with pytest.raises(LauncherError, match="there is no such file"):
        csdf_edge.open(tmp_path / "cluster.yaml")
    with pytest.raises(LauncherError, match="at least one frame"):
        csdf_edge.open(DIGITS / "cluster.yaml", most_in_flight=0)


def test_the_documentation_s_program_runs() -> None:
    page = (ROOT / "docs" / "python.md").read_text(encoding="utf-8")
    frames_begin = page.index("## Frames through a cluster")
    program = page[frames_begin:].split("```python\n")[1].split("```")[0]
    program += "\nassert int(digit) in range(10) and len(results) == 20\n"
    ran = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
