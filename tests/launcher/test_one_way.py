"""`launch` over files is a program that pushes frames: what fails in a thread ends the command."""

from __future__ import annotations

import errno
import io
import os
import select
import signal
import threading
from pathlib import Path
from typing import Any

import pytest

from launcher.errors import RunFailedError
from launcher.results.collecting import Results
from launcher.run.request import Request
from tests.launcher.in_process import InProcess
from tests.launcher.launches import launched
from tests.launcher.models import write_branches

TEXT = "model: branches.onnx\nnodes:\n  - name: a\n  - name: b\nstrategy: sequential\nframes: 20\n"


@pytest.fixture
def cluster(tmp_path: Path) -> Path:
    write_branches(tmp_path / "branches.onnx")
    path = tmp_path / "cluster.yaml"
    path.write_text(TEXT)
    return path


def no_thread_is_left() -> bool:
    for thread in threading.enumerate():
        if thread.name.startswith("csdf-edge"):
            thread.join(20.0)
    return not any(thread.name.startswith("csdf-edge") for thread in threading.enumerate())


def test_progress_is_counted_among_all_frames(cluster: Path) -> None:
    said = io.StringIO()
    launched(Request(cluster), InProcess(), said)
    assert "streaming: 20 of 20" in said.getvalue()
    assert no_thread_is_left()


def test_what_the_system_refuses_the_run_is_a_sentence(cluster: Path) -> None:
    def full(frame: int, _: Any) -> None:
        if frame == 3:
            raise OSError(errno.ENOSPC, "No space left on device", "/somewhere/subnet")

    with pytest.raises(RunFailedError, match=r"/somewhere/subnet: No space left on device"):
        launched(Request(cluster), InProcess(full))
    assert no_thread_is_left()


def test_a_disk_that_is_full_of_results_ends_the_run(
    cluster: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The results before are there, and nothing waits for the others."""
    taken: list[int] = []

    def on_result(_: Results, number: int, *__: Any) -> None:
        if number == 5:
            raise OSError(errno.ENOSPC, "No space left on device", "out/000005.npy")
        taken.append(number)

    monkeypatch.setattr(Results, "on_result", on_result)
    with pytest.raises(RunFailedError, match=r"out/000005.npy: No space left on device"):
        launched(Request(cluster, frames=10_000), InProcess())
    assert taken == list(range(5))
    assert no_thread_is_left()


# Python may raise KeyboardInterrupt after it has opened a file and before `with` holds that file.
@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")
def test_ctrl_c_ends_the_run_and_all_its_threads(cluster: Path) -> None:
    def interrupt(frame: int, _: Any) -> None:
        if frame == 7:
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        launched(Request(cluster, frames=100_000), InProcess(interrupt))
    assert no_thread_is_left()


def test_the_user_can_consent_to_nodes_that_return(cluster: Path) -> None:
    """Signals arrive in the main thread, and the run has another one."""
    before = signal.getsignal(signal.SIGUSR1)
    agreed: list[bool] = []

    def agree(frame: int, _: Any) -> None:
        consent = nodes.options.consent
        if frame == 0 and consent is not None:
            os.kill(os.getpid(), signal.SIGUSR1)
            heard = select.select([consent.descriptor], [], [], 20.0)[0]
            agreed.append(bool(heard) and consent.command == f"kill -USR1 {os.getpid()}")

    nodes = InProcess(agree)
    launched(Request(cluster, rebalance="ask"), nodes)
    assert agreed == [True]
    assert signal.getsignal(signal.SIGUSR1) is before
