"""Plans of strategies that rewrite the network: saved, read, edited, run and refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cnn.rewrite.rewrites import Slices
from launcher.plan.files import read_plan
from launcher.run.request import Request
from tests.launcher.launches import launched, reported
from tests.launcher.models import write_branches
from tests.launcher.test_plan_files import edit, move, refused, subnets


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    """A saved plan of a small network in slices over two nodes; the layer `left` is pinned."""
    write_branches(tmp_path / "branches.onnx")
    (tmp_path / "cluster.yaml").write_text(
        "model: branches.onnx\nnodes:\n  - name: a\n  - name: b\n"
        "strategy: horizontal\nframes: 3\nseed: 5\npins: {left: a}\n"
    )
    launched(Request(tmp_path / "cluster.yaml", plan_only=True, save=tmp_path / "plan"))
    return tmp_path / "plan"


def test_a_rewritten_network_runs_and_computes_the_same(plan: Path) -> None:
    report = reported(Request(plan.parent / "cluster.yaml"))
    assert report.agrees
    assert report.frames == 3


def test_rewrites_stand_one_to_a_line(plan: Path) -> None:
    assert '\n  {"slices": "stem", "channels": [2, 2]}' in (plan / "plan.json").read_text()
    data = json.loads((plan / "plan.json").read_text())
    assert "stem[1/2]" in data["assignment"]["a"]
    assert "left" in data["assignment"]["a"]


def test_a_saved_plan_is_the_same_plan_when_it_is_read(plan: Path) -> None:
    before = launched(Request(plan.parent / "cluster.yaml", plan_only=True)).plan
    assert launched(Request(plan, plan_only=True)).plan == before
    assert Slices("stem", (2, 2)) in before.rewrites
    assert not read_plan(plan).edited


def test_a_saved_plan_runs_and_cuts_nothing_again(plan: Path) -> None:
    before = subnets(plan)
    report = reported(Request(plan))
    assert report.agrees
    assert subnets(plan) == before


def test_a_part_can_be_moved_by_hand(plan: Path) -> None:
    move(plan, "stem[1/2]", "b")
    outcome = launched(Request(plan))
    assert outcome.plan.assignment["stem[1/2]"] == "b"
    assert outcome.report is not None
    assert outcome.report.agrees


def test_a_rewrite_can_be_changed_by_hand(plan: Path) -> None:
    text = (plan / "plan.json").read_text()
    (plan / "plan.json").write_text(
        text.replace('"stem", "channels": [2, 2]', '"stem", "channels": [1, 3]')
    )
    before = subnets(plan)
    outcome = launched(Request(plan))
    assert Slices("stem", (1, 3)) in outcome.plan.rewrites
    assert outcome.report is not None
    assert outcome.report.agrees
    assert subnets(plan).keys() != before.keys()


@pytest.mark.parametrize(
    ("rewrites", "sentence"),
    [
        ("stem", "plan.json: rewrites must be a list of mappings"),
        ([{"slices": "stem"}], "plan.json, rewrites: {'slices': 'stem'} is not a rewrite"),
        ([{"slices": "steam", "channels": [4]}], "rewrites: branches has no layer 'steam'"),
        ([{"slices": "stem", "channels": [2, 1]}], "2 + 1 = 3"),
        ([{"slices": "head", "channels": [2, 2]}], "'head' (Flatten) cannot be computed in slices"),
        ([], "branches has no layer 'stem[1/2]'"),
    ],
)
def test_wrong_rewrites_are_refused(plan: Path, rewrites: object, sentence: str) -> None:
    edit(plan, lambda data: data.update(rewrites=rewrites))
    assert sentence in refused(plan)
