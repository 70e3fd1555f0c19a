"""A plan is certified and checked before it is deployed; a saved one carries a certificate."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from random import Random
from typing import Any

import pytest

from csdf.certificates.check import RefusedError, check
from csdf.certificates.plans import certify_plan
from csdf.cli.command import main
from launcher.errors import EXIT_FAILED, UncertifiedError
from launcher.plan import files
from launcher.plan.certificates import certificate_of
from launcher.run.request import Request
from partition.plan import Plan
from tests.fuzz.certificates import plan_holds
from tests.launcher.in_process import InProcess
from tests.launcher.launches import launched, reported
from tests.launcher.models import write_branches
from tests.launcher.random_plans import random_plan, random_plan_text

Content = dict[str, Any]

MORE = (pytest.mark.slow, pytest.mark.further)


@pytest.mark.parametrize("seeds", [range(40), pytest.param(range(40, 140), marks=MORE)])
def test_random_plans_are_certified_and_all_claims_are_true(seeds: range) -> None:
    seen: Counter[str] = Counter()
    for seed in seeds:
        file = random_plan_text(seed).encode()
        found = certify_plan(file)
        claims = check(json.dumps(found.content).encode(), file)
        plan = json.loads(file)
        plan_holds(plan | {"derived": json.loads(file, parse_float=str)["derived"]}, claims)
        seen.update(claims.keys())
        seen["dealt"] += len(plan["derived"]["dealing"]) > 1
        assert found.live
    claimed = min(seen[claim] for claim in ("period", "spans", "nanoseconds", "bytes"))
    assert claimed > 0.9 * len(seeds)
    assert seen["dealt"] > len(seeds) // 10


def by_hand(costs: Content, capacity_frames: int = 1) -> Content:
    """The part of a `plan.json` that certificates are about: two phases of one node."""
    phases = [
        {"name": name, "node": "n", "skew": 1, "predicted_s": 0.5, "layers": layers}
        for name, layers in (("n/0", list(costs["layers"])), ("n/1", []))
    ]
    channels = [
        {
            "tensor": tensor,
            "source": source,
            "targets": [target],
            "from": "n" if source in ("n/0", "n/1") else "@host",
            "to": "n" if target in ("n/0", "n/1") else "@host",
            "bytes": 4,
            "copy": 0,
            "capacity_frames": capacity_frames if tensor == "b" else 3,
        }
        for tensor, source, target in (
            ("a", "@source", "n/0"),
            ("b", "n/0", "n/1"),
            ("c", "n/1", "@sink"),
        )
    ]
    derived = {"phases": phases, "channels": channels, "dealing": [0], "costs": {"time": costs}}
    return {"assignment": {"n": list(costs["layers"])}, "model_digest": "d", "derived": derived}


def certified(plan: Content) -> Content:
    file = json.dumps(plan).encode()
    return check(json.dumps(certify_plan(file).content).encode(), file)


EVEN = {
    "rooms": [[1, 0], [1, 0], [1, 0], [2, 0]],
    "nodes": [[0], [1, 3], [2, 3]],
    "layers": {f"l{i}": [1000, 1000, 2000] for i in range(400)},
}
"""Layers that can be shared out evenly, over a node and a machine of two nodes and two cores."""


def test_bounds_are_nearly_those_of_the_linear_program() -> None:
    """Shares of 400 layers: x on the first, y on the second, z on the third at half the speed."""
    claims = certified(by_hand(EVEN))
    assert claims["period"] == 1
    assert 159_999 <= claims["time"] <= 160_000


def test_a_layer_that_fits_nowhere_below_it_is_a_bound() -> None:
    layers = EVEN["layers"] | {"long": [900_000, 900_000, 600_000]}
    assert 599_000 <= certified(by_hand(EVEN | {"layers": layers}))["time"] <= 600_000


@pytest.mark.parametrize(("bound", "prices"), [(1001, [0, 0]), (1500, [10**6, 1])])
def test_prices_that_prove_nothing(bound: int, prices: list[int]) -> None:
    """None at all, and one for a room that has less than no place left."""
    costs = {"rooms": [[1, 0], [1, 10**9]], "nodes": [[0], [1]], "layers": {"l": [1000, 1000]}}
    file = json.dumps(by_hand(costs)).encode()
    certificate = json.loads(json.dumps(certify_plan(file).content))
    assert check(json.dumps(certificate).encode(), file)["time"] == 1000
    certificate["bounds"]["time"] = {"bound": bound, "prices": prices}
    with pytest.raises(RefusedError, match="the rooms may hold less in all"):
        check(json.dumps(certificate).encode(), file)


def test_a_room_that_is_not_there_is_refused() -> None:
    """Also of a node on which no layer fits."""
    costs = {"rooms": [[1, 0], [1, 10**9]], "nodes": [[0], [1]], "layers": {"l": [1000, 1000]}}
    plan = by_hand(costs)
    certificate = json.loads(json.dumps(certify_plan(json.dumps(plan).encode()).content))
    plan["derived"]["costs"]["time"]["nodes"][1].append(2)
    file = json.dumps(plan).encode()
    certificate["plan"] = sha256(file).hexdigest()
    with pytest.raises(RefusedError, match="malformed: IndexError"):
        check(json.dumps(certificate).encode(), file)


def test_a_deadlock_is_certified_and_is_none_of_a_plan() -> None:
    with pytest.raises(RefusedError, match="any: the graph is not live"):
        certified(by_hand(EVEN, capacity_frames=0))


def _plan_of_two() -> Content:
    """A plan.json of a chain over two nodes."""
    for seed in range(1000):
        data = json.loads(random_plan_text(seed))
        nodes = {phase["node"] for phase in data["derived"]["phases"]}
        if len(nodes) == 2 and data["derived"]["dealing"] == [0]:
            return dict(data)
    raise AssertionError


def _without(key: str) -> Callable[[Content, Content], None]:
    return lambda certificate, _: certificate.pop(key)


def _higher(certificate: Content, _: Content) -> None:
    certificate["bounds"]["nanoseconds"]["bound"] *= 2


def _moved(_: Content, plan: Content) -> None:
    first, second = (layers for layers in plan["assignment"].values() if layers)
    second.append(first.pop())


def _later(_: Content, plan: Content) -> None:
    plan["derived"]["phases"][-1]["skew"] += 1


def _too_early(_: Content, plan: Content) -> None:
    for phase in plan["derived"]["phases"]:
        phase["skew"] = 0


def _no_place(_: Content, plan: Content) -> None:
    plan["derived"]["channels"][0]["capacity_frames"] = 0


def _slower(_: Content, plan: Content) -> None:
    plan["derived"]["phases"][0]["predicted_s"] += 1.0


def _other_model(_: Content, plan: Content) -> None:
    plan["model_digest"] = "0" * 64


@pytest.mark.parametrize(
    ("lie", "sentence"),
    [
        (_higher, "the rooms may hold less in all"),
        (_moved, "the phases are not those of the assignment"),
        (_later, "other skews may need less|starts too early"),
        (_too_early, "is not a whole number|is too early|starts too early"),
        (_no_place, "fires without its tokens|is not a whole number"),
        (_slower, "starts too early|the cycle takes"),
        (_other_model, "made for another model"),
        (_without("skews"), "expected exactly"),
        (_without("orders"), "expected exactly"),
        (lambda certificate, _: certificate["orders"].pop("any"), "expected exactly"),
        (lambda certificate, _: certificate.update(more=1), "expected exactly"),
        (
            lambda certificate, _: certificate["skews"][0][0].__setitem__(0, 0),
            "the shares do not add up",
        ),
    ],
)
def test_a_lie_about_a_plan_is_refused(
    lie: Callable[[Content, Content], None], sentence: str
) -> None:
    plan = _plan_of_two()
    certificate = json.loads(json.dumps(certify_plan(json.dumps(plan).encode()).content))
    lie(certificate, plan)
    file = json.dumps(plan).encode()
    certificate["plan"] = sha256(file).hexdigest()
    with pytest.raises(RefusedError, match=sentence):
        check(json.dumps(certificate).encode(), file)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (_too_early, "is too early"),
        (_later, "other skews may need less"),
    ],
)
def test_a_wrong_plan_that_is_certified_as_it_is_is_refused(
    change: Callable[[Content, Content], None], sentence: str
) -> None:
    plan = _plan_of_two()
    change({}, plan)
    with pytest.raises(RefusedError, match=sentence):
        certified(plan)


@pytest.fixture
def cluster(tmp_path: Path) -> Path:
    write_branches(tmp_path / "branches.onnx")
    (tmp_path / "cluster.yaml").write_text(
        "model: branches.onnx\nnodes:\n  - name: a\n    memory: 2GB\n  - name: b\n"
        "strategy: sequential\nframes: 3\nseed: 5\npins: {stem: a, head: b}\n"
    )
    return tmp_path / "cluster.yaml"


def test_a_saved_plan_carries_its_certificate(
    cluster: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = cluster.parent / "plan"
    launched(Request(cluster, plan_only=True, save=folder))
    assert main(["check", str(folder / "certificate.json"), str(folder)]) == 0
    assert "Proved: the plan completes every frame" in capsys.readouterr().out
    assert main(["certify", str(folder), "--output", str(folder / "again.json")]) == 0
    assert (folder / "again.json").read_text() == (folder / "certificate.json").read_text()
    assert main(["check", "--json", str(folder / "again.json"), str(folder / "plan.json")]) == 0
    assert json.loads(capsys.readouterr().out)["live"] is True
    assert main(["certify", str(cluster.parent)]) == 2
    assert "plan.json cannot be read" in capsys.readouterr().err


def test_an_edited_plan_has_another_certificate(
    cluster: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = cluster.parent / "plan"
    launched(Request(cluster, plan_only=True, save=folder))
    data = json.loads((folder / "plan.json").read_text())
    data["explanation"] = "edited"
    (folder / "plan.json").write_text(json.dumps(data))
    assert main(["check", str(folder / "certificate.json"), str(folder)]) == 1
    assert "made for another plan" in capsys.readouterr().err


def test_a_plan_that_was_saved_before_there_were_certificates_runs(
    cluster: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = cluster.parent / "plan"
    launched(Request(cluster, plan_only=True, save=folder))
    (folder / "certificate.json").unlink()
    data = json.loads((folder / "plan.json").read_text())
    for key in ("dealing", "costs"):
        del data["derived"][key]
    for channel in data["derived"]["channels"]:
        for key in ("source", "targets", "copy"):
            del channel[key]
    (folder / "plan.json").write_text(json.dumps(data))
    assert main(["certify", str(folder)]) == 2
    assert "launch --plan-only --save makes a new one" in capsys.readouterr().err
    report = reported(Request(folder))
    assert report.agrees


def test_a_refused_certificate_deploys_nothing(
    cluster: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A planner that would forget a place of a channel: the checker finds the deadlock."""
    written = files._plan_data

    def forgetful(plan: Plan, model: str) -> Content:
        data = written(plan, model)
        data["derived"]["channels"][-1]["capacity_frames"] = 0
        return data

    monkeypatch.setattr(files, "_plan_data", forgetful)
    runtime = InProcess()
    with pytest.raises(UncertifiedError, match="Nothing was deployed") as at:
        launched(Request(cluster, save=cluster.parent / "plan"), runtime)
    assert at.value.exit_code == EXIT_FAILED
    assert not (cluster.parent / "plan" / "plan.json").exists()
    with pytest.raises(UncertifiedError):
        launched(Request(cluster), runtime)
    assert runtime.plans == []


def test_certificates_are_small_and_quick() -> None:
    """A second is some ten times what it takes on a busy machine."""
    plan, _ = random_plan(Random(5), most_layers=40, most_devices=4)
    text = files.plan_text(plan, "random.onnx")
    began_s = time.process_time()
    certificate = certificate_of(text)
    assert time.process_time() - began_s < 1
    assert len(certificate) < 2 * len(text)
