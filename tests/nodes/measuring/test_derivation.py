"""What is derived from the seconds of probes, for any board; and what is doubted."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodes.measuring.derivation import IMAGE, Samples, derived, doubt, under_share
from nodes.measuring.probes import ADDED, DENSE, DEPTHWISE, MATRIX, POINTWISE
from nodes.protocol.messages import BoardFigures

macs = st.floats(1e-12, 1e-8)
arithmetic_bound = st.floats(0.01, 0.2)
"""What all bytes of a layer take, as a part of its arithmetic."""


@st.composite
def boards(draw: st.DrawFn) -> BoardFigures:
    """A board on which arithmetic is at least a tenth of each layer, as wherever it is derived."""
    dense, pointwise, integer = (draw(macs) for _ in range(3))
    least = min(dense, pointwise, integer)
    tensor = draw(arithmetic_bound) * least
    return BoardFigures(
        threads=1,
        dense_s_per_mac=dense,
        pointwise_s_per_mac=pointwise,
        depthwise_s_per_mac=draw(st.floats(1.0, 10.0)) * least,
        integer_s_per_mac=integer,
        weight_s_per_byte=draw(arithmetic_bound) * least,
        tensor_s_per_byte=tensor,
        cut_s_per_byte=draw(arithmetic_bound) * least,
        run_s=draw(st.floats(0.0, 0.01)) * 1e5 * least,
        message_s=1e-4,
        byte_s=1e-10,
        encode_s_per_byte=1e-9,
    )


def seconds_on(board: BoardFigures) -> dict[str, float]:
    """What the probes take by the formula of the module."""

    def layers(
        number: int, channels: int, weights: int, per_mac_s: float, cut: bool = True
    ) -> float:
        tensors = 8 * channels * IMAGE
        layer_s = weights * IMAGE * per_mac_s + tensors * board.tensor_s_per_byte
        layer_s += 4 * weights * board.weight_s_per_byte
        border_s = tensors * board.cut_s_per_byte if cut else 0.0
        return board.run_s + border_s + number * layer_s

    deep = (DEPTHWISE, 9 * DEPTHWISE, board.depthwise_s_per_mac)
    return {
        "run": board.run_s,
        "dense": layers(2, DENSE, 9 * DENSE**2, board.dense_s_per_mac),
        "pointwise": layers(2, POINTWISE, POINTWISE**2, board.pointwise_s_per_mac),
        "depthwise": layers(1, *deep),
        "depthwise4": layers(4, *deep),
        "integer": layers(1, DENSE, 9 * DENSE**2, board.integer_s_per_mac, cut=False),
        "matrix": board.run_s + 4 * MATRIX[0] * MATRIX[1] * board.weight_s_per_byte,
        "added": board.run_s + 4 * 12 * ADDED * IMAGE * board.tensor_s_per_byte,
    }


def samples(seconds: dict[str, list[float]], **other: float) -> Samples:
    return Samples(
        seconds, **({"message_s": 1e-4, "byte_s": 1e-10, "encode_s_per_byte": 1e-9} | other)
    )


@given(boards())
def test_the_figures_of_any_board_follow_from_what_its_probes_take(board: BoardFigures) -> None:
    found = derived(samples({name: [s] for name, s in seconds_on(board).items()}), 1)
    for field in dataclasses.fields(BoardFigures):
        assert getattr(found, field.name) == pytest.approx(getattr(board, field.name), rel=1e-4)


times = st.floats(1e-7, 10.0)


@given(st.data())
def test_whatever_probes_take_no_figure_is_negative_and_no_layer_is_free(
    data: st.DataObject,
) -> None:
    taken = {name: [data.draw(times)] for name in seconds_on(SOME)}
    found = derived(samples(taken), 4)
    figures = {f.name: getattr(found, f.name) for f in dataclasses.fields(BoardFigures)}
    assert min(figures.values()) >= 0
    assert min(v for name, v in figures.items() if name.endswith("per_mac")) > 0
    assert found.threads == 4


SOME = BoardFigures(1, 2e-11, 3e-11, 4e-11, 1e-11, 1e-11, 1e-11, 1e-11, 1e-5, 1e-4, 1e-10, 1e-9)


def runs(*, factor: float = 1.0, late: float = 1.0) -> dict[str, list[float]]:
    """Eight runs of each probe on `SOME`: five as usual and three `factor` times as long, the later
    four also `late` times."""
    found = {}
    for name, seconds in seconds_on(SOME).items():
        all_ = [seconds, seconds * factor] * 3 + [seconds, seconds]
        found[name] = [s * (late if number >= 4 else 1.0) for number, s in enumerate(all_)]
    return found


def test_a_quiet_measurement_is_believed() -> None:
    assert doubt(samples(runs())) == ""
    assert doubt(samples(runs(factor=1.4))) == ""


@pytest.mark.parametrize(
    ("seconds", "other", "said"),
    [
        (runs(), {"suspended_s": 0.3}, "suspended"),
        (runs(), {"byte_s": -1e-12}, "clocks"),
        (runs() | {"added": [0.0] * 8}, {}, "clocks"),
        (runs() | {"dense": [-1e-3] * 8}, {}, "clocks"),
        (runs() | {"dense": [3e-3] * 3 + [9e-3] * 5}, {}, "other programs"),
        (runs(late=2.0), {}, "2.0 times"),
        (runs(late=0.5), {}, "2.0 times"),
        ({name: [s * 1e8 for s in own] for name, own in runs().items()}, {}, "is impossible"),
        ({name: [s * 1e-6 for s in own] for name, own in runs().items()}, {}, "is impossible"),
    ],
    ids=str,
)
def test_nonsense_is_doubted(
    seconds: dict[str, list[float]], other: dict[str, float], said: str
) -> None:
    assert said in doubt(samples(seconds, **other))


@given(st.floats(0.01, 1.0), st.floats(0.01, 1.0))
def test_a_quota_makes_everything_longer_in_proportion(computing: float, serving: float) -> None:
    found = under_share(SOME, computing, serving)
    assert found.dense_s_per_mac == pytest.approx(SOME.dense_s_per_mac / computing)
    assert found.message_s == pytest.approx(SOME.message_s / serving)
    assert found.threads == SOME.threads
