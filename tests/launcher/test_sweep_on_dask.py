"""`ga sweep --dask`: the workers of a Dask cluster share one study."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import optuna
import pytest
from distributed import Client, LocalCluster

from ga.sweep.storage import open_storage, storage_url
from launcher.commands.ga import main
from tests.launcher.launches import done, ended, wait_for_a_trial
from tests.launcher.models import write_branches

ROOT = Path(__file__).parents[2]
QUICK = ("--strategy", "vertical-paper", "--repeats", "1", "--budget", "0.01")


@pytest.fixture(scope="module")
def scheduler(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with LocalCluster(
        n_workers=2,
        threads_per_worker=1,
        host="127.0.0.1",
        dashboard_address="127.0.0.1:0",
        local_directory=str(tmp_path_factory.mktemp("dask")),
    ) as cluster:
        yield cluster.scheduler_address


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    write_branches(tmp_path / "branches.onnx")
    nodes = "nodes: [{name: a}, {name: b}, {name: c}, {name: d}]\n"
    (tmp_path / "cluster.yaml").write_text(f"model: branches.onnx\n{nodes}")
    return tmp_path


def swept(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    return done(main, capsys, "sweep", "cluster.yaml", *arguments)


def trials_of(folder: Path, study: str) -> list[optuna.trial.FrozenTrial]:
    storage = open_storage(storage_url(str(folder / "ga-sweep.db")))
    return optuna.load_study(storage=storage, study_name=study).get_trials()


@pytest.mark.slow
def test_two_workers_add_their_trials_to_one_study(
    folder: Path, scheduler: str, capsys: pytest.CaptureFixture[str]
) -> None:
    found = done(
        main, capsys, "sweep", "cluster.yaml", "--trials", "6", "--dask", scheduler, *QUICK
    )
    assert found["trials"]["finished"] + found["trials"]["pruned"] == 6
    assert found["trials"]["failed"] == found["trials"]["running"] == 0
    assert found["trials"]["before"] == 0
    assert Path(found["page"]).is_file()
    every = trials_of(folder, found["study"])
    assert [trial.number for trial in every] == list(range(6))
    began = sorted(
        (trial.datetime_start, trial.datetime_complete)
        for trial in every
        if trial.datetime_start is not None and trial.datetime_complete is not None
    )
    assert any(start < end for (_, end), (start, _) in pairwise(began))  # side by side
    again = swept(capsys, "--trials", "1", *QUICK)
    assert again["trials"]["before"] == 6


@pytest.mark.slow
def test_the_trial_of_a_lost_worker_is_made_by_another_one(folder: Path, scheduler: str) -> None:
    command = [sys.executable, "-m", "launcher.commands.ga", "sweep", "cluster.yaml"]
    options = ("--trials", "4", "--dask", scheduler, *QUICK)
    with subprocess.Popen(
        [*command, *options, "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    ) as sweep:
        wait_for_a_trial(folder / "ga-sweep.db", sweep)
        with Client(scheduler, set_as_default=False) as client:
            victim = next(iter(client.run(os.getpid).values()))
        os.kill(victim, signal.SIGKILL)
        out, err = sweep.communicate(timeout=300)
    assert sweep.returncode == 0, err
    trials = json.loads(out)["trials"]
    assert trials["finished"] + trials["pruned"] >= 4
    assert trials["failed"] == 0
    assert trials["running"] <= 1  # until its heartbeat is too old


@pytest.mark.parametrize("address", ["tcp://127.0.0.1:9", "nonsense://x", "127.0.0.1:port"])
def test_an_address_without_a_scheduler(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    monkeypatch.setattr("launcher.commands.sweep.on_dask.CONNECT_S", 1)
    given = ("sweep", "cluster.yaml", "--trials", "1", "--dask", address)
    code, _, err = ended(main, capsys, *given)
    assert code == 2
    said = err.splitlines()[-1]
    assert said.startswith(f"ga: --dask {address}: no scheduler answers there")
    assert not (folder / "ga-sweep.db").exists()
