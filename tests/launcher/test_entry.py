"""Ctrl-C while Python still imports what a command is made of: a sentence, exit code 130."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPTS = dict(
    re.findall(
        r'^([a-z-]+) = "([a-z_.]+:[a-z_]+)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE
    )
)

INTERRUPTED = """
import os, signal, sys

class CtrlC:
    def find_spec(self, name, path=None, target=None):
        if name == {during!r}:
            os.kill(os.getpid(), signal.SIGINT)

signal.signal(signal.SIGINT, {before})
from {module} import {function}
sys.meta_path.insert(0, CtrlC())
{function}()
"""
"""A console script that gets SIGINT when it begins to import a module."""


def interrupted(
    script: str, during: str, *arguments: str, before: str = "signal.default_int_handler"
) -> tuple[int, str, str]:
    """Exit code, what it printed, and what it said."""
    module, _, function = SCRIPTS[script].partition(":")
    code = INTERRUPTED.format(during=during, module=module, function=function, before=before)
    command = [sys.executable, "-c", code, *arguments]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    return ran.returncode, ran.stdout, ran.stderr


def test_every_console_script_is_known() -> None:
    assert set(SCRIPTS) == {"csdf-edge", "launch", "ga", "node-agent", "csdf"}


@pytest.mark.parametrize(
    ("script", "during"),
    [
        ("launch", "launcher.commands.launch"),
        ("ga", "typer"),
        ("node-agent", "datetime"),  # imported by an extension module, which hides exceptions
        ("csdf", "datetime"),
    ],
)
def test_ctrl_c_during_imports_prints_no_traceback(script: str, during: str) -> None:
    assert interrupted(script, during) == (130, "", f"{script}: interrupted\n")


def test_ctrl_c_during_imports_is_reported_as_json() -> None:
    said = '{"error": "interrupted", "exit_code": 130}\n'
    assert interrupted("launch", "launcher.commands.launch", "--json")[:2] == (130, said)


def test_ctrl_c_while_an_agent_opens_its_engine(tmp_path: Path) -> None:
    address = f"ipc://{tmp_path}/agent"
    ended = interrupted(
        "node-agent", "onnxruntime", "--listen", address, "--cache", str(tmp_path / "cache")
    )
    assert ended == (130, "", "node-agent: interrupted\n")
    assert not os.path.exists(tmp_path / "agent")


def test_ctrl_c_that_is_ignored_stays_so() -> None:
    code, out, err = interrupted("csdf", "datetime", "--help", before="signal.SIG_IGN")
    assert (code, err) == (0, "")
    assert "analyze" in out
