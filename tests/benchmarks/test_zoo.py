"""The zoo is a list that another Python reads as well, and every entry names what makes it."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import onnx
import pytest

import cnn
from benchmarks.zoo.light import without_weights
from benchmarks.zoo.registry import ENTRIES, chosen


def test_it_has_at_least_a_hundred_networks_with_unique_names() -> None:
    assert len({entry.name for entry in ENTRIES}) == len(ENTRIES) >= 100


def test_every_exporter_is_there() -> None:
    for exporter in {entry.exporter for entry in ENTRIES}:
        assert importlib.util.find_spec(f"benchmarks.zoo.{exporter}") is not None


def test_what_is_quantised_is_a_network_of_the_zoo() -> None:
    names = [entry.name for entry in ENTRIES]
    for entry in ENTRIES:
        if entry.exporter == "quantised":
            assert names.index(entry.model) < names.index(entry.name)


def test_an_unknown_name_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(SystemExit, match=r"no network 'alexnot' in the zoo.*mobilenet_v2-old"):
        chosen(["alexnot"])


def test_the_list_needs_nothing_but_the_standard_library() -> None:
    command = [sys.executable, "-I", "-S", "-c", "import sys; sys.path.insert(0, sys.argv[1]); "
               "import benchmarks.zoo.registry"]  # fmt: skip
    root = Path(__file__).parents[2]
    subprocess.run([*command, str(root)], check=True)


def test_a_network_without_weights_has_the_same_layers_and_a_fraction_of_the_bytes(
    tmp_path: Path,
) -> None:
    whole = onnx.load("examples/digits/digits.onnx")
    onnx.save(without_weights(whole), tmp_path / "light.onnx")
    light = cnn.read(tmp_path / "light.onnx").network
    original = cnn.read("examples/digits/digits.onnx").network
    assert [(x.name, x.operator, x.macs) for x in light.layers] == [
        (x.name, x.operator, x.macs) for x in original.layers
    ]
    assert (tmp_path / "light.onnx").stat().st_size < 40_000
