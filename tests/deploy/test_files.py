"""What of `deploy/` can be checked without systemd, Ansible, a container or Kubernetes."""

from __future__ import annotations

import re
from importlib.metadata import requires
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

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


REQUIREMENTS = sorted((DEPLOY / "requirements").glob("*.txt"))


def pinned(path: Path) -> dict[str, str]:
    """The requirements of a file, and what follows each: its version, condition and hashes."""
    text = path.read_text().replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return {line.split(" --hash")[0].strip(): line for line in lines}


@pytest.mark.parametrize("path", REQUIREMENTS, ids=lambda path: path.name)
def test_what_is_installed_has_a_version_that_is_locked_and_the_hashes_of_its_files(
    path: Path,
) -> None:
    locked = {line.split(" ;")[0] for line in (ROOT / "requirements.lock").read_text().splitlines()}
    found = pinned(path)
    assert found
    for requirement, line in found.items():
        assert requirement.split(" ;")[0] in locked, requirement
        assert re.search(r" --hash=sha256:[0-9a-f]{64}", line), requirement
        assert "://" not in line, "from whatever index the device has"


def test_the_requirements_are_all_that_the_project_asks_for() -> None:
    for name, extras in {
        "agent": ["cpu"],
        "agent-without-engine": [],
        "server": ["launch", "plots", "serve", "cpu"],
    }.items():
        needed = {canonicalize_name(each) for each in _needed(extras)}
        given = {canonicalize_name(each.partition("==")[0])
                 for each in pinned(DEPLOY / "requirements" / f"{name}.txt")}  # fmt: skip
        assert needed <= given, name


def _needed(extras: list[str]) -> list[str]:
    """The distributions that csdf-edge requires with these extras, by itself."""
    needed = []
    for each in map(Requirement, requires("csdf-edge") or ()):
        if each.marker is None or any(each.marker.evaluate({"extra": e}) for e in ["", *extras]):
            if each.name == "csdf-edge":
                needed += _needed(list(each.extras))
            else:
                needed.append(each.name)
    return needed


def test_whatever_installs_takes_only_what_has_a_hash() -> None:
    files = (
        DEPLOY / "README.md",
        DEPLOY / "image" / "Containerfile",
        DEPLOY / "ansible/roles/csdf_edge_agent/tasks/version.yml",
    )
    for file in files:
        text = file.read_text().replace("\\\n", " ")
        installs = re.findall(
            r"pip install .*|- name: [^\n]*\n  ansible.builtin.pip:\n(?:    .*\n)+", text
        )
        assert len(installs) >= 1, file
        for install in installs:
            assert "--require-hashes" in install or "--no-deps" in install, install


NAMES = ("board1", "board2")


def rendered(node: str) -> list[Any]:
    """agents.yaml as README.md applies it for a node."""
    text = (DEPLOY / "kubernetes" / "agents.yaml").read_text().replace("NODE", node)
    return list(yaml.safe_load_all(text))


def pods() -> list[tuple[str, Any]]:
    """Each pod that the manifests describe, and its kind's name."""
    given = [d for path in DEPLOY.glob("kubernetes/s*.yaml") for d in documents(path)]
    return [
        (document["metadata"]["name"], document["spec"]["template"]["spec"])
        for document in [*(each for node in NAMES for each in rendered(node)), *given]
        if document["kind"] in {"DaemonSet", "Deployment", "Job"}
    ]


def secrets(pod: Any) -> set[str]:
    """The Secrets that a pod can read."""
    found = {volume["secret"]["secretName"] for volume in pod["volumes"] if "secret" in volume} | {
        source["secret"]["name"]
        for volume in pod["volumes"]
        for source in volume.get("projected", {}).get("sources", ())
        if "secret" in source
    }
    for container in [*pod["containers"], *pod.get("initContainers", ())]:
        for variable in container.get("env", ()):
            reference = variable.get("valueFrom", {}).get("secretKeyRef")
            found |= {reference["name"]} if reference else set()
    return found


def test_no_pod_has_the_keys_of_another_node() -> None:
    by_name = dict(pods())
    for node in NAMES:
        pod = by_name[f"node-agent-{node}"]
        assert secrets(pod) == {f"csdf-edge-keys-{node}"}
        assert pod["nodeSelector"] == {"kubernetes.io/hostname": node}
    assert not secrets(by_name["csdf-edge-server"]) & {f"csdf-edge-keys-{node}" for node in NAMES}


def test_the_readme_gives_each_node_its_own_keys_and_puts_no_token_into_a_config_map() -> None:
    text = (DEPLOY / "kubernetes" / "README.md").read_text()
    assert "create secret generic csdf-edge-keys-$node --from-file=keys.tar" in text
    assert "tar -C keys/$node -cf keys.tar ." in text
    for line in text.splitlines():
        if "create configmap" in line:
            assert "cluster.yaml" not in line
    for name, pod in pods():
        for volume in pod["volumes"]:
            maps = [
                volume.get("configMap"),
                *(
                    source.get("configMap")
                    for source in volume.get("projected", {}).get("sources", ())
                ),
            ]
            assert all(each["name"] == "csdf-edge-models" for each in maps if each), name


def test_agents_in_kubernetes_are_started_with_options_that_exist() -> None:
    containers = [
        container
        for document in rendered("board1")
        if document["kind"] == "DaemonSet"
        for container in document["spec"]["template"]["spec"]["containers"]
    ]
    (agent,) = containers
    assert "--name=board1" in agent["args"]
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
