"""A few days of a simulated service; `make months` runs a thousand months."""

from __future__ import annotations

import pytest

from tests.service.months import history


@pytest.mark.parametrize("seed", range(5))
def test_some_days_of_a_service_keep_every_promise(seed: int) -> None:
    assert history(seed, days=4) > 300
