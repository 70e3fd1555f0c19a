"""The section `ga` of cluster.yaml: what may stand there, who goes by it, and `ga sweep --save`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from ga.sweep.spaces import SPACES, Tuned
from launcher.commands.ga import main as ga
from launcher.commands.partition import main as partition
from launcher.commands.sweep import save, with_tuning
from launcher.config.cluster import GaConfig, PaperTuning, VerticalTuning
from launcher.config.load import load_cluster
from launcher.errors import BadInputError
from launcher.plan.planner import configured
from partition.strategies.base import Problem
from tests.launcher.models import write_branches
from tests.partition.networks import residual
from tests.partition.strategy_contract import equal

CLUSTER = "model: branches.onnx\nnodes:\n  - name: a\n  - name: b\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    write_branches(tmp_path / "branches.onnx")
    (tmp_path / "cluster.yaml").write_text(CLUSTER)
    return tmp_path


def run(command: Any, capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, Any]:
    with pytest.raises(SystemExit) as ended:
        command([*arguments, "--json"])
    assert isinstance(ended.value.code, int)
    return ended.value.code, json.loads(capsys.readouterr().out)


def test_every_parameter_that_is_tuned_can_be_written() -> None:
    problem = Problem(residual(2), equal(2))
    for name, tuning in (("vertical", VerticalTuning), ("vertical-paper", PaperTuning)):
        assert {*SPACES[name].usual(problem, 1.0), "budget"} == set(tuning.model_fields)
    names = {field.alias or name for name, field in GaConfig.model_fields.items()}
    assert names == set(SPACES)


@pytest.mark.parametrize(
    ("section", "sentence"),
    [
        ("{vertical: {heat: 2}}", "line 5, ga.vertical.heat: must be at most 1"),
        ("{vertical: {individuals: 10}}", "line 5, ga.vertical.individuals: .*multiple of 4"),
        ("{vertical: {haet: 0.1}}", "unknown key; did you mean 'heat'?"),
        ("{vertical-paper: {chains: 4}}", "unknown key"),
        ("{sequential: {heat: 0.1}}", "the keys known here are vertical, vertical-paper"),
        ("{vertical: {chains: many}}", "must be a whole number"),
    ],
)
def test_mistakes_are_told_with_line_and_key(folder: Path, section: str, sentence: str) -> None:
    path = folder / "cluster.yaml"
    path.write_text(f"{CLUSTER}ga: {section}\n")
    with pytest.raises(BadInputError, match=sentence):
        load_cluster(path)


def test_vertical_and_auto_go_by_the_section(folder: Path) -> None:
    path = folder / "cluster.yaml"
    path.write_text(CLUSTER + "ga:\n  vertical:\n    heat: 0.25\n    budget: 0.5\n")
    tuning = load_cluster(path).config.ga
    assert configured(tuning, "vertical") == Tuned("vertical", {"heat": 0.25}, 0.5)
    assert configured(tuning, "auto").name == "auto"
    assert not isinstance(configured(tuning, "vertical-paper"), Tuned)
    assert configured(tuning, "sequential").name == "sequential"


def test_saving_leaves_the_rest_of_the_file_as_it_is() -> None:
    first = with_tuning("# mine\n" + CLUSTER, "vertical", {"chains": 8, "heat": 0.02})
    assert first.startswith("# mine\n" + CLUSTER)
    assert yaml.safe_load(first)["ga"] == {"vertical": {"chains": 8, "heat": 0.02}}
    second = with_tuning(first + "frames: 3 # few\n", "vertical-paper", {"mutation": 0.1})
    third = with_tuning(second, "vertical", {"chains": 9})
    assert yaml.safe_load(third)["ga"] == {
        "vertical": {"chains": 9},
        "vertical-paper": {"mutation": 0.1},
    }
    assert third.startswith("# mine\n" + CLUSTER)
    assert third.endswith("frames: 3 # few\n")


def test_a_file_that_nothing_can_be_put_into_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_text("{model: branches.onnx}\n")
    with pytest.raises(BadInputError, match="copy these lines into it instead"):
        save(path, "vertical", {"chains": 8})
    assert path.read_text() == "{model: branches.onnx}\n"
    with pytest.raises(BadInputError, match="No such file"):
        save(tmp_path / "none.yaml", "vertical", {"chains": 8})
    assert [entry.name for entry in tmp_path.iterdir()] == ["cluster.yaml"]


@pytest.mark.slow
def test_the_best_trial_of_a_sweep_is_what_solve_goes_by(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ("--strategy", "vertical-paper", "--repeats", "1", "--budget", "0.01", "--seed", "0")
    code, swept = run(ga, capsys, "sweep", "cluster.yaml", "--trials", "3", *options, "--save")
    assert code == 0
    assert swept["trials"]["finished"] + swept["trials"]["pruned"] == 3
    assert swept["saved"] == "cluster.yaml"
    found = load_cluster(folder / "cluster.yaml").config.ga.vertical_paper
    assert found is not None
    assert found.given() == swept["best"]["parameters"]
    assert found.budget == 0.01
    solve = ("solve", "branches.onnx", "--cluster", "cluster.yaml", "--strategy", "vertical-paper")
    code, solved = run(partition, capsys, *solve)
    assert code == 0
    generations = swept["best"]["settings"]["generations"]
    assert f" {generations} generations " in solved["explanation"] or (
        "proved optimal" in solved["explanation"]
    )
    code, again = run(ga, capsys, "sweep", "cluster.yaml", "--trials", "1", *options)
    assert code == 0
    assert again["trials"]["before"] == 3
