"""What is found in planted readings: of boards, kernels and firmware that are not here."""

from __future__ import annotations

import errno
import json
import resource
import subprocess
from pathlib import Path
from threading import Event

import pytest

from nodes.core.engines import AUTO
from nodes.doctor.clock import ClockReading, judge_clock
from nodes.doctor.disk import FolderReading, judge_folder
from nodes.doctor.engine import LATE, EngineReading, judge_engine
from nodes.doctor.examination import judge_descriptors
from nodes.doctor.findings import Check, Checked, Examination, Finding, Severity, checked_from_json
from nodes.doctor.memory import GroupMemory, MemoryReading, judge_memory, read_memory
from nodes.doctor.network import NetworkInterface, judge_interfaces, read_interfaces
from nodes.doctor.performing import perform
from nodes.doctor.ports import PortReading, judge_port
from nodes.doctor.processor import (
    CAPPED,
    UNDER_VOLTAGE,
    Frequency,
    GroupQuota,
    ProcessorReading,
    judge_processor,
    read_processor,
)
from nodes.doctor.versions import NEEDED, VersionsReading, judge_versions, numbers
from nodes.protocol.messages import DeviceOffer, EngineChoice, EngineOffer

ERROR, WARNING, NOTE = Severity.ERROR, Severity.WARNING, Severity.NOTE
GB = 10**9


def severities(findings) -> list[Severity]:
    return [finding.severity for finding in findings]


@pytest.mark.parametrize(
    ("reading", "expected"),
    [
        (ClockReading(2e9, 2e9 - 100, True), []),
        (ClockReading(2e9, 2e9 - 100, None), []),
        (ClockReading(2e9, 2e9 - 100, False), [WARNING]),
        (ClockReading(0.0, 2e9, True), [ERROR]),  # a board without a battery, after a boot
        (ClockReading(4e9, 2e9, True), [ERROR]),
    ],
)
def test_clocks(reading, expected):
    assert severities(judge_clock(reading)) == expected


def folder(**values) -> FolderReading:
    usual = {
        "folder": Path("/cache"), "existing": Path("/cache"), "error": 0, "mode": 0o700,
        "owner": 1000, "user": 1000, "free_bytes": 9 * GB, "free_files": 10**6, "held_bytes": 0,
    }  # fmt: skip
    return FolderReading(**usual | values)


@pytest.mark.parametrize(
    ("reading", "severity", "remedy"),
    [
        (folder(error=errno.EACCES, owner=0), ERROR, "sudo chown -R 1000 /cache"),
        (folder(error=errno.EACCES), ERROR, "chmod u+rwx /cache"),
        (folder(error=errno.EROFS), ERROR, "sudo mount -o remount,rw /"),
        (folder(error=errno.ENOTDIR), ERROR, "mv /cache /cache.old"),
        (folder(mode=0o777), ERROR, "chmod go-w /cache"),
        (folder(error=errno.ENOSPC), ERROR, "du -xah / | sort -rh | head -n 20"),
        (folder(free_bytes=10**6), ERROR, "du -xah / | sort -rh | head -n 20"),
        (folder(free_files=3), ERROR, "du -x --inodes /cache | sort -rn | head -n 20"),
        (folder(free_bytes=10**8), WARNING, "node-agent --cache-bytes 90MB"),
    ],
)
def test_folders(reading, severity, remedy):
    (found,) = judge_folder(reading, 4 * GB, "--cache")
    assert (found.severity, found.remedy) == (severity, remedy)


def test_a_folder_is_fine_if_what_it_holds_leaves_room():
    assert not list(judge_folder(folder(), 4 * GB, "--cache"))
    assert not list(judge_folder(folder(free_bytes=GB, held_bytes=3 * GB), 4 * GB, "--cache"))
    assert not list(judge_folder(folder(free_files=None), 4 * GB, "--cache"))


def test_memory():
    assert not list(judge_memory(MemoryReading(8 * GB, 6 * GB, 0, (), ())))
    for available, expected in ((300_000_000, [WARNING]), (100_000_000, [ERROR])):
        assert severities(judge_memory(MemoryReading(GB, available, 0, (), ()))) == expected
    swapping = MemoryReading(8 * GB, 6 * GB, GB, ("/dev/mmcblk0p3",), ())
    assert next(judge_memory(swapping)).remedy == "sudo swapoff /dev/mmcblk0p3"


def test_the_memory_of_a_service():
    group = GroupMemory(Path("/sys/fs/cgroup/system.slice/node-agent.service"), 10**8, 10**7, 2)
    small, killed = judge_memory(MemoryReading(8 * GB, 6 * GB, 0, (), (group,)))
    assert small.remedy == "sudo systemctl set-property node-agent.service MemoryMax=810M"
    assert (small.severity, killed.severity) == (ERROR, WARNING)
    assert "killed 2 processes" in killed.what


def test_memory_is_read_of_both_versions_of_control_groups(tmp_path):
    proc, groups = tmp_path / "proc", tmp_path / "groups"
    (proc / "self").mkdir(parents=True)
    (groups / "box").mkdir(parents=True)
    (proc / "meminfo").write_text("MemTotal: 1000 kB\nMemAvailable: 500 kB\n")
    (proc / "swaps").write_text("Filename Type Size Used\n/dev/zram0 x 9 9\n/dev/sda2 x 90 7\n")
    (proc / "self" / "cgroup").write_text("0::/box\n")
    (proc / "self" / "mountinfo").write_text(f"1 2 0:1 / {groups} rw - cgroup2 none rw\n")
    (groups / "box" / "memory.max").write_text("4096\n")
    (groups / "box" / "memory.stat").write_text("anon 1024\n")
    (groups / "box" / "memory.events").write_text("oom 1\noom_kill 3\n")
    reading = read_memory(proc)
    assert (reading.total_bytes, reading.available_bytes) == (1_024_000, 512_000)
    assert (reading.swapped_to, reading.swap_used_bytes) == (("/dev/sda2",), 7168)
    assert reading.groups == (GroupMemory(groups / "box", 4096, 1024, 3),)
    assert reading.groups[0].free_bytes == 3072


def test_a_processor_that_nothing_slows_down():
    full = Frequency(Path("/sys/p0"), "schedutil", "cpufreq-dt", 1_800_000, 1_800_000)
    intel = Frequency(Path("/sys/p1"), "powersave", "intel_pstate", 1_800_000, 1_800_000)
    quota = GroupQuota(Path("/g"), 2.0, 4, 0)
    mode = "NV Power Mode: MAXN\n0\n"
    reading = ProcessorReading((quota,), 0, 60.0, (), (full, intel), 0, mode)
    assert not list(judge_processor(reading))


@pytest.mark.parametrize(
    ("reading", "severity", "remedy"),
    [
        (
            ProcessorReading((GroupQuota(Path("/g/agent.service"), 0.5, 4, 0),)),
            WARNING,
            "sudo systemctl set-property agent.service CPUQuota=",
        ),
        (
            ProcessorReading((GroupQuota(Path("/g/box"), 1.5, 4, 3),)),
            WARNING,
            "echo -1 | sudo tee /g/box/cpu.cfs_quota_us",
        ),
        (ProcessorReading(hot=3), WARNING, "grep . /sys/class/thermal/thermal_zone*/temp"),
        (
            ProcessorReading(cooled=("cpufreq-cpu0 at step 2 of 9",)),
            WARNING,
            "grep . /sys/class/thermal/thermal_zone*/temp",
        ),
        (
            ProcessorReading(
                frequencies=(Frequency(Path("/sys/p0"), "ondemand", "", 600_000, 1_800_000),)
            ),
            WARNING,
            "echo 1800000 | sudo tee /sys/p0/scaling_max_freq",
        ),
        (
            ProcessorReading(
                frequencies=(Frequency(Path("/sys/p0"), "powersave", "cpufreq-dt", 18, 18),)
            ),
            WARNING,
            "echo ondemand | sudo tee /sys/devices/system/cpu/cpufreq/policy*/scaling_governor",
        ),
        (ProcessorReading(firmware=UNDER_VOLTAGE), ERROR, "vcgencmd get_throttled"),
        (ProcessorReading(firmware=CAPPED), WARNING, "vcgencmd measure_temp"),
        (ProcessorReading(firmware=0x50000), NOTE, "sudo reboot"),
        (
            ProcessorReading(power_mode="NV Power Mode: MODE_10W\n2\n"),
            NOTE,
            "sudo nvpmodel -m 0",
        ),
        (ProcessorReading(offline="2-3"), NOTE, "sudo chcpu -e 2-3"),
    ],
)
def test_what_slows_a_processor_down(reading, severity, remedy):
    (found,) = judge_processor(reading)
    assert (found.severity, found.remedy) == (severity, remedy)


def test_frequencies_and_heat_are_read(tmp_path):
    policy = tmp_path / "devices/system/cpu/cpufreq/policy0"
    policy.mkdir(parents=True)
    for name, text in {
        "scaling_max_freq": "600000\n", "cpuinfo_max_freq": "1800000\n",
        "scaling_governor": "ondemand\n", "scaling_driver": "cpufreq-dt\n",
    }.items():  # fmt: skip
        (policy / name).write_text(text)
    cooler = tmp_path / "class/thermal/cooling_device0"
    cooler.mkdir(parents=True)
    for name, text in {"type": "cpufreq-cpu0", "cur_state": "2", "max_state": "9"}.items():
        (cooler / name).write_text(text)
    zone = tmp_path / "class/thermal/thermal_zone0"
    zone.mkdir()
    (zone / "temp").write_text("81500\n")
    reading = read_processor(sys=tmp_path)
    expected = Frequency(policy, "ondemand", "cpufreq-dt", 600_000, 1_800_000)
    assert reading.frequencies == (expected,)
    assert (reading.hottest_c, reading.cooled) == (81.5, ("cpufreq-cpu0 at step 2 of 9",))


def test_ports():
    assert not list(judge_port(PortReading("tcp://0.0.0.0:5500", 0)))
    (unseen,) = judge_port(PortReading("tcp://0.0.0.0:5500", errno.EADDRINUSE))
    assert unseen.remedy == "sudo ss -ltnp 'sport = :5500'"
    (low,) = judge_port(PortReading("tcp://0.0.0.0:80", errno.EACCES))
    assert low.remedy == "node-agent --listen tcp://0.0.0.0:5500"
    (missing,) = judge_port(PortReading("ipc:///no/such/agent", errno.ENOENT))
    assert missing.remedy == "mkdir -p /no/such"


def test_versions():
    new = {"csdf-edge": "1.2.0"} | dict.fromkeys(NEEDED, "99.0")
    fine = VersionsReading((3, 11, 2), "1.2.0", dict(new))
    assert not list(judge_versions(fine))
    old = VersionsReading((3, 9, 1), "1.2.0", new | {"csdf-edge": "1.1.0", "numpy": "1.22.4"})
    python, mixed, numpy = judge_versions(old)
    assert (python.where, numpy.where) == ("Python", "numpy")
    assert "two installations are mixed" in mixed.what
    (absent,) = judge_versions(VersionsReading((3, 11), "1.2.0", new | {"msgpack": None}))
    assert absent.remedy.endswith("-m pip install 'msgpack>=1.0.5'")
    (plain,) = judge_versions(VersionsReading((3, 11), "1.2.0", new, has_curve=False))
    assert "CURVE" in plain.what
    assert numbers("25.1.2rc1") == (25, 1, 2)


def test_engines():
    offer = EngineOffer("onnxruntime", devices=(DeviceOffer("cpu"),))
    choice = EngineChoice("onnxruntime", "cpu")
    assert not list(judge_engine(EngineReading((offer,), EngineChoice(), choice)))
    (wrong,) = judge_engine(EngineReading((offer,), EngineChoice(), choice, failure="it crashed"))
    assert wrong.remedy.endswith("--force-reinstall onnxruntime")
    chosen = EngineChoice("onnxruntime", "cpu", "fp32")
    (late,) = judge_engine(EngineReading((offer,), EngineChoice(), chosen, failure=LATE))
    by_hand = subprocess.run(["sh", "-c", late.remedy], capture_output=True, check=True)
    assert json.loads(by_hand.stdout) == {"failure": ""}
    asked = EngineChoice("tvm", AUTO)
    (missing,) = judge_engine(EngineReading((offer,), asked, None, "it is not installed"))
    assert missing.remedy.endswith("'csdf-edge[tvm]'")
    (no_gpu,) = judge_engine(EngineReading((offer,), EngineChoice(device="gpu"), None, "no gpu"))
    assert no_gpu.remedy == "node-agent --describe"


def test_network_interfaces():
    assert not list(judge_interfaces((NetworkInterface("eth0", 1500, 1000, "full", 10**6, 3),)))
    assert not list(judge_interfaces((NetworkInterface("wlan0", 1500, None, "", 10**6, 0),)))
    (small,) = judge_interfaces((NetworkInterface("eth0", 600, 1000, "full", 0, 0),))
    assert small.remedy == "sudo ip link set dev eth0 mtu 1500"
    (half,) = judge_interfaces((NetworkInterface("eth0", 1500, 10, "half", 0, 0),))
    assert "10 Mbit/s, half duplex" in half.what
    (cable,) = judge_interfaces((NetworkInterface("eth0", 1500, 1000, "full", 10**6, 5000),))
    assert "5000 of 1000000 packets" in cable.what
    assert all(each.name != "lo" for each in read_interfaces())


def test_descriptors():
    assert not list(judge_descriptors(resource.RLIM_INFINITY, 5000))
    assert not list(judge_descriptors(8192, 5000))
    (few,) = judge_descriptors(4096, 5000)
    assert few.remedy == "sudo prlimit --pid $$ --nofile=5000"


def test_a_check_that_raises_or_hangs_does_not_stop_the_others():
    never = Event()

    def raises(_: None) -> list[Finding]:
        raise RuntimeError("a driver is broken")

    def hangs(_: None) -> list[Finding]:
        never.wait()
        return []

    fine = Finding(NOTE, "here", "It is.", "true")
    checks = [
        Check("raises", raises),
        Check("hangs", hangs, limit_s=0.1),
        Check("works", lambda _: [fine]),
    ]
    raised, hung, worked = perform("here", checks, None)
    never.set()
    assert "a driver is broken" in raised.findings[0].what
    assert "did not finish within 0.1 s" in hung.findings[0].what
    assert worked.findings == (fine,)


def test_a_report_says_the_worst_first_and_survives_its_json():
    bad = Finding(ERROR, "/keys\x1b[2J", "It is missing.", "make keys")
    slow = Finding(WARNING, "eth0", "It is slow.", "ip link")
    checked = (Checked("a", "network", 0.25, (slow,)), Checked("a", "keys", 0.5, (bad,)))
    report = Examination(checked, {"a": {"protocol": "8"}})
    text = report.text()
    assert text.index("It is missing.") < text.index("It is slow.")
    assert "  $ make keys\n" in text
    assert text.endswith("2 checks: 1 error, 1 warning\n")
    assert "\x1b" not in text
    assert checked_from_json(report.as_json(1), "a") == checked
    assert Examination((), {}).text() == "0 checks: nothing found\n"


@pytest.mark.parametrize(
    "data",
    [
        None,
        [],
        {},
        {"checks": [{}], "findings": []},
        {"checks": [], "findings": [{"check": "keys"}]},
        {"checks": [], "findings": 3},
    ],
)
def test_anything_but_a_report_is_refused(data):
    with pytest.raises(ValueError, match="it is not a report"):
        checked_from_json(data, "a")
