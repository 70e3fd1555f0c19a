"""Every command in environments that it cannot work in: a result or a sentence, no traceback."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

DIGITS = Path(__file__).parents[2] / "examples" / "digits"
SCRIPTS = Path(sys.executable).parent
WITHIN_S = 120

CLUSTER = "model: digits.onnx\nnodes: [{name: a}, {name: b}]\nstrategy: sequential\nframes: 4\n"

COMMANDS = (
    "launch --help",
    "launch cluster.yaml --plan-only",
    "launch cluster.yaml --plan-only --json",
    "launch missing.yaml",
    "launch doctor cluster.yaml",
    "launch status",
    "launch apply cluster.yaml",
    "launch up --print-unit",
    "launch top",
    "node-agent --describe",
    "node-agent --trial",
    "node-agent --version",
    "csdf --help",
    "ga --help",
    "csdf-edge --version",
)


@dataclass(frozen=True)
class Hostile:
    """How a command is started: words before it, in a shell, and changed variables."""

    shell: str = '"$@"'
    environment: dict[str, str] = field(default_factory=dict)
    without: tuple[str, ...] = ()
    needs_root: bool = False


ENVIRONMENTS = {
    "no user and no home": Hostile(
        'exec unshare -m sh -c \'mount --bind /dev/null /etc/passwd && exec "$@"\' sh "$@"',
        needs_root=True,
        without=("HOME", "USER", "LOGNAME", "XDG_CACHE_HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME"),
    ),
    "standard output closed": Hostile('"$@" >&-'),
    "standard error closed": Hostile('"$@" 2>&-'),
    "all standard files closed": Hostile('"$@" <&- >&- 2>&-'),
    "standard output full": Hostile('"$@" >/dev/full'),
    "ASCII": Hostile(environment={"PYTHONIOENCODING": "ascii"}),
    "GBK": Hostile(environment={"PYTHONIOENCODING": "gbk:strict"}),
    "without docstrings and assertions": Hostile(environment={"PYTHONOPTIMIZE": "2"}),
    "16 open files": Hostile('ulimit -n 16; "$@"'),
    "little address space": Hostile('ulimit -v 300000; "$@"'),
    "a folder whose name is not text": Hostile('cd "$(printf "bad\\377")" && "$@"'),
}

PAIRS = [
    pytest.param(environment, command, marks=() if (i + j) % 8 == 0 else pytest.mark.further)
    for i, environment in enumerate(ENVIRONMENTS)
    for j, command in enumerate(COMMANDS)
    if (i + j) % 4 == 0
]
"""Four commands in each environment, every other one with `make further`: all take minutes."""


def run(hostile: Hostile, command: Sequence[str], folder: Path) -> subprocess.CompletedProcess[str]:
    inherited = {key: value for key, value in os.environ.items() if key not in hostile.without}
    words = (str(SCRIPTS / command[0]), *command[1:])
    return subprocess.run(
        ("bash", "-c", hostile.shell, "bash", *words), cwd=folder,
        env={**inherited, **hostile.environment}, capture_output=True, text=True,
        errors="replace", stdin=subprocess.DEVNULL, timeout=WITHIN_S, check=False,
    )  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("hostile")
    for place in (made, Path(os.fsdecode(os.fsencode(made) + b"/bad\xff"))):
        place.mkdir(exist_ok=True)
        shutil.copy(DIGITS / "digits.onnx", place)
        (place / "cluster.yaml").write_text(CLUSTER)
    return made


@pytest.fixture(autouse=True)
def _own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("XDG_CACHE_HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(variable, str(tmp_path / variable))


@pytest.mark.slow
@pytest.mark.parametrize(("environment", "command"), PAIRS)
def test_a_command_ends_in_a_result_or_a_sentence(
    environment: str, command: str, folder: Path
) -> None:
    hostile = ENVIRONMENTS[environment]
    if hostile.needs_root and subprocess.run(("unshare", "-m", "true"), check=False).returncode:
        pytest.skip("only root can hide the table of users")
    done = run(hostile, command.split(), folder)
    assert "Traceback" not in done.stderr + done.stdout, done.stderr
    assert "Exception ignored" not in done.stderr
    assert done.returncode in (0, 1, 2), done.stderr
    if done.returncode and "2>&-" not in hostile.shell:
        assert done.stderr.strip() or done.stdout.strip()


@pytest.mark.parametrize("limit", ["ulimit -n 16", "ulimit -v 300000"])
def test_a_limit_that_is_too_low_is_named_with_what_to_allow(limit: str, folder: Path) -> None:
    done = run(Hostile(f'{limit}; "$@"'), ("launch", "cluster.yaml"), folder)
    flag, given = limit.split()[1:]
    assert done.returncode == 2
    assert given in done.stderr
    assert f"(ulimit {flag})" in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("encoding", ["ascii", "gbk"])
def test_a_complete_run_is_reported_in_any_encoding(encoding: str, folder: Path) -> None:
    hostile = Hostile(environment={"PYTHONIOENCODING": encoding})
    done = run(hostile, ("launch", "cluster.yaml"), folder)
    assert done.returncode == 0, done.stderr
    assert "4 frames" in done.stdout


@pytest.mark.slow
def test_a_run_without_assertions_and_docstrings_agrees(folder: Path) -> None:
    done = run(Hostile(environment={"PYTHONOPTIMIZE": "2"}), ("launch", "cluster.yaml"), folder)
    assert (done.returncode, "agree" in done.stdout) == (0, True), done.stderr


def test_a_result_that_cannot_be_written_is_an_error(folder: Path) -> None:
    for shell in ('"$@" >&-', '"$@" >/dev/full'):
        done = run(Hostile(shell), ("csdf-edge", "partition", "--help"), folder)
        assert done.returncode == 1, done
        assert "cannot be written" in done.stderr


def test_a_home_that_nobody_has_is_a_folder_that_is_not_there(folder: Path) -> None:
    (folder / "home.yaml").write_text("model: ~nosuchuser/m.onnx\nnodes: [{name: a}]\n")
    done = run(Hostile(), ("launch", "home.yaml"), folder)
    assert done.returncode == 2
    assert "nosuchuser/m.onnx" in done.stderr
    assert "there is no file" in done.stderr
