"""The unit that `launch up --install` writes."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from launcher.service.unit import SystemdUnit

DEPLOY = Path(__file__).parents[2] / "deploy"


needs_systemd = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="needs systemd-analyze"
)


@needs_systemd
@pytest.mark.parametrize("manager", ["user", "system"])
def test_systemd_finds_no_fault_in_it(tmp_path: Path, manager: str) -> None:
    unit = SystemdUnit("tests", manager, tmp_path / '100 % $of "state"')
    file = tmp_path / unit.file_name
    file.write_text(unit.text)
    ran = subprocess.run(
        ["systemd-analyze", "verify", f"--{manager}", str(file)],
        env={"XDG_RUNTIME_DIR": str(tmp_path), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert unit.file_name not in ran.stderr, ran.stderr
    assert "Type=notify\n" in unit.text


def test_it_logs_as_it_was_asked_to(tmp_path: Path) -> None:
    text = SystemdUnit("tests", "user", tmp_path, "text").text
    assert "--log-format" not in text
    (command,) = re.findall("ExecStart=(.*)", SystemdUnit("tests", "user", tmp_path, "json").text)
    assert command.endswith('"--log-format" "json"')


PIECES = (
    "/",
    "\n",
    "\r",
    "\t",
    " ",
    "%",
    "$",
    '"',
    "'",
    "\\",
    "\\n",
    "\x7f",
    "é",
    "\u2028",
    "\udcff",
)
LINES = ("\nUser=root\n", "%h", "${HOME}", "a", "#", ";", "\x1b[2J")
PATHS = st.lists(st.sampled_from((*PIECES, *LINES)), max_size=12).map("".join)


def unescaped(text: str) -> str:
    """What systemd makes of a quoted word: escapes of C, and specifiers (systemd.syntax(7))."""
    raw = re.sub(
        rb"\\(?:x([0-9a-f]{2})|(.))",
        lambda found: bytes([int(found[1], 16)]) if found[1] else found[2],
        os.fsencode(text),
    )
    assert not raw.replace(b"%%", b"").count(b"%"), "no specifier is left"
    return os.fsdecode(raw.replace(b"%%", b"%"))


@given(PATHS)
def test_no_path_of_a_state_folder_writes_a_line_into_the_unit(path: str) -> None:
    state = Path("/state" + path)
    text = SystemdUnit("tests", "system", state).text
    usual = SystemdUnit("tests", "system", Path("/usual")).text
    lines, others = text.split("\n"), usual.split("\n")
    assert [line.partition("=")[0] for line in lines] == [line.partition("=")[0] for line in others]
    assert "\r" not in text
    assert "\0" not in text
    (command,) = re.findall('^ExecStart=.* "--state" "(.*)"$', text, re.MULTILINE)
    (written,) = re.findall('^ReadWritePaths="(.*)"$', text, re.MULTILINE)
    assert unescaped(written) == str(state)
    assert unescaped(command).replace("$$", "$") == str(state)


@needs_systemd
@pytest.mark.parametrize("path", [None, DEPLOY / "node-agent.service"])
def test_what_systemd_analyze_says_of_a_units_exposure(tmp_path: Path, path: Path | None) -> None:
    unit = SystemdUnit("tests", "system", Path("/var/lib/csdf-edge/tests"))
    if path is None:
        path = tmp_path / unit.file_name
        path.write_text(unit.text)
    ran = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", str(path)],
        capture_output=True,
        text=True,
        check=True,
    )
    (exposure,) = re.findall(r"exposure level for \S+: (\S+)", ran.stdout)
    assert float(exposure) <= 2.0


def test_a_unit_that_may_use_an_accelerator_implies_no_list_of_devices() -> None:
    """With one, systemd refuses every device that is not in it."""
    for text in (
        (DEPLOY / "node-agent.service").read_text(),
        SystemdUnit("tests", "system", Path("/var/lib/csdf-edge/tests")).text,
    ):
        for setting in ("ProtectClock", "PrivateDevices", "DeviceAllow", "DevicePolicy"):
            assert not re.search(f"^{setting}=", text, re.MULTILINE), setting
