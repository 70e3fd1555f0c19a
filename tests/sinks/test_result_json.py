"""The JSON of a result: what it has, how much of it, and that any reader can parse it."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from csdf_edge.testing.sink_contract import made_result
from launcher.config.ends.sink import FrameResult, ResultRefusedError
from launcher.sinks.result_json import MOST_VALUES, result_as_json, result_text


class Box:
    def as_json(self) -> dict[str, object]:
        return {"detections": [{"box": [1.0, 2.0, 3.0, 4.0]}]}


def parsed(result: FrameResult) -> object:
    """What a strict reader reads."""

    def refuse(text: str) -> None:
        raise AssertionError(text)

    return json.loads(result_text(result), parse_constant=refuse)


def test_it_has_the_frame_its_times_and_the_predictions() -> None:
    result = replace(made_result(7), predictions=Box())
    assert parsed(result) == {
        "index": 7,
        "name": "7.jpg",
        "taken_s": 1_700_000_000.7,
        "media_s": 0.7,
        "predictions": {"detections": [{"box": [1.0, 2.0, 3.0, 4.0]}]},
    }


def test_what_a_frame_has_not_is_left_out() -> None:
    result = FrameResult(0, 1.5, {}, predictions=Box())
    assert set(result_as_json(result)) == {"index", "taken_s", "predictions"}


def test_without_a_task_it_has_small_outputs_with_the_digits_of_their_precision() -> None:
    outputs = {
        "y": np.array([[0.1, 1e-30]], np.float32),
        "half": np.array([0.1], np.float16),
        "n": np.array(3, np.int64),
        "b": np.array([True]),
    }
    assert result_as_json(FrameResult(0, 1.5, outputs))["outputs"] == {
        "y": {"shape": [1, 2], "dtype": "float32", "data": [0.1, 1e-30]},
        "half": {"shape": [1], "dtype": "float16", "data": [0.1]},
        "n": {"shape": [], "dtype": "int64", "data": [3]},
        "b": {"shape": [1], "dtype": "bool", "data": [True]},
    }


def test_of_large_outputs_it_has_the_shapes() -> None:
    halves = {name: np.zeros((2, MOST_VALUES // 4), np.float32) for name in "ab"}
    assert "data" in result_as_json(FrameResult(0, 0, halves))["outputs"]["a"]
    more = {**halves, "c": np.zeros(1, np.int8)}
    assert result_as_json(FrameResult(0, 0, more))["outputs"] == {
        "a": {"shape": [2, MOST_VALUES // 4], "dtype": "float32"},
        "b": {"shape": [2, MOST_VALUES // 4], "dtype": "float32"},
        "c": {"shape": [1], "dtype": "int8"},
    }


def test_every_number_is_finite() -> None:
    outputs = {"y": np.array([np.nan, np.inf, -np.inf, 1], np.float32)}
    result = FrameResult(0, float("nan"), outputs, media_s=float("inf"))
    data = parsed(result)
    assert isinstance(data, dict)
    assert (data["taken_s"], data["media_s"]) == (None, None)
    assert data["outputs"]["y"]["data"] == [None, None, None, 1.0]


def test_a_name_that_is_no_text_is_json_all_the_same() -> None:
    line = result_text(
        FrameResult(0, 0, {}, name=b"caf\xe9\x1b.jpg".decode("utf-8", "surrogateescape"))
    )
    assert line.isascii()
    assert b"\x1b" not in line
    assert json.loads(line)["name"] == "caf�\x1b.jpg"


@pytest.mark.parametrize("bad", [float("nan"), object(), b"bytes"])
def test_predictions_that_are_no_json_refuse_this_result_only(bad: object) -> None:
    class Bad:
        def as_json(self) -> dict[str, object]:
            return {"score": bad}

    with pytest.raises(ResultRefusedError, match="frame 3: its predictions cannot be written"):
        result_text(replace(made_result(3), predictions=Bad()))
