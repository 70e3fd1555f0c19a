"""What others notice of attacks on a server; `python -m benchmarks.serving attacks` has more."""

from __future__ import annotations

import pytest

pytest.importorskip("aiohttp", reason="needs the extra serve")
pytest.importorskip("brotli", reason="needs brotli")
pytest.importorskip("tritonclient.grpc", reason="needs tritonclient[grpc,http]")
from benchmarks.serving.attacks import measure

pytestmark = [pytest.mark.slow, pytest.mark.alone]


@pytest.mark.parametrize("attack", ["inflated_brotli", "empty_inputs", "unfinished_bodies"])
def test_others_hardly_notice(attack: str) -> None:
    for row in measure(3.0, attack)["rows"]:
        slack = 2 if "latency" in row["what"] else 1  # of a machine that is busy otherwise
        assert row["measured"] <= row["at_most"] * slack, row
