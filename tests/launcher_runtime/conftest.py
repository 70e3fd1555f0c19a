from __future__ import annotations

from pathlib import Path

import pytest

from tests.launcher_runtime.clusters import Cluster, make_cluster


@pytest.fixture(scope="session")
def two(tmp_path_factory: pytest.TempPathFactory) -> Cluster:
    """The small network dealt out to two nodes."""
    return make_cluster(tmp_path_factory.mktemp("two"), 2)


@pytest.fixture(scope="session")
def three(tmp_path_factory: pytest.TempPathFactory) -> Cluster:
    """The small network dealt out to three nodes."""
    return make_cluster(tmp_path_factory.mktemp("three"), 3)


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where agents keep subnets: one for all tests, so that each is optimised once."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def unwatched(monkeypatch: pytest.MonkeyPatch) -> None:
    """Agents do not notice that their engine hangs, so that the launcher has to."""
    monkeypatch.setattr("nodes.core.lifecycle.firing_limit_s", lambda _: float("inf"))
