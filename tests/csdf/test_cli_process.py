"""`csdf` as a process: what becomes of its output, and Ctrl-C."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from csdf.cli.command import main

REFERENCE = Path(__file__).parent.parent / "fixtures" / "csdf_reference"


def csdf(*arguments: str, **environment: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "csdf.cli.command", *arguments],
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def test_a_closed_standard_output_ends_it_silently() -> None:
    with csdf("analyze", str(REFERENCE / "twodev_2_3.xml")) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 128 + signal.SIGPIPE


def test_a_graph_is_written_into_a_pipe() -> None:
    with csdf("convert", str(REFERENCE / "twodev_2_3.xml"), "/dev/stdout") as process:
        out, err = process.communicate()
    assert (process.returncode, err) == (0, b"")
    assert out.endswith(b"</sdf3>\n")


def test_a_terminal_with_ascii_only() -> None:
    file = str(REFERENCE / "twodev_2_3.xml")
    with csdf("analyze", file, PYTHONIOENCODING="ascii") as process:
        out, err = process.communicate()
    assert (process.returncode, err) == (0, b"")
    assert b"repetitions d0 ? 1, link ? 3, d1 ? 1" in out


def test_a_full_disk() -> None:
    file = str(REFERENCE / "twodev_2_3.xml")
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "csdf.cli.command", "analyze", file],
            stdout=full,
            stderr=subprocess.PIPE,
            check=False,
        )
    assert done.stderr == b"csdf: the output cannot be written: No space left on device\n"
    assert done.returncode == 2


def test_ctrl_c_is_not_an_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("csdf.cli.command.analyze", interrupted)
    assert main(["analyze", str(REFERENCE / "twodev_2_3.xml")]) == 128 + signal.SIGINT
    assert capsys.readouterr().err == "csdf: interrupted\n"


def test_the_console_command_explains_itself() -> None:
    command = Path(sys.executable).parent / "csdf"
    shown = subprocess.run([command, "--help"], capture_output=True, text=True, check=True)
    assert "analyze" in shown.stdout
    words = " ".join(shown.stdout.split())
    assert "Exit codes: 0 success; 1 the graph is inconsistent or not live; 2 an argument" in words
