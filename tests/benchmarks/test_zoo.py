"""The zoo is a list that another Python reads as well, and every entry names what makes it."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.zoo.registry import ENTRIES, chosen


def test_it_has_a_hundred_networks_and_more_each_with_a_name_of_its_own() -> None:
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
               "import benchmarks.zoo.registry, benchmarks.zoo.cache"]  # fmt: skip
    root = Path(__file__).parents[2]
    subprocess.run([*command, str(root)], check=True)
