"""Warming up over the wire, and what it tells of the wire."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from nodes.loopback import Loopback, loopback_address
from nodes.payload import as_array
from nodes.rehearsal import MORE, Part, Rehearsal, WireCosts, fit


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


def made_up() -> dict[str, np.ndarray]:
    return {"x": np.ones(40_000, np.float32), "local": np.zeros(3, np.float32)}


def test_a_subnet_runs_on_what_came_over_the_wire(tmp_path: Path) -> None:
    part = Part(Doubles(), made_up, ("x",), ("y",))
    with Loopback(f"ipc://{tmp_path}/self") as loopback:
        rehearsal = Rehearsal(loopback)
        for _ in range(3):
            rehearsal.perform(part)
    assert len(part.seconds) == len(part.subnet.seen) == 3
    for seen in part.subnet.seen:
        assert np.array_equal(seen["x"], made_up()["x"])
        assert not seen["x"].flags.owndata
        assert seen["local"].flags.owndata
    assert rehearsal.costs().message_s > 0
    assert rehearsal.costs().byte_s > 0


def test_the_first_run_does_not_count() -> None:
    part = Part(Doubles(), made_up, seconds=[9.0, 1.0, 3.0, 2.0])
    assert part.typical_s == 2.0


def test_without_a_wire_only_the_subnet_is_measured() -> None:
    part, rehearsal = Part(Doubles(), made_up, ("x",), ("y",)), Rehearsal()
    rehearsal.perform(part)
    assert part.seconds[0] > 0
    assert rehearsal.costs() == WireCosts(0.0, 0.0)


def test_costs_are_those_that_the_rounds_were_made_of() -> None:
    rounds = [(n, size, 5e-5 * (1 + MORE * (n - 1)) + 2e-10 * size)
              for n, size in ((1, 10**6), (3, 10**5), (2, 5 * 10**6))]  # fmt: skip
    found = fit([4e-5, 5e-5, 9e-5], [*rounds, (1, 100, 1.0)])
    assert found.message_s == pytest.approx(5e-5)
    assert found.byte_s == pytest.approx(2e-10)
