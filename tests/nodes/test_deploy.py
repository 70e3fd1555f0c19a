"""The version, the systemd unit and its README agree with the code."""

import re
import shlex
import subprocess
from importlib.metadata import version
from pathlib import Path
from shutil import which

import pytest

from nodes.cli import VERSION, _parser

DEPLOY = Path(__file__).parents[2] / "deploy"


def test_the_version_is_that_of_the_package():
    assert version("csdf-edge") == VERSION


def unit(key: str) -> list[str]:
    text = (DEPLOY / "node-agent.service").read_text()
    return [line.removeprefix(f"{key}=") for line in text.splitlines() if line.startswith(key)]


def test_the_unit_starts_the_agent_with_options_that_it_has():
    (command,) = unit("ExecStart")
    defaults = dict(line.split("=", 1) for line in unit("Environment"))
    for name, value in {**defaults, "CACHE_DIRECTORY": "/var/cache/csdf-edge"}.items():
        command = command.replace(f"${{{name}}}", value).replace(f"${name}", value)
    options = _parser().parse_args(shlex.split(command)[1:])
    assert options.listen == "tcp://0.0.0.0:5500"
    assert options.cache == Path("/var/cache/csdf-edge")
    assert options.keys == Path("/etc/csdf-edge/keys")
    assert not options.insecure
    assert not options.exit_with_parent


def test_the_unit_runs_as_a_user_that_its_readme_makes():
    (user,) = unit("User")
    readme = (DEPLOY / "README.md").read_text()
    assert user != "root"
    assert re.search(rf"useradd --system .*{user}$", readme, re.MULTILINE)
    assert f"--chown={user}:{user} csdf-keys/ /etc/csdf-edge/keys/" in readme
    assert unit("ExecReload") == ["/bin/kill -HUP $MAINPID"]


@pytest.mark.skipif(which("systemd-analyze") is None, reason="systemd-analyze is not installed")
def test_the_units_exposure_is_what_its_readme_tells(tmp_path):
    """Ratings differ between versions of systemd: told is one, and kept is a bound."""
    told = re.search(
        r"rates its exposure ([\d.]+), with\s+`cpu-only.conf` ([\d.]+)",
        (DEPLOY / "README.md").read_text(),
    )
    text, more = ((DEPLOY / name).read_text() for name in ("node-agent.service", "cpu-only.conf"))
    tighter = re.sub("^SupplementaryGroups=.*$", "", text, flags=re.MULTILINE).replace(
        "[Install]", more.partition("[Service]\n")[2] + "\n[Install]"
    )
    assert told
    for exposure, content in zip(told.groups(), (text, tighter), strict=True):
        path = tmp_path / "node-agent.service"
        path.write_text(content)
        done = subprocess.run(
            ["systemd-analyze", "security", "--offline=true", str(path)],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        if "unrecognized option" in done.stderr:
            pytest.skip("this systemd is too old for --offline")
        rated = re.search(r"Overall exposure level for .*: ([\d.]+)", done.stdout)
        assert rated, done
        assert abs(float(rated[1]) - float(exposure)) <= 0.4


def test_the_readme_names_options_that_it_has():
    (options,) = re.findall(r"NODE_AGENT_OPTIONS=(.*)\"", (DEPLOY / "README.md").read_text())
    parsed = _parser().parse_args(shlex.split(options))
    assert (parsed.name, parsed.cpus, parsed.cache_bytes) == ("attic", (0, 1, 2, 3), 2 * 10**9)


@pytest.mark.parametrize(
    ("text", "size"),
    [("1", 1), ("2k", 2000), ("500M", 500 * 10**6), ("4GB", 4 * 10**9), ("4GiB", 4 << 30)],
)
def test_sizes_may_have_a_unit_and_mean_what_they_do_in_cluster_yaml(text, size):
    assert _parser().parse_args(["--cache-bytes", text]).cache_bytes == size
