"""No name that comes from outside leads out of the folder that it is used in."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cnn.network import Tensor
from launcher.config.load import load_cluster
from launcher.errors import BadInputError
from launcher.files import distinct_names, plain_name
from launcher.plan.subnet_files import cut_subnets
from launcher.results.journal.identity import RunIdentity
from launcher.results.journal.journal import RUN, Journal
from launcher.results.journal.result_files import output_specs
from launcher.results.outputs import OutputFolder
from launcher.results.resuming import open_journal
from launcher.run.runtime import SubnetFiles
from partition.plan import PlannedPhase
from tests.fuzz.run_files import EMPTY_PLAN, NoModel
from tests.launcher.models import write_branches

WORDS = ("..", ".", "/", "\\", "\0", "~", "a", "A", "\x1b", "\u202e", "\udcff", "x" * 300, "", " ")
NAMES = st.lists(st.sampled_from(WORDS), max_size=5).map("".join) | st.text(max_size=20)
"""Names of tensors, files and folders by somebody who wants out."""

EVERY = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def everything_in(folder: Path) -> set[Path]:
    """All files and folders below."""
    return set(folder.rglob("*"))


@given(st.lists(NAMES, max_size=6))
def test_names_of_files_are_plain_short_and_distinct(names: list[str]) -> None:
    found = distinct_names(map(plain_name, names))
    assert len({name.lower() for name in found}) == len(names)
    for name in found:
        assert Path(f"000000.{name}.npy").name == f"000000.{name}.npy"
        assert len(f"000000.{name}.npy".encode()) <= 255


@EVERY
@given(st.lists(NAMES, min_size=1, max_size=4, unique=True), NAMES)
def test_results_stay_in_their_folder(
    tmp_path_factory: pytest.TempPathFactory, outputs: list[str], source: str
) -> None:
    around = tmp_path_factory.mktemp("around")
    result = {name: np.zeros((1, 2), np.float32) for name in outputs}
    top = 1 if len(outputs) == 1 else 0
    with OutputFolder(
        around / "out", tuple(outputs), input_name=lambda frame: source, top=top
    ) as writer:
        writer.write(0, result)
    written = everything_in(around) - {around / "out"}
    assert len(written) == len(outputs) + top
    assert {path.parent for path in written} == {around / "out"}


@EVERY
@given(st.lists(NAMES, min_size=1, max_size=4, unique=True))
def test_a_journal_stays_in_its_folder(
    tmp_path_factory: pytest.TempPathFactory, outputs: list[str]
) -> None:
    around = tmp_path_factory.mktemp("around")
    specs = output_specs(Tensor(name, (1, 2), "float32") for name in outputs)
    identity = RunIdentity("m", "i", 1, specs)
    for resume in (False, True):
        with open_journal(around / "run", identity, resume=resume, where="--journal") as journal:
            assert isinstance(journal, Journal)
    written = everything_in(around) - {around / "run"}
    assert len(written) == len(outputs) + 2
    assert {path.parent for path in written} == {around / "run"}


@EVERY
@given(NAMES)
def test_a_journals_head_names_no_file(tmp_path_factory: pytest.TempPathFactory, name: str) -> None:
    """Files are called after the model's outputs; a head that says otherwise is another run's."""
    around = tmp_path_factory.mktemp("around")
    identity = RunIdentity("m", "i", 1, output_specs([Tensor("y", (1, 2), "float32")]))
    open_journal(around / "run", identity, resume=False, where="--journal").close()
    head = around / "run" / RUN
    data = json.loads(head.read_text())
    data["identity"]["outputs"][0]["file"] = name
    head.write_text(json.dumps(data))
    before = everything_in(around)
    with pytest.raises(BadInputError, match="its model has other outputs"):
        open_journal(around / "run", identity, resume=True, where="--journal")
    assert everything_in(around) == before


@EVERY
@given(st.dictionaries(NAMES, st.lists(NAMES | st.just("keep") | st.just("a" * 64), max_size=3)))
def test_an_index_removes_nothing_but_subnets(
    tmp_path_factory: pytest.TempPathFactory, index: dict[str, list[str]]
) -> None:
    around = tmp_path_factory.mktemp("around")
    subnets = around / "plan" / "subnets"
    subnets.mkdir(parents=True)
    (subnets / ("a" * 64)).touch()
    for folder in (around, around / "plan", subnets):
        (folder / "keep").touch()
    (subnets / "index.json").write_text(json.dumps(index))
    before = everything_in(around)
    cut_subnets(NoModel(), EMPTY_PLAN, subnets, lambda done, total: None)
    assert before - everything_in(around) <= {subnets / ("a" * 64)}
    assert everything_in(around) <= before


class OneSubnet(NoModel):
    """A model that has one subnet."""

    content = b"a graph"
    name = hashlib.sha256(content).hexdigest()

    def cut(self, *arguments: object) -> SubnetFiles:
        folder = arguments[-1]
        assert isinstance(folder, Path)
        draft = folder / "draft"
        draft.write_bytes(self.content)
        return SubnetFiles(draft.replace(folder / self.name), None)


@pytest.mark.parametrize("kind", ["pipe", "link to a device", "link to the same content"])
def test_a_subnet_of_an_earlier_time_is_a_regular_file_or_is_cut_again(
    tmp_path: Path, kind: str
) -> None:
    """Opening a pipe would wait for ever, and what a link leads to may change at any time."""
    phase = PlannedPhase("p", "a", 0, ("conv",), ("x",), ("y",), 0, 1.0)
    plan = replace(EMPTY_PLAN, phases=(phase,))
    folder = tmp_path / "subnets"
    subnet = cut_subnets(OneSubnet(), plan, folder, lambda done, total: None)["p"].graph
    subnet.unlink()
    match kind:
        case "pipe":
            os.mkfifo(subnet)
        case "link to a device":
            subnet.symlink_to("/dev/zero")
        case _:
            (tmp_path / "elsewhere").write_bytes(OneSubnet.content)
            subnet.symlink_to(tmp_path / "elsewhere")
    again = cut_subnets(OneSubnet(), plan, folder, lambda done, total: None)["p"].graph
    assert again == subnet
    assert not subnet.is_symlink()
    assert subnet.read_bytes() == OneSubnet.content


@pytest.mark.parametrize("name", ["...onnx", "..onnx", ".hidden.onnx", f"{'x' * 101}.onnx"])
def test_networks_of_one_run_have_names_that_can_be_folders(tmp_path: Path, name: str) -> None:
    """Each has its results in its own folder: two dots would be the folder above."""
    for path in (tmp_path / name, tmp_path / "other.onnx"):
        write_branches(path)
    models = [name, "other.onnx"]
    (tmp_path / "cluster.yaml").write_text(json.dumps({"model": models, "nodes": [{"name": "a"}]}))
    with pytest.raises(BadInputError, match=r"line 1, model.* cannot be a folder's name"):
        load_cluster(tmp_path / "cluster.yaml")


def named(key: str) -> Callable[[str], dict[str, object]]:
    def data(name: str) -> dict[str, object]:
        model: dict[str, object] = {"path": "a.onnx"} | ({"name": name} if key == "model" else {})
        node = {"name": name if key == "node" else "b"}
        return {"model": model, "nodes": [node]}

    return data


@EVERY
@pytest.mark.parametrize("key", ["model", "node"])
@given(name=NAMES)
def test_names_in_a_cluster_are_names_of_files(
    tmp_path_factory: pytest.TempPathFactory, key: str, name: str
) -> None:
    """Of folders of keys, and of results."""
    folder = tmp_path_factory.mktemp("cluster")
    (folder / "a.onnx").touch()
    (folder / "cluster.yaml").write_text(json.dumps(named(key)(name)))
    try:
        cluster = load_cluster(folder / "cluster.yaml")
    except BadInputError:
        return
    found = cluster.models[0].name if key == "model" else cluster.config.nodes[0].name
    assert Path(found).name == found
    assert found not in ("", ".", "..")
    assert found.isprintable()
