"""What of `deploy/` can be checked without systemd, Ansible, a container or Kubernetes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from launcher.upgrade.layout import read_wheel
from nodes.cli import _parser as agent_parser

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"


def documents(path: Path) -> list[Any]:
    return list(yaml.safe_load_all(path.read_text()))


@pytest.mark.parametrize("path", sorted(DEPLOY.glob("**/*.y*ml")), ids=lambda path: path.name)
def test_every_yaml_file_can_be_read(path: Path) -> None:
    assert all(documents(path))


def test_the_unit_starts_what_an_upgrade_switches() -> None:
    unit = (DEPLOY / "node-agent.service").read_text()
    program = re.search(r"^ExecStart=(\S+)", unit, re.MULTILINE)
    assert program is not None
    assert program[1] == "/opt/csdf-edge/current/bin/node-agent"


def test_the_role_names_a_version_as_launch_upgrade_does(tmp_path: Path) -> None:
    wheel = tmp_path / "csdf_edge-0.2.0-py3-none-any.whl"
    wheel.write_bytes(b"wheel")
    read = read_wheel(wheel)
    tasks = (DEPLOY / "ansible/roles/csdf_edge_agent/tasks/main.yml").read_text()
    assert ".split('-')[1] }}-{{ csdf_edge_agent_stat.stat.checksum[:12] }}" in tasks
    assert read.folder == f"{wheel.name.split('-')[1]}-{read.digest[:12]}"


def test_every_variable_of_the_role_is_described() -> None:
    role = DEPLOY / "ansible/roles/csdf_edge_agent"
    described = (DEPLOY / "ansible/README.md").read_text()
    for name in documents(role / "defaults" / "main.yml")[0]:
        assert f"| `{name}` |" in described, name


def test_agents_in_kubernetes_are_started_with_options_that_exist() -> None:
    containers = [
        container
        for document in documents(DEPLOY / "kubernetes" / "agents.yaml")
        if document["kind"] == "DaemonSet"
        for container in document["spec"]["template"]["spec"]["containers"]
    ]
    (agent,) = containers
    assert agent["args"][0] == "agent"
    agent_parser().parse_args(agent["args"][1:])  # ends with an error if one does not


def test_no_container_runs_as_root_or_may_gain_rights() -> None:
    for path in DEPLOY.glob("kubernetes/*.yaml"):
        for document in documents(path):
            if document["kind"] not in {"DaemonSet", "Deployment", "Job"}:
                continue
            pod = document["spec"]["template"]["spec"]
            assert pod["securityContext"]["runAsNonRoot"] is True
            for container in [*pod["containers"], *pod.get("initContainers", ())]:
                assert container["securityContext"]["allowPrivilegeEscalation"] is False
                assert "limits" in container["resources"]
