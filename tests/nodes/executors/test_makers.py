"""What a child process imports to prepare subnets exists, whether or not the engine does."""

from __future__ import annotations

import re
from importlib import import_module

import pytest

from tests.architecture.source import sources

PLACES = sorted(
    {
        place
        for source in sources("nodes/executors")
        for place in re.findall(r'"(nodes\.[\w.]+:\w+)"', source.text)
        if not place.endswith("Engine")
    }
)


def test_every_engine_that_prepares_in_a_child_names_its_maker() -> None:
    assert len(PLACES) == 5


@pytest.mark.parametrize("place", PLACES)
def test_a_maker_is_where_its_executor_says(place: str) -> None:
    module, _, name = place.partition(":")
    assert callable(getattr(import_module(module), name))
