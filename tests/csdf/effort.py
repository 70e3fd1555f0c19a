"""The number of random graphs for a property: some in every run, thousands in the slow one."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import settings

Check = Callable[[], None]


def examples(few: int, many: int) -> pytest.MarkDecorator:
    """Parametrises a test by `tries`, which it passes to `holds`."""
    return pytest.mark.parametrize("tries", [few, pytest.param(many, marks=pytest.mark.slow)])


def holds(tries: int, check: Check) -> None:
    """Runs a `@given` check on that many examples."""
    settings(max_examples=tries)(check)()
