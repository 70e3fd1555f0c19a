"""A short run of every fuzz target, and what longer runs have found."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from onnx import ModelProto

import cnn
from cnn.errors import CnnError
from launcher.config.load import validated
from launcher.config.source import parse_source
from launcher.errors import BadInputError
from launcher.plan.files import PLAN, read_plan
from launcher.plan.profile.file import read_profile
from tests.fuzz.__main__ import fuzz
from tests.fuzz.good import network
from tests.fuzz.targets import Files, Target

INPUTS = {
    "messages": 5000,
    "payload": 2000,
    "agent": 300,
    "cluster.yaml": 200,
    "plan.json": 500,
    "subnet": 1500,
    "network": 100,
    "model files": 700,
    "external data": 700,
    "profile.json": 500,
    "keys": 300,
    "image": 500,
    "npy": 500,
    "npz": 300,
    "run.json": 100,
    "journal": 100,
    "index.json": 300,
    "task": 500,
    "video": 300,
    "references": 300,
    "standard input": 500,
    "certificate": 300,
    "plan certificate": 60,
    "HTTP request": 2000,
    "gRPC request": 2000,
}
"""How many of each in every test run; `make fuzz` feeds a million."""


@pytest.fixture(scope="module")
def targets(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Target]:
    return Files(tmp_path_factory.mktemp("fuzz")).targets()


@pytest.mark.parametrize("name", INPUTS)
def test_nothing_breaks_a_reader(targets: Mapping[str, Target], name: str) -> None:
    good, found = fuzz(targets[name], name, INPUTS[name])
    assert found == []
    assert good < INPUTS[name], "no input was bad: nothing was tested"


def test_every_target_takes_good_inputs_too(targets: Mapping[str, Target]) -> None:
    """Otherwise only the first check of a reader would ever be reached."""
    for name, target in targets.items():
        good, _ = fuzz(target, name, 60, first_seed=10_000)
        assert good, name


# ---------------------------------------------------------------- what was found


def test_aliases_that_multiply_are_refused() -> None:
    """Nine lines of YAML that stand for 10^9 values."""
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 9)]
    with pytest.raises(BadInputError, match="more than 100000 values"):
        parse_source("\n".join(lines), "cluster.yaml")


@pytest.mark.parametrize("text", ["[" * 2_000, "{a: " * 2_000, "- " * 2_000])
def test_a_cluster_that_is_nested_without_end_is_refused(text: str) -> None:
    with pytest.raises(
        BadInputError, match=r"nested too deeply|is not valid YAML|must be a mapping"
    ):
        validated(parse_source(text, "cluster.yaml"))


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 100_000])
def test_a_plan_that_is_nested_without_end_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / PLAN).write_text(text)
    with pytest.raises(BadInputError, match="nested too deeply"):
        read_plan(tmp_path)


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 100_000])
def test_a_profile_that_is_nested_without_end_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "profile.json").write_text(text)
    with pytest.raises(BadInputError, match="nested too deeply"):
        read_profile(tmp_path / "profile.json")


def _damage_operator(model: bytes) -> bytes:
    return model.replace(b"\x04Relu", b"\x04Re\xc0\xff")


def _damage_tensor(model: bytes) -> bytes:
    return model.replace(b"\x05shape", b"\x05sha\xc0\xff")


def _unknown_type(model: bytes) -> bytes:
    proto = ModelProto.FromString(model)
    proto.graph.initializer[0].data_type = 33
    return bytes(proto.SerializeToString())


def _operator_without_output(model: bytes) -> bytes:
    proto = ModelProto.FromString(model)
    del proto.graph.node[1].output[:]
    return bytes(proto.SerializeToString())


def _no_output(model: bytes) -> bytes:
    proto = ModelProto.FromString(model)
    del proto.graph.output[:]
    return bytes(proto.SerializeToString())


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        (_damage_operator, "a Node has a name that is not text"),
        (_damage_tensor, "a Tensor has a name that is not text"),
        (_unknown_type, "element type 33"),
        (_operator_without_output, "has no output"),
        (_no_output, "has no output"),
    ],
)
def test_a_damaged_network_is_refused(
    tmp_path: Path, damage: Callable[[bytes], bytes], sentence: str
) -> None:
    path = tmp_path / "network.onnx"
    path.write_bytes(damage(network()))
    with pytest.raises(CnnError, match=sentence):
        cnn.read(path)
