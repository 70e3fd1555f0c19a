"""A short run of bad requests to a running server; see `tests.fuzz.live_server` for long ones."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("aiohttp", reason="needs the extra serve")
pytest.importorskip("tritonclient.grpc", reason="needs tritonclient[grpc,http]")
from tests.fuzz.live_server import attacked

pytestmark = pytest.mark.slow

REQUESTS = 1000


def test_bad_requests_harm_neither_honest_clients_nor_the_server(tmp_path: Path) -> None:
    outcome, _ = attacked(REQUESTS, 0, tmp_path / "log")
    assert outcome.findings == []
    assert outcome.sent.total() == REQUESTS
    assert all(asked.answers for asked in outcome.honest.values())
    assert {"200", "400", "OK", "INVALID_ARGUMENT", "closed"} <= outcome.answers.keys()
