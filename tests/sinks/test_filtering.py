"""The keys `labels`, `score`, `empty` and `on_change`, which every sink has."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from csdf_edge.testing.sink_contract import made_result
from launcher.config.ends.sink import FrameResult, Predictions
from launcher.sinks.filtering import ResultFilter
from launcher.sinks.stdout import StdoutConfig
from launcher.tasks.predictions import (
    ClassMap,
    FoundObject,
    FoundObjects,
    ImageClasses,
    ScoredClass,
)
from tests.streaming.parts import ScriptedSink, delivery

NAMES = ("person", "car", "dog")


def found(*objects: tuple[int, float]) -> FoundObjects:
    made = (FoundObject(n, NAMES[n], score, (0.0, 0.0, 9.0, 9.0)) for n, score in objects)
    return FoundObjects("detect", 64, 48, tuple(made))


def seen(predictions: Predictions | None) -> FrameResult:
    return replace(made_result(0), predictions=predictions)


def kept(predictions: Predictions, **keys: Any) -> list[tuple[str, float]]:
    """Name and score of each object that a sink with these keys gets."""
    result = passed(predictions, **keys)
    assert isinstance(result, FoundObjects)
    return [(one.name, one.score) for one in result.objects]


def passed(predictions: Predictions | None, **keys: Any) -> Predictions | None:
    """What a sink with these keys gets; None if it gets nothing."""
    wanted = ResultFilter.of(StdoutConfig(**keys))
    assert wanted is not None
    result = wanted(seen(predictions))
    return None if result is None else result.predictions


def test_a_sink_without_the_keys_has_no_filter() -> None:
    assert ResultFilter.of(StdoutConfig()) is None


def test_objects_are_kept_by_label_and_score() -> None:
    whole = found((0, 0.9), (1, 0.8), (0, 0.3), (2, 0.7))
    assert kept(whole, labels=("person",)) == [("person", 0.9), ("person", 0.3)]
    assert kept(whole, labels=("person", 2), score=0.5) == [("person", 0.9), ("dog", 0.7)]
    assert kept(whole, score=0.8) == [("person", 0.9), ("car", 0.8)]
    assert kept(whole, labels=("cat",)) == []
    assert passed(whole, labels=("cat",), empty=False) is None


def test_classes_are_kept_by_label_and_score() -> None:
    classes = ImageClasses((ScoredClass(0, "person", 0.9), ScoredClass(1, "car", 0.1)))
    likely = passed(classes, score=0.5)
    assert isinstance(likely, ImageClasses)
    assert [one.name for one in likely.classes] == ["person"]
    assert passed(classes, labels=("dog",), empty=False) is None


@dataclass(frozen=True)
class Counted(Predictions):
    """Predictions of a plugin, which are not known here."""

    people: int

    def as_json(self) -> dict[str, Any]:
        return {"people": self.people}


def test_what_is_not_known_here_is_never_empty() -> None:
    pixels = ClassMap(np.zeros((2, 2), np.uint16), NAMES)
    for predictions in (Counted(0), pixels, None):
        assert passed(predictions, labels=("car",), score=0.5, empty=False) is predictions


@given(st.lists(st.lists(st.sampled_from((0, 1, 2)), max_size=3), max_size=20))
def test_changes_are_those_of_the_number_of_objects_of_a_class(
    frames: list[list[int]],
) -> None:
    """Wherever they are: who keeps the last result of each change knows the counts of all."""
    wanted = ResultFilter(StdoutConfig(on_change=True))
    known: list[int] | None = None
    for number, objects in enumerate(frames):
        result = wanted(seen(found(*((n, 0.5 + number / 100) for n in objects))))
        if result is not None:
            assert known != sorted(objects), "nothing has changed"
            known = sorted(objects)
        assert known == sorted(objects)


def test_other_results_change_with_their_content() -> None:
    changes: list[tuple[Predictions | None, Predictions | None]] = [
        (Counted(1), Counted(2)),
        (ClassMap(np.zeros((2, 2), np.uint16)), ClassMap(np.ones((2, 2), np.uint16))),
        (ImageClasses((ScoredClass(0, "", 0.5),)), ImageClasses((ScoredClass(1, "", 0.5),))),
    ]
    for one, other in changes:
        wanted = ResultFilter(StdoutConfig(on_change=True))
        got = [wanted(seen(each)) is not None for each in (one, one, other, other, one)]
        assert got == [True, False, True, False, True]
    wanted = ResultFilter(StdoutConfig(on_change=True))
    assert [wanted(made_result(n)) is not None for n in (0, 0, 1, 1)] == [True, False, True, False]


def test_a_delivery_counts_what_its_filter_leaves_out() -> None:
    sink = ScriptedSink()
    delivering = delivery(sink, wanted=ResultFilter(StdoutConfig(on_change=True)))
    for number in (0, 0, 1, 1, 1):
        assert delivering.put(made_result(number), 0.0)
    delivering.finish()
    assert not delivering.put(made_result(1), 0.0)
    delivering.run()
    report = delivering.report()
    assert (report.given, report.delivered, report.left_out) == (2, 2, 3)
    assert [taken.index for taken in sink.taken] == [0, 1]
