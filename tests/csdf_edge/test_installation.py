"""Beside other distributions that install packages of our names, and without some dependencies."""

import json
import os
import re
import subprocess
import sys
from base64 import urlsafe_b64encode
from hashlib import sha256
from pathlib import Path

import pytest

from csdf_edge.intact import PACKAGES

ROOT = Path(__file__).parents[2]

WITHOUT = """
import sys

class Forbidden:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {names!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Forbidden())
"""
"""Python that does as if packages were not installed."""

SEARCH = ("deap", "matplotlib", "optuna", "ortools", "pandas", "sqlalchemy")


def install(site: Path, name: str, files: dict[str, bytes]) -> None:
    """As pip does: what is there is overwritten without a word, and RECORD has the checksums."""
    record = []
    for path, content in files.items():
        place = site / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)
        digest = urlsafe_b64encode(sha256(content).digest()).rstrip(b"=").decode()
        record.append(f"{path},sha256={digest},{len(content)}\n")
    info = site / f"{name.replace('-', '_')}-0.1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 0.1.0\n")
    (info / "RECORD").write_text("".join(record))


def install_ours(site: Path) -> None:
    files = {}
    for package in (*PACKAGES, "csdf_edge"):
        for path in (ROOT / package).rglob("*"):
            if path.is_file() and path.suffix != ".pyc":
                files[str(path.relative_to(ROOT))] = path.read_bytes()
    install(site, "csdf-edge", files)


def install_theirs(site: Path) -> None:
    """As `autodice` does: a package of our name, with its own modules."""
    files = {
        "partition/__init__.py": b"from partition.dice import split\n",
        "partition/dice.py": b"def split(): ...\n",
        "partition/errors.py": b"class DiceError(Exception): ...\n",
    }
    install(site, "autodice", files)


def run(
    site: Path, script: str, *arguments: str, without: tuple[str, ...] = ()
) -> subprocess.CompletedProcess[str]:
    code = WITHOUT.format(names=without) + f"from csdf_edge.entry import {script}; {script}()"
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        cwd=site,
        env={**os.environ, "PYTHONPATH": str(site), "ORT_DISABLE_TELEMETRY": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


@pytest.mark.parametrize(
    ("script", "arguments"),
    [
        ("launch", (str(ROOT / "cluster.yaml"), "--plan-only")),
        ("ga", ("sweep", str(ROOT / "cluster.yaml"), "--trials", "1")),
        ("csdf_edge", ("partition", "solve", "builtin:MLP", "--devices", "2")),
    ],
)
def test_a_command_whose_modules_another_package_has_overwritten_says_so(
    tmp_path: Path, script: str, arguments: tuple[str, ...]
) -> None:
    install_ours(tmp_path)
    install_theirs(tmp_path)
    ended = run(tmp_path, script, *arguments)
    assert ended.returncode == 2
    assert "Traceback" not in ended.stderr
    last = ended.stderr.splitlines()[-1]
    assert re.search(r": partition/\w+\.py is no longer csdf-edge's file", last)
    assert "uninstall autodice" in last


def test_it_says_so_as_json(tmp_path: Path) -> None:
    install_ours(tmp_path)
    install_theirs(tmp_path)
    ended = run(tmp_path, "launch", str(ROOT / "cluster.yaml"), "--plan-only", "--json")
    told = json.loads(ended.stdout)
    assert told["exit_code"] == 2
    assert "autodice" in told["error"]


def test_a_command_whose_modules_were_removed_says_so(tmp_path: Path) -> None:
    install_ours(tmp_path)
    (tmp_path / "partition" / "plan.py").unlink()
    ended = run(tmp_path, "launch", str(ROOT / "cluster.yaml"), "--plan-only")
    assert ended.returncode == 2
    assert "partition/plan.py is no longer" in ended.stderr.splitlines()[-1]
    assert "Traceback" not in ended.stderr


def test_installed_after_the_other_package_ours_is_complete(tmp_path: Path) -> None:
    install_theirs(tmp_path)
    install_ours(tmp_path)
    ended = run(tmp_path, "launch", "--version")
    assert (ended.returncode, ended.stdout) == (0, "csdf-edge 0.1.0\n")
    digits = str(ROOT / "examples" / "digits" / "cluster.yaml")
    ended = run(tmp_path, "launch", digits, "--plan-only", "--strategy", "sequential")
    assert ended.returncode == 0, ended.stderr


def test_what_does_not_need_the_overwritten_modules_still_works(tmp_path: Path) -> None:
    install_ours(tmp_path)
    install_theirs(tmp_path)
    assert run(tmp_path, "node_agent", "--version").returncode == 0
    assert run(tmp_path, "csdf", "--help").returncode == 0


@pytest.mark.slow
def test_the_extra_run_is_enough_for_a_saved_plan(tmp_path: Path) -> None:
    digits, plan = str(ROOT / "examples" / "digits" / "cluster.yaml"), str(tmp_path / "plan")
    save = ("--plan-only", "--strategy", "sequential", "--save", plan)
    assert run(ROOT, "launch", digits, *save).returncode == 0
    ended = run(ROOT, "launch", plan, "--frames", "4", "--json", without=SEARCH)
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout)["frames"] == 4


def test_without_the_search_a_command_says_which_extra_has_it() -> None:
    digits = str(ROOT / "examples" / "digits" / "cluster.yaml")
    ended = run(ROOT, "launch", digits, "--plan-only", "--strategy", "exact", without=SEARCH)
    assert ended.returncode == 2
    assert ended.stderr.splitlines()[-1] == (
        "launch: this needs ortools, which is not installed: install csdf-edge with its extra "
        "'launch' (pip install 'csdf-edge[launch]')"
    )


def test_csdf_edge_names_its_commands() -> None:
    ended = run(ROOT, "csdf_edge", "--help")
    assert ended.returncode == 0
    for command in ("launch", "agent", "partition", "ga", "csdf"):
        assert f"\n  {command} " in ended.stdout


def test_csdf_edge_runs_each_of_them() -> None:
    for command in ("launch", "agent", "partition", "ga", "csdf"):
        ended = run(ROOT, "csdf_edge", command, "--help")
        assert ended.returncode == 0, ended.stderr


def test_an_installation_has_what_the_demo_runs(tmp_path: Path) -> None:
    install_ours(tmp_path)
    packed = re.findall(r'^"(examples/.+)" = "(.+)"$', (ROOT / "pyproject.toml").read_text(), re.M)
    for source, target in packed:
        (tmp_path / target).parent.mkdir(exist_ok=True)
        (tmp_path / target).write_bytes((ROOT / source).read_bytes())
    ended = run(tmp_path, "csdf_edge", "demo", "--strategy", "sequential", "--json")
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout)["frames"] == 360


def test_a_demo_without_its_files_says_so(tmp_path: Path) -> None:
    install_ours(tmp_path)
    ended = run(tmp_path, "csdf_edge", "demo")
    assert ended.returncode == 2
    assert "csdf_edge/digits is missing" in ended.stderr


def test_pictures_are_refused_before_the_work_without_their_extra(tmp_path: Path) -> None:
    model, page = str(ROOT / "examples" / "digits" / "digits.onnx"), str(tmp_path / "page.html")
    arguments = ("partition", "compare", model, "--devices", "2", "--html", page)
    ended = run(ROOT, "csdf_edge", *arguments, without=("matplotlib",))
    assert ended.returncode == 2
    assert ended.stderr == (
        "partition: this needs matplotlib, which is not installed: install csdf-edge with its "
        "extra 'plots' (pip install 'csdf-edge[plots]')\n"
    )


def test_csdf_edge_refuses_another_command_in_a_sentence() -> None:
    ended = run(ROOT, "csdf_edge", "xyz")
    assert ended.returncode == 2
    assert ended.stderr == (
        "csdf-edge: there is no command 'xyz'; the commands are launch, agent, partition, "
        "ga, csdf, demo\n"
    )


def test_csdf_edge_suggests_the_nearest_command() -> None:
    ended = run(ROOT, "csdf_edge", "parttion")
    assert ended.returncode == 2
    assert ended.stderr == ("csdf-edge: there is no command 'parttion'; did you mean partition?\n")
