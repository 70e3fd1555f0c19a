"""When an agent reads its meter: while a deployment runs, and no more often than needed."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field

import pytest

from nodes.core import events as ev
from nodes.core.lifecycle import Stage
from nodes.host.energy.base import MeterError
from nodes.host.energy.metering import CLOSEST_S, LONGEST_IDLE_S, Metering
from nodes.protocol.messages import Start, Stats, Stop, Stopped
from tests.nodes.lone_core import LoneCore, replies


@dataclass
class Watt:
    """A meter of something that takes one watt; it keeps when it was read."""

    period_s: float = 0.1
    description: str = "one watt"
    is_gone: bool = False
    read_s: list[float] = field(default_factory=list)
    is_closed: bool = False

    def read_j(self, now_s: float) -> float:
        if self.is_gone:
            raise MeterError("it is gone")
        self.read_s.append(now_s)
        return now_s

    def close(self) -> None:
        self.is_closed = True


def slept_through(metering: Metering, until_s: float) -> list[float]:
    """Turn whenever the metering asks for it and nothing else happens; return when that was."""
    woken = []
    while (at_s := metering.deadline_s) is not None and at_s <= until_s:
        metering.turned(at_s, had_events=False)
        woken.append(at_s)
    return woken


def test_an_agent_without_a_deployment_is_never_woken() -> None:
    meter = Watt()
    metering = Metering(meter)
    assert metering.deadline_s is None
    metering.turned(1.0, had_events=True)
    assert metering.measured("stop", 2.0) is None  # of a deployment that never started
    assert (meter.read_s, metering.deadline_s) == ([], None)
    metering.measured("start", 3.0)
    metering.measured("stop", 4.0)
    assert metering.deadline_s is None


def test_an_agent_without_a_meter_measures_nothing_and_is_never_woken() -> None:
    metering = Metering(None)
    assert metering.measured("start", 0.0) is None
    assert metering.deadline_s is None
    assert metering.measured("stop", 1.0) is None


def test_while_it_works_readings_follow_each_other_by_the_period() -> None:
    meter = Watt()
    metering = Metering(meter)
    metering.measured("start", 0.0)
    for millisecond in range(1, 1000):
        metering.turned(millisecond / 1000, had_events=True)
    assert len(meter.read_s) == 10
    assert metering.deadline_s == pytest.approx(meter.read_s[-1] + 0.1)


def test_while_it_waits_pauses_double_up_to_a_bound() -> None:
    metering = Metering(Watt())
    metering.measured("start", 0.0)
    woken = slept_through(metering, 20.0)
    assert woken == pytest.approx([0.1, 0.3, 0.7, 1.5, 3.1, 6.3, 9.5, 12.7, 15.9, 19.1])
    assert woken[-1] - woken[-2] == pytest.approx(LONGEST_IDLE_S)


def test_the_first_event_after_a_pause_is_measured_at_once_and_readings_are_close_again() -> None:
    meter = Watt()
    metering = Metering(meter)
    metering.measured("start", 0.0)
    slept_through(metering, 10.0)
    metering.turned(10.5, had_events=True)
    assert meter.read_s[-1] == 10.5
    assert metering.deadline_s == pytest.approx(10.6)


def test_a_counter_that_wraps_around_in_minutes_wakes_an_agent_every_minute_only() -> None:
    metering = Metering(Watt(period_s=60.0))
    metering.measured("start", 0.0)
    assert slept_through(metering, 200.0) == [60.0, 120.0, 180.0]


def test_statistics_have_the_joules_of_the_moment_but_not_in_quick_succession() -> None:
    metering = Metering(Watt(period_s=60.0))
    metering.measured("start", 5.0)
    assert metering.measured("stats", 7.0) == 7.0
    assert metering.measured("stats", 7.0 + CLOSEST_S / 2) == 7.0
    assert metering.measured("stats", 7.0 + CLOSEST_S) == pytest.approx(7.1)
    assert metering.measured("stop", 7.15) == 7.15


@pytest.mark.parametrize("wrong", [None, -1.0, float("nan"), float("inf")])
def test_energy_that_was_not_measured_all_the_time_is_not_a_number(
    wrong: float | None, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    meter = Watt()
    metering = Metering(meter)
    metering.measured("start", 0.0)
    with monkeypatch.context() as patched, caplog.at_level(logging.WARNING, "node-agent"):
        meter.is_gone = wrong is None
        if wrong is not None:
            patched.setattr(meter, "read_j", lambda _: wrong)
        metering.turned(1.0, had_events=True)
    (record,) = caplog.records
    assert "energy is no longer measured: one watt" in record.getMessage()
    assert metering.deadline_s is None
    meter.is_gone = False
    assert metering.measured("stats", 2.0) is None
    assert metering.measured("stop", 3.0) is None
    assert metering.measured("start", 4.0) == 4.0, "it is tried again for the next deployment"


def stopped(started_j: float | None, stopped_j: float | None) -> Stats:
    """What an agent says of an epoch between these two readings."""
    agent = LoneCore().at(Stage.READY)
    agent.says(Start(7))
    agent.happens(ev.Measured("start", ev.Usage(1, 1, 1, 0.0, started_j)))
    agent.says(Stop(7))
    agent.happens(ev.Measured("stop", ev.Usage(1, 1, 1, 1.0, stopped_j)))
    (answer,) = replies(agent.happens(ev.Unloaded(7)), Stopped)
    return answer.stats


def test_the_statistics_of_an_epoch_have_the_joules_since_its_start() -> None:
    assert stopped(10.0, 14.5).energy_j == 4.5


@pytest.mark.parametrize("readings_j", [(None, 5.0), (5.0, None), (None, None)])
def test_an_epoch_that_was_not_measured_from_start_to_stop_has_no_joules(
    readings_j: tuple[float | None, float | None],
) -> None:
    assert stopped(*readings_j).energy_j is None
