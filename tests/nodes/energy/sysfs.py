"""Folders in the format of sysfs, as the kernel documents powercap, hwmon and IIO."""

from __future__ import annotations

from pathlib import Path


def write(folder: Path, **files: object) -> Path:
    """Write files of one value each, in place: a sensor file that is open stays the same file."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, value in files.items():
        (folder / name).write_text(f"{value}\n")
    return folder


def rapl_zone(
    sys: Path, number: str, name: str, energy_uj: int = 0, range_uj: int = 262_143_328_850
) -> Path:
    """A powercap zone: `number` is `0` for a package, `0:2` for a zone below it."""
    folder = sys / "class" / "powercap" / f"intel-rapl:{number}"
    return write(folder, name=name, energy_uj=energy_uj, max_energy_range_uj=range_uj)


def ina3221(sys: Path, *rails: tuple[str, int, int]) -> Path:
    """An INA3221 under hwmon with up to three rails: label, mV, mA."""
    folder = write(sys / "class" / "hwmon" / "hwmon3", name="ina3221")
    for n, (label, millivolts, milliamperes) in enumerate(rails, 1):
        files = {f"in{n}_label": label, f"in{n}_input": millivolts, f"curr{n}_input": milliamperes}
        write(folder, **files)
    return folder


def ina219(sys: Path, microwatts: int) -> Path:
    return write(sys / "class" / "hwmon" / "hwmon1", name="ina219", power1_input=microwatts)


def jetpack4(sys: Path, *rails: tuple[str, int]) -> Path:
    """An INA3221 as an IIO device, with up to three rails: name, mW."""
    folder = write(sys / "bus" / "iio" / "devices" / "iio:device0", name="ina3221x")
    for n, (label, milliwatts) in enumerate(rails):
        write(folder, **{f"rail_name_{n}": label, f"in_power{n}_input": milliwatts})
    return folder
