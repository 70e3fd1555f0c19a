"""A plan is saved, read again, edited, and refused where it does not belong."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from launcher.config.load import load_cluster
from launcher.errors import BadInputError
from launcher.plan.files import read_plan
from launcher.run.request import Request
from tests.launcher.launches import launched, reported
from tests.launcher.models import write_branches


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    """A saved plan of a small network over two nodes, stem on a, head on b."""
    write_branches(tmp_path / "branches.onnx")
    (tmp_path / "cluster.yaml").write_text(
        "model: branches.onnx\nnodes:\n  - name: a\n    memory: 2GB\n  - name: b\n"
        "strategy: sequential\nframes: 3\nseed: 5\npins: {stem: a, head: b}\n"
    )
    launched(Request(tmp_path / "cluster.yaml", plan_only=True, save=tmp_path / "plan"))
    return tmp_path / "plan"


def edit(plan: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Change `plan.json`, written as it was."""
    data = json.loads((plan / "plan.json").read_text())
    change(data)
    (plan / "plan.json").write_text(json.dumps(data, indent=1) + "\n")


def move(plan: Path, layer: str, target: str) -> None:
    def change(data: dict[str, Any]) -> None:
        for layers in data["assignment"].values():
            if layer in layers:
                layers.remove(layer)
        data["assignment"][target].append(layer)

    edit(plan, change)


def refused(plan: Path) -> str:
    with pytest.raises(BadInputError) as caught:
        launched(Request(plan, plan_only=True))
    assert "\n" not in str(caught.value)
    return str(caught.value)


def subnets(plan: Path) -> dict[str, int]:
    """File name → time of its last change, of the files that a subnet needs."""
    return {
        path.name: path.stat().st_mtime_ns
        for path in (plan / "subnets").iterdir()
        if path.name != "index.json"
    }


def test_the_assignment_comes_first_and_is_grouped_by_node(plan: Path) -> None:
    data = json.loads((plan / "plan.json").read_text())
    assert list(data)[:2] == ["format", "assignment"]
    assert list(data["assignment"]) == ["a", "b"]
    assert all(data["assignment"].values())
    derived = data["derived"]
    placed = {phase["name"]: set(phase["layers"]) for phase in derived["phases"]}
    assert set.union(*placed.values()) == {x for xs in data["assignment"].values() for x in xs}


def test_the_saved_cluster_can_be_used_from_any_folder(plan: Path) -> None:
    original = load_cluster(plan.parent / "cluster.yaml")
    saved = load_cluster(plan / "cluster.yaml")
    assert Path(saved.model) == (plan.parent / "branches.onnx").resolve()
    assert saved.config.nodes == original.config.nodes
    assert saved.config.seed == 5
    assert saved.config.frames == 3


def test_a_server_of_the_plan_has_its_certificate_and_the_token_has_no_copy(
    plan: Path, tmp_path: Path
) -> None:
    first = tmp_path / "first" / "cluster.yaml"
    first.parent.mkdir()
    keys = "{http: '127.0.0.1:0', token: a-secret-of-some-length, tls_key: k.pem}"
    text = (plan / "cluster.yaml").read_text(encoding="utf-8")
    first.write_text(f"{text}serve: {keys}\n", encoding="utf-8")
    launched(Request(first, save=tmp_path / "second", plan_only=True))
    saved = load_cluster(tmp_path / "second" / "cluster.yaml").config.serve
    assert saved.token is None
    assert saved.tls_key == str(first.parent.resolve() / "k.pem")
    assert saved.http == "127.0.0.1:0"


def test_a_saved_plan_is_the_same_plan_when_it_is_read(plan: Path) -> None:
    before = launched(Request(plan.parent / "cluster.yaml", plan_only=True)).plan
    assert launched(Request(plan, plan_only=True)).plan == before
    assert launched(Request(plan / "plan.json", plan_only=True)).plan == before
    assert not read_plan(plan).edited


def test_a_saved_plan_runs(plan: Path) -> None:
    report = reported(Request(plan))
    assert report.agrees
    assert report.frames == 3


def test_running_it_cuts_nothing_again(plan: Path) -> None:
    before = subnets(plan)
    launched(Request(plan, verify=False))
    assert subnets(plan) == before


def test_a_damaged_subnet_is_cut_again(plan: Path) -> None:
    names = subnets(plan)
    damaged = (
        plan / "subnets" / max(names, key=lambda name: (plan / "subnets" / name).stat().st_size)
    )
    content = damaged.read_bytes()
    damaged.write_bytes(content[:-1] + b"!")
    launched(Request(plan, verify=False))
    assert damaged.read_bytes() == content


def test_an_edited_assignment_is_planned_proved_and_run_again(plan: Path) -> None:
    before, files = launched(Request(plan, plan_only=True)).plan, subnets(plan)
    target = "b" if before.assignment["aux"] == "a" else "a"
    move(plan, "aux", target)
    outcome = launched(Request(plan))
    assert outcome.report is not None
    assert outcome.report.agrees
    assert outcome.plan.assignment == {**before.assignment, "aux": target}
    assert outcome.plan.phases != before.phases
    assert outcome.plan.explanation.startswith("edited by hand in plan.json; before: ")
    unchanged = {phase.layers for phase in before.phases} & {
        phase.layers for phase in outcome.plan.phases
    }
    kept = [name for name, changed in subnets(plan).items() if files.get(name) == changed]
    assert len(kept) >= len(unchanged)
    assert subnets(plan).keys() != files.keys()


def test_an_edited_plan_is_saved_as_it_is(plan: Path, tmp_path: Path) -> None:
    move(plan, "aux", "a")
    launched(Request(plan, plan_only=True, save=tmp_path / "again"))
    assert not read_plan(tmp_path / "again").edited
    assert read_plan(tmp_path / "again").assignment["aux"] == "a"


def test_a_changed_memory_limit_counts(plan: Path) -> None:
    path = plan / "cluster.yaml"
    path.write_text(path.read_text().replace("2000000000", "1000000"))
    assert "may hold 1.0 MB" in refused(plan)


def test_a_plan_for_another_model_is_refused(plan: Path) -> None:
    write_branches(plan.parent / "branches.onnx", seed=1)
    sentence = refused(plan)
    assert "plan.json: the plan was made for another model than branches, or for" in sentence


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        (": b\n", ": c\n", "made for the nodes a, b, but the cluster has a, c"),
        ("- name: b\n", "- name: b\n- name: c\n", "made for the nodes a, b, but the cluster has a"),
    ],
)
def test_a_plan_for_other_nodes_is_refused(plan: Path, old: str, new: str, sentence: str) -> None:
    path = plan / "cluster.yaml"
    path.write_text(path.read_text().replace(old, new))
    assert sentence in refused(plan)


def line_of(plan: Path, text: str) -> int:
    lines = (plan / "plan.json").read_text().splitlines()
    return next(number for number, line in enumerate(lines, 1) if text in line)


def test_an_unknown_layer_is_named_with_its_line(plan: Path) -> None:
    edit(plan, lambda data: data["assignment"]["a"].append("steam"))
    line = line_of(plan, '"steam"')
    assert f"plan.json, line {line}, assignment: branches has no layer 'steam'" in refused(plan)
    assert "did you mean 'stem'?" in refused(plan)


def test_an_unknown_node_is_named_with_its_line(plan: Path) -> None:
    edit(plan, lambda data: data["assignment"].update(c=[]))
    line = line_of(plan, '"c"')
    assert f"plan.json, line {line}, assignment: there is no node 'c'" in refused(plan)


def test_a_layer_on_no_node_is_named(plan: Path) -> None:
    edit(plan, lambda data: [layers.clear() for layers in data["assignment"].values()])
    assert "assignment: layer 'stem' and 6 more layers are on no node" in refused(plan)


def test_a_layer_on_two_nodes_is_named(plan: Path) -> None:
    edit(plan, lambda data: [layers.append("stem") for layers in data["assignment"].values()])
    assert "assignment: layer 'stem' is listed twice" in refused(plan)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ('{\n "format": 1,\n "assignment": {]\n', "line 3: is not valid JSON: "),
        ("[]", "is not a plan that this version of launch reads (format 1)"),
        ('{"format": 2}', "is not a plan that this version of launch reads (format 1)"),
        ('{"format": 1}', "the key 'model' is missing or is not text"),
        ('{"format": 1, "format": 1}', "duplicate key 'format' in one mapping"),
        (
            '{"format": 1, "model": "", "model_digest": "", "strategy": "", "explanation": "",'
            ' "assignment": {"a": "stem"}}',
            "assignment must be a mapping of nodes to lists of layers",
        ),
    ],
)
def test_a_malformed_plan_is_refused_with_its_place(
    plan: Path, content: str, sentence: str
) -> None:
    (plan / "plan.json").write_text(content)
    assert sentence in refused(plan)


def test_a_plan_needs_its_cluster(plan: Path) -> None:
    (plan / "cluster.yaml").unlink()
    assert "cluster.yaml: there is no such file" in refused(plan)


def test_a_strategy_does_not_go_with_a_plan(plan: Path) -> None:
    with pytest.raises(BadInputError, match=r"--strategy vertical: .* is a plan"):
        launched(Request(plan, strategy="vertical"))


def test_a_folder_that_cannot_be_written_to_is_named(plan: Path) -> None:
    file = plan / "plan.json"
    with pytest.raises(BadInputError, match=r"--save .*plan\.json.*: cannot be written"):
        launched(Request(plan, plan_only=True, save=file / "below"))


def test_a_users_own_cluster_is_never_overwritten(plan: Path) -> None:
    cluster = plan.parent / "cluster.yaml"
    text = cluster.read_text()
    with pytest.raises(BadInputError, match=r"--save .* would be overwritten; choose another"):
        launched(Request(cluster, plan_only=True, save=plan.parent))
    assert cluster.read_text() == text


def test_files_that_are_not_ours_stay_among_the_subnets(plan: Path) -> None:
    (plan / "subnets" / "notes.txt").write_text("mine")
    move(plan, "aux", "b")
    launched(Request(plan, verify=False))
    assert (plan / "subnets" / "notes.txt").exists()
    index = json.loads((plan / "subnets" / "index.json").read_text())
    needed = {name for names in index.values() for name in names}
    assert subnets(plan).keys() == needed | {"notes.txt"}


def test_a_plan_of_nodes_with_links_is_launched_again(tmp_path: Path) -> None:
    write_branches(tmp_path / "branches.onnx")
    (tmp_path / "cluster.yaml").write_text(
        "model: branches.onnx\nnodes: [{name: a, link: 100Mbit/s}, {name: b, link: 12.5kB/s}]\n"
        "launcher_link: 1Gbit/s\nwithin: 5%\nstrategy: sequential\n"
    )
    launched(Request(tmp_path / "cluster.yaml", plan_only=True, save=tmp_path / "plan"))
    launched(Request(tmp_path / "plan", plan_only=True))
    before, after = (
        load_cluster(tmp_path / n).config for n in ("cluster.yaml", "plan/cluster.yaml")
    )
    assert (after.nodes, after.within) == (before.nodes, before.within)
    assert after.launcher_link == before.launcher_link
