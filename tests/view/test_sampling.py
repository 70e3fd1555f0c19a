"""What a server remembers of its runs for who opens its page."""

from __future__ import annotations

import logging
import threading

import pytest

from launcher.view.model import RunView
from launcher.view.sampling import CLOSEST_S, RECENT_S, UNSEEN_EVERY_S, RecentSamples, sampling
from tests.view.views import run


def kept(*taken_s: float) -> list[float]:
    """The moments of the samples that are kept of looks at these."""
    recent = RecentSamples()
    for at_s in taken_s:
        recent.keep(run(taken_s=at_s))
    return [sample.at_s for sample in recent.of("d1")]


def test_people_who_look_often_and_side_by_side_add_a_sample_every_other_second() -> None:
    assert kept(0.0, 0.3, 1.0, 1.3, 2.0, 2.3, 3.0, 3.3, 4.0) == [0.0, 2.0, 4.0]


def test_a_run_that_nobody_watches_has_a_sample_now_and_then() -> None:
    looks = [UNSEEN_EVERY_S * number for number in range(100)]
    assert kept(*looks) == [at_s for at_s in looks if at_s >= looks[-1] - RECENT_S]


def test_what_is_older_than_some_minutes_is_forgotten() -> None:
    assert kept(0.0, CLOSEST_S, RECENT_S + 1.0) == [CLOSEST_S, RECENT_S + 1.0]


@pytest.mark.parametrize("raised", [ValueError, SystemExit])
def test_a_look_that_fails_is_logged_and_does_not_end_the_others(
    raised: type[BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    looks: list[int] = []
    is_kept = threading.Event()

    def look() -> tuple[RunView, ...]:
        looks.append(len(looks))
        if len(looks) < 4:
            raise raised("no such node")
        return (run(taken_s=1.0),)

    with sampling(look, lambda _: is_kept.set(), lambda: 0.0):
        assert is_kept.wait(20.0)
    assert [record.message for record in caplog.records] == [
        f"sampling the run failed: {raised.__name__}: no such node"
    ]
