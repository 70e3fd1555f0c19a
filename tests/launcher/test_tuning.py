"""The section `ga` of cluster.yaml: what may stand there, who goes by it, and `ga sweep --save`."""

from __future__ import annotations

from pathlib import Path

import optuna
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from ga.sweep.spaces import SPACES, Tuned
from launcher.commands.ga import main as ga
from launcher.commands.sweep.saving import save, with_tuning
from launcher.config.load import load_cluster
from launcher.config.tuning import GaConfig, HybridTuning, PaperTuning, RunsTuning, VerticalTuning
from launcher.errors import BadInputError
from launcher.plan.planner import configured
from partition.strategies.base import Problem
from tests.launcher.launches import ended, in_json
from tests.launcher.models import write_branches
from tests.partition.networks import residual
from tests.partition.rewriting_contract import chain_model
from tests.partition.strategy_contract import equal

CLUSTER = "model: branches.onnx\nnodes:\n  - name: a\n  - name: b\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    write_branches(tmp_path / "branches.onnx")
    (tmp_path / "cluster.yaml").write_text(CLUSTER)
    return tmp_path


def test_every_parameter_that_is_tuned_can_be_written() -> None:
    problem = Problem(residual(2), equal(2))
    for name, tuning in (
        ("vertical", VerticalTuning),
        ("vertical-paper", PaperTuning),
        ("runs", RunsTuning),
        ("hybrid", HybridTuning),
    ):
        assert {*SPACES[name].usual(problem, 1.0), "budget"} == set(tuning.model_fields)
    names = {field.alias or name for name, field in GaConfig.model_fields.items()}
    assert {*names, "auto"} == set(SPACES)


@given(st.data(), st.sampled_from([*SPACES]))
def test_every_trial_can_be_written_and_read(data: st.DataObject, name: str) -> None:
    model = chain_model(4)
    problem = Problem(model.network, equal(3), model=model)
    space = SPACES[name]
    sampler = optuna.samplers.RandomSampler(seed=data.draw(st.integers(0, 2**32 - 1)))
    trial = optuna.create_study(sampler=sampler).ask()
    sections = space.sections(space.suggest(trial, problem))
    written = with_tuning(CLUSTER, sections)
    assert GaConfig(**yaml.safe_load(written)["ga"]).sections() == sections
    assert trial.params.keys() == space.usual(problem, 1.0).keys()


def test_vertical_and_auto_go_by_the_section(folder: Path) -> None:
    path = folder / "cluster.yaml"
    path.write_text(CLUSTER + "ga:\n  vertical:\n    heat: 0.25\n    budget: 0.5\n")
    tuning = load_cluster(path).config.ga
    assert configured(tuning, "vertical") == Tuned("vertical", {"heat": 0.25}, 0.5)
    assert configured(tuning, "auto").name == "auto"
    assert not isinstance(configured(tuning, "vertical-paper"), Tuned)
    assert configured(tuning, "sequential").name == "sequential"


def test_runs_and_hybrid_go_by_their_sections_and_auto_by_all(folder: Path) -> None:
    path = folder / "cluster.yaml"
    path.write_text(CLUSTER + "ga:\n  runs: {rounds: 3}\n  hybrid: {fineness: 0.1, budget: 2}\n")
    tuning = load_cluster(path).config.ga
    assert configured(tuning, "runs") == Tuned("runs", {"rounds": 3})
    assert configured(tuning, "hybrid") == Tuned("hybrid", {"fineness": 0.1}, 2.0)
    assert configured(tuning, "auto").name == "auto"
    assert configured(tuning, "auto") is not configured(GaConfig(), "auto")
    assert not isinstance(configured(tuning, "vertical"), Tuned)


def test_saving_leaves_the_rest_of_the_file_as_it_is() -> None:
    first = with_tuning("# mine\n" + CLUSTER, {"vertical": {"chains": 8, "heat": 0.02}})
    assert first.startswith("# mine\n" + CLUSTER)
    assert yaml.safe_load(first)["ga"] == {"vertical": {"chains": 8, "heat": 0.02}}
    second = with_tuning(first + "frames: 3 # few\n", {"vertical-paper": {"mutation": 0.1}})
    third = with_tuning(second, {"vertical": {"chains": 9}})
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
        save(path, {"vertical": {"chains": 8}})
    assert path.read_text() == "{model: branches.onnx}\n"
    with pytest.raises(BadInputError, match="No such file"):
        save(tmp_path / "none.yaml", {"vertical": {"chains": 8}})
    assert [entry.name for entry in tmp_path.iterdir()] == ["cluster.yaml"]


@pytest.mark.slow
def test_nothing_is_saved_where_nothing_better_is_found(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = (folder / "cluster.yaml").read_bytes()
    options = ("--repeats", "1", "--budget", "0.02", "--seed", "0", "--trials", "2", "--save")
    code, out, _ = ended(ga, capsys, "sweep", "cluster.yaml", *options)
    assert code == 0
    assert "nothing to tune" in out or "nothing was written" in out
    assert (folder / "cluster.yaml").read_bytes() == before


POOR = "ga:\n  vertical-paper:\n    individuals: 20\n    mutation: 0.001\n    budget: 0.03\n"


@pytest.mark.slow
def test_what_is_saved_holds_on_other_seeds_and_has_the_budget_of_the_user(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The usual parameters are not good for a small network and a small budget."""
    (folder / "cluster.yaml").write_text(
        "model: onnx-wheel:squeezenet\nnodes: [{name: a}, {name: b}, {name: c}, {name: d}]\n" + POOR
    )
    options = ("--strategy", "vertical-paper", "--repeats", "1", "--budget", "0.01", "--seed", "0")
    code, swept = in_json(ga, capsys, "sweep", "cluster.yaml", "--trials", "8", *options, "--save")
    assert code == 0
    assert swept["gain"] > 0
    assert swept["unseen"]["holds"] == (swept["saved"] == "cluster.yaml")
    found = load_cluster(folder / "cluster.yaml").config.ga.sections()["vertical-paper"]
    assert found["budget"] == 0.03
    if swept["saved"]:
        assert swept["unseen"]["means"]["cost"] < 1
        assert found == {**swept["best"]["parameters"], "budget": 0.03}
    else:
        assert yaml.safe_load(POOR)["ga"]["vertical-paper"] == found
