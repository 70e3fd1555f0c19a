"""The unit that `launch up --install` writes."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from launcher.service.unit import SystemdUnit


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
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
