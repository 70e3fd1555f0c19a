"""A folder that somebody else has filled is only read: none of its code is run.

The trap has a module of every name that Python could look for, each of which leaves a mark.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from csdf_edge.entry import COMMANDS
from nodes.host.process import python_command
from tests.architecture.test_processes import modules_started

DIGITS = Path(__file__).parents[2] / "examples" / "digits"
SCRIPTS = Path(sys.executable).parent

MARK = 'import builtins\nbuiltins.open({mark!r}, "a").write(__name__ + "\\n")\n'

PLUGIN = "[csdf_edge.engines]\nstranger = stranger:Engine\n[csdf_edge.meters]\na = stranger:A\n"

OURS = ("cnn", "csdf", "partition", "ga", "nodes", "launcher", "csdf_edge")

WITHIN_S = 120


class Trap:
    """A folder with a model, a cluster and the stranger's modules."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "stranger"
        self.mark = folder / "mark"
        self.folder.mkdir()
        for name in ("digits.onnx", "test_images.npy"):
            shutil.copy(DIGITS / name, self.folder)
        names = {*sys.stdlib_module_names, *packages_distributions(), *OURS}
        for name in (*names, "sitecustomize", "usercustomize", "stranger", "start", "process"):
            if name.isidentifier():
                (self.folder / f"{name}.py").write_text(MARK.format(mark=str(self.mark)))
        info = self.folder / "stranger-1.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: stranger\nVersion: 1\n")
        (info / "entry_points.txt").write_text(PLUGIN)

    def write_cluster(self, *more: str) -> None:
        lines = ["model: digits.onnx", "nodes: [{name: a}, {name: b}]", *more]
        (self.folder / "cluster.yaml").write_text("\n".join(lines))

    def run(self, command: Sequence[str], **environment: str) -> subprocess.CompletedProcess[str]:
        given = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        return subprocess.run(
            command, cwd=self.folder, env={**given, **environment}, stdin=subprocess.DEVNULL,
            capture_output=True, text=True, timeout=WITHIN_S, check=False,
        )  # fmt: skip

    def ran(self) -> list[str]:
        return self.mark.read_text().split() if self.mark.exists() else []


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Trap:
    return Trap(tmp_path_factory.mktemp("trap"))


@pytest.fixture
def trap(filled: Trap) -> Trap:
    filled.mark.unlink(missing_ok=True)
    return filled


def test_the_trap_catches_what_python_does_by_itself(trap: Trap) -> None:
    trap.run((sys.executable, "-m", "nodes.cli", "--version"))
    assert trap.ran()


MODULES = sorted(modules_started())
SAFE = {module.partition(".")[0]: module for module in MODULES}
"""One of each package for a Python that keeps the current folder out by itself."""


@pytest.mark.parametrize(
    ("module", "environment"),
    [
        *((module, {}) for module in MODULES),
        *((module, {"PYTHONSAFEPATH": "1"}) for module in SAFE.values()),
    ],
)
def test_a_child_runs_no_code_of_the_folder(
    trap: Trap, module: str, environment: dict[str, str]
) -> None:
    """Without arguments most children end in a mistake, which they find after their imports."""
    if module == "ziglang":
        pytest.skip("a package of others, which is installed with the extra `tvm` only")
    done = trap.run(python_command(module, "--help"), **environment)
    assert trap.ran() == []
    assert "No module named" not in done.stderr, done.stderr


def test_a_child_finds_the_package_of_its_parent_although_another_comes_first(
    tmp_path: Path,
) -> None:
    for name in ("nodes", "nodes/host"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise SystemExit('another package')")
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    command = python_command("nodes.cli", "--version")
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("name", ["launch", "node-agent", "ga", "csdf", *COMMANDS])
def test_a_command_runs_no_code_of_the_folder(trap: Trap, name: str) -> None:
    script = (name,) if (SCRIPTS / name).exists() else ("csdf-edge", name)
    done = trap.run((str(SCRIPTS / script[0]), *script[1:], "--help"))
    assert (done.returncode, trap.ran()) == (0, []), done.stderr


@pytest.mark.slow
def test_a_launch_runs_no_code_of_the_folder(trap: Trap) -> None:
    """Its two agents, what these start to prepare subnets, and the comparison."""
    trap.write_cluster("input: test_images.npy", "frames: 8", "strategy: sequential")
    done = trap.run((str(SCRIPTS / "launch"), "cluster.yaml"))
    assert (done.returncode, trap.ran()) == (0, []), done.stderr
    assert "agree" in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    "command",
    [
        ("launch", "doctor", "cluster.yaml", "--json"),
        ("node-agent", "--doctor", "--json"),
        ("node-agent", "--trial"),
        ("csdf-edge", "partition", "profile", "--cluster", "cluster.yaml"),
    ],
    ids=" ".join,
)
def test_what_examines_and_measures_runs_no_code_of_the_folder(
    trap: Trap, command: tuple[str, ...]
) -> None:
    trap.write_cluster("input: test_images.npy", "strategy: sequential")
    done = trap.run((str(SCRIPTS / command[0]), *command[1:]))
    assert trap.ran() == [], done.stderr
    assert done.returncode in (0, 1), done.stderr


def test_slots_run_no_code_of_the_folder(trap: Trap) -> None:
    """The parent and the agents of its slots."""
    command = (SCRIPTS / "node-agent", "--slots", "2", "--listen", "tcp://127.0.0.1:0")
    with subprocess.Popen(
        (*command, "--exit-with-parent"), cwd=trap.folder, stdin=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert process.stderr is not None
        assert "ready" in process.stderr.readline()
        process.communicate(timeout=WITHIN_S)
    assert trap.ran() == []


@pytest.mark.slow
def test_pictures_do_not_depend_on_a_matplotlibrc_of_the_folder(trap: Trap) -> None:
    pages = []
    for settings in ("", "font.size: 40\ntext.usetex: True\nlines.linewidth: 9\n"):
        (trap.folder / "matplotlibrc").write_text(settings)
        command = (SCRIPTS / "csdf-edge", "partition", "compare", "digits.onnx")
        options = ("--strategies", "sequential", "--devices", "2", "--html", "page.html")
        done = trap.run((*map(str, command), *options))
        assert (done.returncode, trap.ran()) == (0, []), done.stderr
        text = (trap.folder / "page.html").read_text()
        pages.append(text[text.index("<svg") : text.rindex("</svg>")])
    assert pages[0] == pages[1]
