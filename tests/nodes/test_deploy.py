"""What is told outside the code agrees with it: the version, the systemd unit, its README."""

import re
import shlex
from importlib.metadata import version
from pathlib import Path

import pytest

from nodes.cli import _parser
from nodes.version import VERSION

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
    assert not options.exit_with_parent


def test_the_readme_names_options_that_it_has():
    (options,) = re.findall(r"NODE_AGENT_OPTIONS=(.*)\"", (DEPLOY / "README.md").read_text())
    parsed = _parser().parse_args(shlex.split(options))
    assert (parsed.name, parsed.cpus, parsed.cache_bytes) == ("attic", (0, 1, 2, 3), 2 << 30)


@pytest.mark.parametrize(
    ("text", "size"), [("1", 1), ("2k", 2048), ("500M", 500 << 20), ("4GB", 4 << 30)]
)
def test_sizes_may_have_a_unit(text, size):
    assert _parser().parse_args(["--cache-bytes", text]).cache_bytes == size
