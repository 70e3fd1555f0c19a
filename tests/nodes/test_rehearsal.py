"""Warming up over the wire, and what it tells of the wire."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from nodes.loopback import Loopback, loopback_address
from nodes.payload import as_array
from nodes.rehearsal import MORE, RUNS, Rehearsal, Remote, WireCosts, fit


class Doubles:
    """A subnet that keeps what it is given and returns its double."""

    def __init__(self) -> None:
        self.seen: list[dict[str, np.ndarray]] = []

    def run(self, inputs):
        self.seen.append(dict(inputs))
        return {"y": inputs["x"] * 2, "z": inputs["local"] * 2}


@pytest.mark.parametrize("data", ["ipc://{}/0.data", "tcp://127.0.0.1:5501"])
def test_what_is_sent_to_oneself_arrives(tmp_path: Path, data: str) -> None:
    arrays = [np.arange(6, dtype=np.float32).reshape(2, 3), np.ones(200_000, np.int8)]
    with Loopback(loopback_address(data.format(tmp_path))) as loopback:
        for _ in range(3):
            payloads, spent_s = loopback.carry(arrays)
            came = [
                as_array(p, str(a.dtype), a.shape) for p, a in zip(payloads, arrays, strict=True)
            ]
            assert all(map(np.array_equal, came, arrays))
            assert spent_s > 0


def test_a_subnet_runs_on_what_came_over_the_wire(tmp_path: Path) -> None:
    inputs = {"x": np.ones(40_000, np.float32), "local": np.zeros(3, np.float32)}
    subnet = Doubles()
    with Loopback(f"ipc://{tmp_path}/self") as loopback:
        rehearsal = Rehearsal(loopback)
        seconds = rehearsal.rehearse(subnet, inputs, Remote(("x",), ("y",)))
    assert seconds > 0
    assert len(subnet.seen) == RUNS
    for seen in subnet.seen:
        assert np.array_equal(seen["x"], inputs["x"])
        assert not np.shares_memory(seen["x"], inputs["x"])
        assert seen["local"] is inputs["local"]
    assert rehearsal.costs().message_s > 0
    assert rehearsal.costs().byte_s > 0


def test_without_a_wire_only_the_subnet_is_measured() -> None:
    inputs = {"x": np.ones(4, np.float32), "local": np.zeros(3, np.float32)}
    rehearsal = Rehearsal(None)
    assert rehearsal.rehearse(Doubles(), inputs, Remote(("x",), ("y",))) > 0
    assert rehearsal.costs() == WireCosts(0.0, 0.0)


def test_costs_are_those_that_the_rounds_were_made_of() -> None:
    rounds = [(n, size, 5e-5 * (1 + MORE * (n - 1)) + 2e-10 * size)
              for n, size in ((1, 10**6), (3, 10**5), (2, 5 * 10**6))]  # fmt: skip
    found = fit([4e-5, 5e-5, 9e-5], [*rounds, (1, 100, 1.0)])
    assert found.message_s == pytest.approx(5e-5)
    assert found.byte_s == pytest.approx(2e-10)
