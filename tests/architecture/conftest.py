from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.architecture.source import forget_trees


@pytest.fixture(scope="package", autouse=True)
def _trees_are_not_kept() -> Iterator[None]:
    """Later tests do not pay for millions of objects, which each full collection would traverse."""
    yield
    forget_trees()
