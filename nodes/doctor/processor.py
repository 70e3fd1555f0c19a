"""Checks whether something slows the processors down: quotas, heat, voltage, power modes.

The counters that the kernel and the firmware keep grow since the last boot. Counters of past heat
must not remain a finding for ever, so they are read twice, before and after a fraction of a second
in which this process computes. A quota that stops it shows then as well.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import re
import shlex
import shutil
import subprocess
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from nodes.doctor.findings import Finding, Severity
from nodes.host.control_groups import granted_cores, group_folders
from nodes.host.kernel_files import number_of, table_of, text_of

PROBE_S = 0.4
"""How long the probe computes: some periods of every usual quota (100 ms)."""

TOOL_S = 3.0
"""How long a vendor's tool may take."""

UNDER_VOLTAGE, CAPPED, THROTTLED, SOFT_LIMIT = 1 << 0, 1 << 1, 1 << 2, 1 << 3
"""Bits of `vcgencmd get_throttled` for the present; 16 positions higher: since the boot."""

_SELF_TUNING = ("intel_pstate", "amd-pstate", "amd-pstate-epp", "intel_cpufreq")
"""Drivers whose governor `powersave` raises the frequency under load."""


@dataclass(frozen=True, slots=True)
class GroupQuota:
    """A control group with a CPU quota, in cores, and what it did while the probe computed.

    The group's processes were stopped in `throttled` of the quota's `periods`.
    """

    folder: Path
    cores: float
    periods: int
    throttled: int


@dataclass(frozen=True, slots=True)
class Frequency:
    """A policy of cpufreq: its folder, governor, driver, and frequencies in kHz."""

    folder: Path
    governor: str
    driver: str
    allowed_khz: int
    hardware_khz: int


@dataclass(frozen=True, slots=True)
class ProcessorReading:
    """Readings of everything that can slow the processors down.

    `hot` counts the processors' thermal throttling events while the probe computed. `cooled` are
    the cooling devices of processors that are in use now. `firmware` is `vcgencmd get_throttled`,
    `power_mode` the answer of `nvpmodel -q`; None and empty where there is no such tool. `offline`
    are processors that are present and switched off, as the kernel lists them.
    """

    groups: tuple[GroupQuota, ...] = ()
    hot: int = 0
    hottest_c: float | None = None
    cooled: tuple[str, ...] = ()
    frequencies: tuple[Frequency, ...] = ()
    firmware: int | None = None
    power_mode: str = ""
    offline: str = ""
    governors: Path = field(default=Path("/sys/devices/system/cpu/cpufreq"))


def read_processor(proc: Path = Path("/proc"), sys: Path = Path("/sys")) -> ProcessorReading:
    """Compute for `PROBE_S` seconds of this thread, and read what happened to the processors."""
    folders = _quota_folders(proc)
    stops_before = [_stops(folder) for folder in folders]
    hot_before = _thermal_events(sys)
    _compute(PROBE_S)
    groups = []
    for folder, (periods, throttled) in zip(folders, stops_before, strict=True):
        now_periods, now_throttled = _stops(folder)
        with contextlib.suppress(ValueError):
            if math.isfinite(cores := granted_cores(folder)):
                stops = now_periods - periods, now_throttled - throttled
                groups.append(GroupQuota(folder, cores, *stops))
    return ProcessorReading(
        tuple(groups),
        _thermal_events(sys) - hot_before,
        _hottest_c(sys),
        _cooled(sys),
        _frequencies(sys),
        _firmware(),
        _tool("nvpmodel", "-q"),
        text_of(sys / "devices/system/cpu/offline"),
        sys / "devices/system/cpu/cpufreq",
    )


def _compute(seconds: float) -> None:
    """Compute hashes until `seconds` have passed."""
    until_s = time.monotonic() + seconds
    block = bytes(1 << 16)
    while time.monotonic() < until_s:
        hashlib.sha256(block).digest()


def _quota_folders(proc: Path) -> list[Path]:
    try:
        return group_folders("cpu", proc / "self") or []
    except (OSError, ValueError):
        return []


def _stops(folder: Path) -> tuple[int, int]:
    """Return how many periods a group's quota has had, and in how many it stopped the group."""
    table = table_of(folder / "cpu.stat")
    return table.get("nr_periods", 0), table.get("nr_throttled", 0)


def _thermal_events(sys: Path) -> int:
    """Return how often processors were throttled because of heat since the boot (x86)."""
    pattern = "devices/system/cpu/cpu[0-9]*/thermal_throttle/core_throttle_count"
    return sum(map(number_of, sys.glob(pattern)))


def _hottest_c(sys: Path) -> float | None:
    zones = [text_of(path) for path in sys.glob("class/thermal/thermal_zone*/temp")]
    return max((int(text) / 1000 for text in zones if text.lstrip("-").isdigit()), default=None)


def _cooled(sys: Path) -> tuple[str, ...]:
    found = []
    for device in sorted(sys.glob("class/thermal/cooling_device*")):
        kind, state = text_of(device / "type"), text_of(device / "cur_state")
        if re.search(r"cpu|processor", kind, re.IGNORECASE) and state.isdigit() and int(state):
            found.append(f"{kind} at step {state} of {text_of(device / 'max_state')}")
    return tuple(found)


def _frequencies(sys: Path) -> tuple[Frequency, ...]:
    found = []
    for folder in sorted(sys.glob("devices/system/cpu/cpufreq/policy*")):
        allowed, hardware = (
            text_of(folder / name) for name in ("scaling_max_freq", "cpuinfo_max_freq")
        )
        if allowed.isdigit() and hardware.isdigit():
            governor, driver = (
                text_of(folder / name) for name in ("scaling_governor", "scaling_driver")
            )
            found.append(Frequency(folder, governor, driver, int(allowed), int(hardware)))
    return tuple(found)


def _firmware() -> int | None:
    """Return the state of a Raspberry Pi's firmware; None elsewhere."""
    match = re.search(r"throttled=0x([0-9a-f]+)", _tool("vcgencmd", "get_throttled"))
    return None if match is None else int(match[1], 16)


def _tool(*command: str) -> str:
    """Return what a vendor's tool prints; empty if it is missing or fails."""
    if shutil.which(command[0]) is None:
        return ""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=TOOL_S, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout


def judge_processor(reading: ProcessorReading) -> Iterable[Finding]:
    """Return what slows the processors down."""
    return [
        *(finding for group in reading.groups for finding in _judge_quota(group)),
        *_judge_heat(reading),
        *_judge_frequencies(reading),
        *_judge_firmware(reading),
        *_judge_power_mode(reading.power_mode),
        *_judge_offline(reading.offline),
    ]


def _judge_quota(group: GroupQuota) -> Iterator[Finding]:
    if not group.throttled and group.cores >= 1:
        return
    stopped = (
        f" and has stopped this program in {group.throttled} of {group.periods} periods while it "
        f"computed for {PROBE_S:g} s"
        if group.throttled
        else ""
    )
    yield Finding(
        Severity.WARNING,
        str(group.folder),
        f"The quota of its control group grants {group.cores:g} cores{stopped}: the agent "
        "computes that much slower.",
        _without_quota(group.folder),
    )


def _without_quota(folder: Path) -> str:
    """Return the command that removes a group's quota."""
    if folder.name.endswith((".service", ".scope", ".slice")):
        return f"sudo systemctl set-property {folder.name} CPUQuota="
    if (folder / "cpu.max").exists():
        return f"echo max | sudo tee {shlex.quote(str(folder / 'cpu.max'))}"
    return f"echo -1 | sudo tee {shlex.quote(str(folder / 'cpu.cfs_quota_us'))}"


def _judge_heat(reading: ProcessorReading) -> Iterator[Finding]:
    if not reading.hot and not reading.cooled:
        return
    heat = "" if reading.hottest_c is None else f" at {reading.hottest_c:.0f} °C"
    what = "; ".join(reading.cooled) or f"{reading.hot} events while this program computed"
    yield Finding(
        Severity.WARNING,
        "the processors",
        f"They are throttled because of heat{heat} ({what}). Give the board a heat sink, a "
        "fan or more air; the command shows the temperatures.",
        "grep . /sys/class/thermal/thermal_zone*/temp",
    )


def _judge_frequencies(reading: ProcessorReading) -> Iterator[Finding]:
    slow = [each for each in reading.frequencies if each.allowed_khz < 0.99 * each.hardware_khz]
    if slow:
        first = slow[0]
        files = f"{first.folder}/scaling_max_freq"
        yield Finding(
            Severity.WARNING,
            str(first.folder),
            f"Processors may run at {first.allowed_khz / 1e6:.2f} GHz at most, although they "
            f"support {first.hardware_khz / 1e6:.2f} GHz"
            + (f" ({len(slow)} policies are limited)." if len(slow) > 1 else "."),
            f"echo {first.hardware_khz} | sudo tee {files}"
            if len(slow) == 1
            else f"for p in {reading.governors}/policy*; do sudo cp $p/cpuinfo_max_freq "
            "$p/scaling_max_freq; done",
        )
    saving = [
        each
        for each in reading.frequencies
        if each.governor == "powersave" and each.driver not in _SELF_TUNING
    ]
    if saving:
        yield Finding(
            Severity.WARNING,
            str(saving[0].folder),
            "The governor powersave keeps the processors at their lowest frequency.",
            f"echo ondemand | sudo tee {reading.governors}/policy*/scaling_governor",
        )


def _judge_firmware(reading: ProcessorReading) -> Iterator[Finding]:
    """Yield what the firmware of a Raspberry Pi says."""
    if not reading.firmware:
        return
    now, before = reading.firmware & 0xF, reading.firmware >> 16 & 0xF
    where, show = "vcgencmd get_throttled", "vcgencmd get_throttled"
    if now & UNDER_VOLTAGE:
        yield Finding(
            Severity.ERROR,
            where,
            "The supply voltage is too low now, so the board is slow and may crash: use the "
            "maker's power supply and a short cable.",
            show,
        )
    if now & (CAPPED | THROTTLED | SOFT_LIMIT):
        yield Finding(
            Severity.WARNING,
            where,
            "The firmware lowers the processors' frequency now, because of heat or voltage: "
            "give the board a heat sink or a fan, and a better power supply.",
            "vcgencmd measure_temp",
        )
    if before & ~now:
        yield Finding(
            Severity.NOTE,
            where,
            "Since the last boot, the firmware has lowered the frequency or detected a low "
            f"voltage (0x{reading.firmware:x}), but it does not now. A reboot clears this "
            "record.",
            "sudo reboot",
        )


def _judge_power_mode(answer: str) -> Iterator[Finding]:
    """Yield what a Jetson's power mode costs; mode 0 is the fastest on every module but one."""
    match = re.search(r"NV Power Mode:\s*(\S+)\s+(\d+)", answer)
    if match is None or match[2] == "0" or match[1].upper().startswith("MAXN"):
        return
    yield Finding(
        Severity.NOTE,
        "nvpmodel",
        f"The power mode is {match[1]}, which limits processors and GPU. Mode 0 is usually "
        "the fastest.",
        "sudo nvpmodel -m 0",
    )


def _judge_offline(offline: str) -> Iterator[Finding]:
    if not offline:
        return
    yield Finding(
        Severity.NOTE,
        "/sys/devices/system/cpu/offline",
        f"The processors {offline} are switched off.",
        f"sudo chcpu -e {offline}",
    )


def check_processor(_: object = None) -> Iterable[Finding]:
    """Check whether something slows this machine's processors down."""
    return judge_processor(read_processor())
