"""The examples in docstrings run, and give what they say."""

from __future__ import annotations

import doctest
import importlib
import inspect
import pkgutil
from collections.abc import Iterator
from functools import cache
from types import ModuleType

import pytest

import csdf

PACKAGES = ("cnn", "csdf", "csdf_edge", "partition", "ga")


def modules(package: str) -> Iterator[str]:
    """The package and all modules in it."""
    yield package
    path = importlib.import_module(package).__path__
    yield from (module.name for module in pkgutil.walk_packages(path, f"{package}."))


def exported(package: ModuleType) -> Iterator[str]:
    """The functions, and the classes that a user makes, that `package` exports, by full name."""
    for name in package.__all__:
        thing = getattr(package, name)
        if not inspect.isclass(thing) or name in MADE_BY_USERS:
            yield f"{thing.__module__}.{name}"


MADE_BY_USERS = ("Actor", "CapacitySearch", "Channel", "Entry", "Graph", "Machine")

FINDER = doctest.DocTestFinder(exclude_empty=True)


@cache
def examples(package: str) -> list[doctest.DocTest]:
    found = (FINDER.find(importlib.import_module(name), name) for name in modules(package))
    return [test for tests in found for test in tests if test.examples]


@pytest.mark.parametrize("package", PACKAGES)
def test_every_example_gives_what_it_says(package: str) -> None:
    tests = examples(package)
    assert tests
    for test in tests:
        said: list[str] = []
        result = doctest.DocTestRunner().run(test, out=said.append)
        assert result.failed == 0, "".join(said)


@pytest.mark.parametrize(
    "function",
    [
        "cnn.merge.merge",
        "cnn.model.Model.band_layers",
        "cnn.model.Model.cut",
        "cnn.model.Model.fused",
        "cnn.model.Model.rewritten",
        "cnn.model.Model.slice_channels",
        "cnn.model.Model.with_name",
        "cnn.model.Model.write_original",
        "cnn.model.read",
        "cnn.network.Network",
        "cnn.rewrite.rewrites.Bands",
        "cnn.rewrite.rewrites.Copies",
        "cnn.rewrite.rewrites.Slices",
        *exported(csdf),
        "partition.devices.Device",
        "partition.planner.make_plan",
        "partition.strategies.base.Problem",
        "partition.strategies.base.Solution",
        "partition.strategies.contiguous.sequential.Sequential",
        "partition.pricing.cost.CostModel",
        "ga.strategies.find_strategy",
    ],
)
def test_what_a_user_calls_has_an_example(function: str) -> None:
    package = function.partition(".")[0]
    assert function in {test.name for test in examples(package)}
