"""Sensors of powercap, hwmon and IIO, in folders such as the kernel makes."""

from __future__ import annotations

import os
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from csdf_edge.testing.meter_contract import MeterContract
from nodes.host.energy.base import Meter, MeterError, SensorFile
from nodes.host.energy.opening import NO_SENSOR, SWITCHED_OFF, open_meter
from tests.nodes.energy.sysfs import ina219, ina3221, jetpack4, rapl_zone, write


def opened(sys: Path) -> Meter:
    meter, unmetered = open_meter(sys=sys)
    assert meter is not None, unmetered
    return meter


class TestRapl(MeterContract):
    def meter(self, place: Path) -> Meter:
        rapl_zone(place, "0", "package-0", 5)
        return opened(place)

    def spend(self, place: Path, joules: float, seconds: float) -> None:
        file = place / "class" / "powercap" / "intel-rapl:0" / "energy_uj"
        write(file.parent, energy_uj=int(file.read_text()) + int(joules * 1e6))

    def vanish(self, place: Path) -> None:
        (place / "class" / "powercap" / "intel-rapl:0" / "energy_uj").write_text("")


class TestRails(MeterContract):
    def meter(self, place: Path) -> Meter:
        ina3221(place, ("VDD_IN", 5000, 0))
        return opened(place)

    def spend(self, place: Path, joules: float, seconds: float) -> None:
        """It had the same power since the last reading, and the trapezoid doubles a slope."""
        file = place / "class" / "hwmon" / "hwmon3" / "curr1_input"
        before_w = int(file.read_text()) * 5 / 1000
        write(file.parent, curr1_input=round((2 * joules / seconds - before_w) / 5 * 1000))

    def vanish(self, place: Path) -> None:
        (place / "class" / "hwmon" / "hwmon3" / "curr1_input").write_text("")


def test_rapl_counts_all_packages_and_their_memory_and_no_part_twice(tmp_path: Path) -> None:
    numbers = {"0": "package-0", "0:0": "core", "0:1": "dram", "1": "package-1", "2": "psys"}
    zones = {name: rapl_zone(tmp_path, number, name, 10) for number, name in numbers.items()}
    meter = opened(tmp_path)
    assert meter.description == "RAPL (package-0, dram, package-1)"
    assert meter.read_j(0.0) == 0.0
    for weight, folder in enumerate(zones.values()):
        write(folder, energy_uj=10 + 10 ** (6 + weight))
    assert meter.read_j(1.0) == pytest.approx(1 + 100 + 1000)


def test_a_counter_that_wraps_around_continues(tmp_path: Path) -> None:
    zone = rapl_zone(tmp_path, "0", "package-0", 9_000_000, range_uj=10_000_000)
    meter = opened(tmp_path)
    for reading_uj, joules in ((9_500_000, 0.5), (3_000_000, 4.0), (2_000_000, 13.0)):
        write(zone, energy_uj=reading_uj)
        assert meter.read_j(0.0) == pytest.approx(joules)


def test_a_counter_is_read_before_it_can_wrap_around_twice(tmp_path: Path) -> None:
    rapl_zone(tmp_path, "0", "package-0", range_uj=65_532_610_987)  # as AMD's
    rapl_zone(tmp_path, "0:0", "dram")
    assert 0 < opened(tmp_path).period_s * 1000 < 65_532


def test_rapl_that_belongs_to_root_alone_is_not_measured_and_the_reason_given() -> None:
    user = os.geteuid()
    with TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        zone = rapl_zone(Path(folder), "0", "package-0")
        (zone / "energy_uj").chmod(0o400 if user == 0 else 0)
        os.seteuid(65534 if user == 0 else user)
        try:
            meter, unmetered = open_meter(sys=Path(folder))
        finally:
            os.seteuid(user)
    assert meter is None
    assert "only root may read since Linux 5.10" in unmetered
    assert "udev" in unmetered


def test_rails_are_measured_where_rapl_is_missing(tmp_path: Path) -> None:
    rapl_zone(tmp_path, "0", "package-0")
    (tmp_path / "class/powercap/intel-rapl:0/max_energy_range_uj").unlink()
    ina219(tmp_path, 5_000_000)
    assert opened(tmp_path).description == "INA (ina219 hwmon1)"


def test_the_rail_that_feeds_a_module_counts_and_the_others_are_parts_of_it(tmp_path: Path) -> None:
    ina3221(tmp_path, ("VDD_CPU", 5000, 400), ("VDD_IN", 19000, 1000), ("VDD_SOC", 5000, 400))
    meter = opened(tmp_path)
    assert meter.description == "INA (VDD_IN)"
    assert [meter.read_j(0.0), meter.read_j(2.0)] == [0.0, pytest.approx(38.0)]


def test_rails_side_by_side_are_added_except_those_that_another_one_feeds(tmp_path: Path) -> None:
    ina3221(tmp_path, ("VDD_GPU_SOC", 10000, 500), ("VIN_SYS_5V0", 5000, 1000), ("NC", 1, 1))
    second = write(tmp_path / "class/hwmon/hwmon4", name="ina3221", in2_label="VDDQ_VDD2_1V8AO")
    write(second, in2_input=5000, curr2_input=9000)
    meter = opened(tmp_path)
    meter.read_j(0.0)
    assert meter.read_j(1.0) == pytest.approx(5.0 + 5.0)


def test_boards_of_older_jetpacks_are_read_as_iio_devices(tmp_path: Path) -> None:
    jetpack4(tmp_path, ("POM_5V_IN", 4000), ("POM_5V_GPU", 1000), ("POM_5V_CPU", 1000))
    meter = opened(tmp_path)
    meter.read_j(0.0)
    assert (meter.description, meter.read_j(1.0)) == ("INA (POM_5V_IN)", pytest.approx(4.0))


def test_an_ina219_tells_its_power_in_microwatts(tmp_path: Path) -> None:
    ina219(tmp_path, 3_500_000)
    meter = opened(tmp_path)
    meter.read_j(0.0)
    assert meter.read_j(2.0) == pytest.approx(7.0)


def test_a_rising_power_is_the_mean_of_both_readings(tmp_path: Path) -> None:
    chip = ina219(tmp_path, 2_000_000)
    meter = opened(tmp_path)
    meter.read_j(0.0)
    write(chip, power1_input=4_000_000)
    assert meter.read_j(1.0) == pytest.approx(3.0)


def test_a_battery_that_is_charged_takes_nothing(tmp_path: Path) -> None:
    ina219(tmp_path, -500_000)
    meter = opened(tmp_path)
    assert [meter.read_j(0.0), meter.read_j(1.0)] == [0.0, 0.0]


def test_a_machine_without_a_sensor_says_so(tmp_path: Path) -> None:
    write(tmp_path / "class" / "hwmon" / "hwmon0", name="coretemp", temp1_input=40000)
    assert open_meter(sys=tmp_path) == (None, NO_SENSOR)
    assert open_meter("none", tmp_path) == (None, SWITCHED_OFF)


def test_a_plugin_that_nobody_has_installed_is_an_error_of_the_user() -> None:
    with pytest.raises(
        MeterError, match=r"--meter shelly: no installed package .* csdf_edge.meters"
    ):
        open_meter("shelly")


def test_an_open_file_says_when_its_device_is_gone() -> None:
    """As a file of the kernel does: this one is of a process that ends."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(writer)
        os.read(reader, 1)
        os._exit(0)
    os.close(reader)
    file = SensorFile(Path(f"/proc/{child}/oom_score"))
    os.close(writer)
    os.waitpid(child, 0)
    with pytest.raises(MeterError, match=r"oom_score cannot be read: No such process"):
        file.read()
    file.close()
