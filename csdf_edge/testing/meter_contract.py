"""The contract of meters, as a class of tests that each meter's own test class inherits."""

from __future__ import annotations

import math
from abc import abstractmethod
from pathlib import Path

import pytest

from nodes.host.energy.base import Meter, MeterError


class MeterContract:
    """Inherit it, and define the meter and how its sensor shows energy.

    `place` is an empty folder for each test.
    """

    @abstractmethod
    def meter(self, place: Path) -> Meter:
        """Return an open meter of something that takes no power yet."""

    @abstractmethod
    def spend(self, place: Path, joules: float, seconds: float) -> None:
        """Make the sensor show `joules` more than at the last reading, `seconds` ago."""

    def vanish(self, place: Path) -> None:
        """Remove the sensor."""
        pytest.skip("the sensor cannot be removed here")

    def test_it_says_what_it_is_and_when_it_has_to_be_read(self, tmp_path: Path) -> None:
        meter = self.meter(tmp_path)
        assert meter.description
        assert meter.description.isprintable()
        assert 0 < meter.period_s < math.inf
        meter.close()

    def test_it_counts_the_joules_that_are_spent(self, tmp_path: Path) -> None:
        meter = self.meter(tmp_path)
        began_j, now_s, spent_j = meter.read_j(10.0), 10.0, 0.0
        for joules in (2.5, 3.0, 3.5):
            self.spend(tmp_path, joules, 0.1)
            now_s, spent_j = now_s + 0.1, spent_j + joules
            assert meter.read_j(now_s) - began_j == pytest.approx(spent_j, rel=0.01)
        meter.close()

    def test_two_readings_at_once_count_nothing_twice(self, tmp_path: Path) -> None:
        meter = self.meter(tmp_path)
        meter.read_j(1.0)
        self.spend(tmp_path, 1.0, 1.0)
        assert meter.read_j(2.0) == meter.read_j(2.0)
        meter.close()

    def test_a_sensor_that_vanishes_is_an_error_and_no_number(self, tmp_path: Path) -> None:
        meter = self.meter(tmp_path)
        meter.read_j(1.0)
        self.vanish(tmp_path)
        with pytest.raises((MeterError, OSError)):
            meter.read_j(2.0)
        meter.close()
