"""What the service says of its nodes."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.service.server import write_cluster, write_version
from launcher.config.load import load_cluster
from launcher.service.nodes import restart_there


@pytest.mark.parametrize(
    ("node", "command"),
    [
        ({"address": "tcp://left:5500"}, "ssh left sudo systemctl restart node-agent"),
        (
            {"address": "tcp://left:5500", "ssh": "pi@left.local:2222"},
            "ssh -p 2222 pi@left.local sudo systemctl restart node-agent",
        ),
        ({"address": "tcp://127.0.0.1:5500"}, "sudo systemctl restart node-agent"),
        ({"address": "tcp://[fd00::7]:5500"}, "ssh fd00::7 sudo systemctl restart node-agent"),
    ],
)
def test_it_says_what_to_type_to_restart_an_agent_elsewhere(
    tmp_path: Path, node: dict[str, str], command: str
) -> None:
    write_version(tmp_path, 1)
    nodes = [{"name": "left", **node}]
    path = write_cluster(tmp_path, ("digits", 1), nodes=nodes)
    sentence = restart_there(load_cluster(path), "left")
    assert f"restart it on its machine with `{command}`" in sentence
