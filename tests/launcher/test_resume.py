"""`launch --resume` finishes a run that was interrupted: no frame is repeated, none is lost."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from launcher.errors import BadInputError
from launcher.progress import LineDisplay
from launcher.results.journal.records import DONE, RECORD_BYTES, decode
from launcher.results.sentences import _journal
from launcher.run.request import Request
from launcher.streaming.job import Outcome, launch
from tests.launcher.in_process import InProcess
from tests.launcher.models import write_branches

FRAMES = 8


class InterruptError(Exception):
    """The launcher ends here."""


class Interrupted(InProcess):
    """Ends when frame `at` of those that it streams has come out; `streamed` counts them."""

    def __init__(self, at: int | None = None) -> None:
        self.streamed = 0

        def end(frame: int, outputs: dict[str, np.ndarray]) -> None:
            if frame == at:
                raise InterruptError
            self.streamed += 1

        super().__init__(end)


@pytest.fixture
def cluster(tmp_path: Path) -> Path:
    return write_cluster(tmp_path)


def write_cluster(folder: Path) -> Path:
    write_branches(folder / "branches.onnx")
    path = folder / "cluster.yaml"
    path.write_text(
        "model: branches.onnx\nnodes:\n  - name: a\n  - name: b\nstrategy: sequential\n"
        f"frames: {FRAMES}\npins: {{stem: a, head: b}}\njournal: kept\n"
    )
    return path


@pytest.fixture(scope="module")
def once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a cluster whose journal is complete."""
    folder = tmp_path_factory.mktemp("once")
    run(Request(write_cluster(folder)), InProcess())
    return folder


@pytest.fixture
def complete(once: Path, tmp_path: Path) -> Path:
    """That cluster, for one test alone."""
    return shutil.copytree(once, tmp_path / "complete") / "cluster.yaml"


def run(request: Request, nodes: InProcess) -> Outcome:
    with LineDisplay(sys.stderr) as progress:
        return launch(request, progress, started_s=time.monotonic(), runtime=nodes.runtime)


def test_interrupted_twice_it_ends_as_if_it_never_had_been(cluster: Path, once: Path) -> None:
    journal, output = cluster.parent / "kept", cluster.parent / "out"
    for at in (3, 2):
        with pytest.raises(InterruptError):
            run(Request(cluster, output=output, resume=True), Interrupted(at))
    last = Interrupted()
    report = run(Request(cluster, output=output, resume=True), last).report
    assert last.streamed == FRAMES - 5
    assert report is not None
    assert report.agrees
    assert report.frames == FRAMES - 5
    told = report.as_json()["journal"]
    assert (told["folder"], told["saved"], told["resumed"]) == (str(journal), FRAMES, 5)
    assert (told["damaged"], told["removed"], told["removed_frames"]) == (0, 0, ())
    whole = np.load(journal / "score.npy")
    np.testing.assert_array_equal(whole, np.load(once / "kept/score.npy"))
    for frame in range(FRAMES):
        np.testing.assert_array_equal(whole[frame], np.load(output / f"{frame:06d}.score.npy"))


def test_a_result_from_before_is_compared_with_the_whole_model_too(cluster: Path) -> None:
    def spoil(frame: int, outputs: dict[str, np.ndarray]) -> None:
        if frame == 1:
            outputs["score"] = outputs["score"] * 2
        if frame == 3:
            raise InterruptError

    with pytest.raises(InterruptError):
        run(Request(cluster), InProcess(spoil))
    report = run(Request(cluster, resume=True), InProcess()).report
    assert report is not None
    assert not report.agrees
    assert (report.worst_frame, report.worst_output) == (1, "score")


def test_a_run_that_is_complete_is_not_run_again(complete: Path) -> None:
    idle = Interrupted()
    outcome = run(Request(complete, resume=True), idle)
    assert idle.streamed == 0
    assert outcome.report is None
    assert outcome.complete is not None
    told = outcome.complete.as_json()
    assert (told["frames"], told["agrees"], told["journal"]["saved"]) == (0, True, FRAMES)
    assert "all 8 frames are settled" in outcome.complete.text()


@pytest.mark.slow
def test_with_a_bound_it_ends_with_the_newest_results_and_all_in_the_output(
    cluster: Path,
) -> None:
    frames, output = 900, cluster.parent / "out"
    text = cluster.read_text().replace(f"frames: {FRAMES}", f"frames: {frames}")
    cluster.write_text(text.replace("journal: kept", "journal: {folder: kept, keep: 140kB}"))
    with pytest.raises(InterruptError):
        run(Request(cluster, output=output, resume=True), Interrupted(800))
    last = Interrupted()
    report = run(Request(cluster, output=output, resume=True), last).report
    assert last.streamed == 100
    assert report is not None
    assert report.agrees
    journal = report.journal
    assert journal is not None
    assert journal.saved + journal.removed == frames
    assert 0 < journal.removed_before == 800 - journal.resumed <= journal.removed
    assert journal.removed_frames == ((0, journal.removed - 1),)
    (line,) = [line for line in _journal(report) if "results are in" in line]
    assert f"; {journal.removed} were removed to keep the bound (frames 0 to " in line
    assert f"{journal.removed_before} of them before this launch, which has not compared" in line
    assert len(list(output.glob("*.score.npy"))) == frames
    again = run(Request(cluster, resume=True), Interrupted()).complete
    assert again is not None
    assert f", and {journal.saved} results are in " in again.text()


@pytest.mark.parametrize("key", ["frames: 9", "seed: 1"])
def test_a_run_that_is_another_one_now_is_refused(complete: Path, key: str) -> None:
    text = complete.read_text().replace(f"frames: {FRAMES}\n", "")
    complete.write_text(f"{text}{key}\n" + (f"frames: {FRAMES}\n" if "frames" not in key else ""))
    with pytest.raises(BadInputError, match=r"cluster.yaml, line \d+, journal: .*of another run"):
        run(Request(complete, resume=True), InProcess())


def test_there_must_be_a_journal_to_resume(cluster: Path) -> None:
    cluster.write_text(cluster.read_text().replace("journal: kept\n", ""))
    with pytest.raises(BadInputError, match="--resume: there is no journal to continue"):
        run(Request(cluster, resume=True), InProcess())


def _has_record(journal: Path) -> bool:
    return journal.exists() and journal.stat().st_size >= RECORD_BYTES


@pytest.mark.slow
def test_killed_outright_it_loses_and_repeats_nothing(cluster: Path) -> None:
    """Real processes and SIGKILL, which nobody can prepare for."""
    cluster.write_text(cluster.read_text().replace(f"frames: {FRAMES}", "frames: 1200"))
    command = [sys.executable, "-m", "launcher.commands.launch", str(cluster), "--resume", "--json"]
    root = str(Path(__file__).parents[2])
    environment = {**os.environ, "PYTHONPATH": root, "XDG_CACHE_HOME": str(cluster.parent / "c")}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    kept = cluster.parent / "kept"
    with subprocess.Popen(command, env=environment, **pipes) as process:
        while not _has_record(kept / "journal"):
            with suppress(subprocess.TimeoutExpired):
                raise AssertionError(process.wait(timeout=0.01))
        process.send_signal(signal.SIGKILL)
    before = (kept / "journal").read_bytes()
    rows = np.load(kept / "score.npy").copy()
    done = subprocess.run(command, env=environment, check=True, timeout=60, **pipes)
    run_number = bytes.fromhex(json.loads((kept / "run.json").read_text())["run"])
    told = json.loads(done.stdout)
    assert told["agrees"]
    saved = [record for _, record in decode(before, run_number)]
    assert told["journal"]["resumed"] == len(saved) > 0
    assert told["frames"] == 1200 - len(saved) > 0
    after = (kept / "journal").read_bytes()
    assert after[: len(before)] == before
    records = [record for _, record in decode(after, run_number)]
    assert [record.frame for record in records] == list(range(1200))
    assert {record.kind for record in records} == {DONE}
    final = np.load(kept / "score.npy")
    for record in saved:
        np.testing.assert_array_equal(final[record.frame], rows[record.frame])
