"""The commands that change a board."""

from __future__ import annotations

import hashlib
import subprocess
from pathlib import Path, PurePosixPath

import pytest

from launcher.config.load import load_cluster
from launcher.errors import BadInputError
from launcher.upgrade.boards import SshTarget, boards_of
from launcher.upgrade.layout import InstallLayout, Wheel, is_version, read_wheel

WHEEL = Wheel(Path("csdf_edge-0.2.0-py3-none-any.whl"), "0.2.0", "1f0c" * 16)


def layout(prefix: str = "/opt/csdf-edge", extras: str = "cpu") -> InstallLayout:
    return InstallLayout(PurePosixPath(prefix), WHEEL, extras)


def test_a_version_is_named_by_the_wheels_version_and_digest(tmp_path: Path) -> None:
    path = tmp_path / "csdf_edge-0.2.0.dev1+g12-py3-none-any.whl"
    path.write_bytes(b"wheel")
    wheel = read_wheel(path)
    assert wheel.version == "0.2.0.dev1+g12"
    assert wheel.folder == "0.2.0.dev1+g12-" + hashlib.sha256(b"wheel").hexdigest()[:12]
    assert is_version(f"versions/{wheel.folder}")


@pytest.mark.parametrize("name", ["numpy-2.0-py3-none-any.whl", "csdf_edge-0.2.0.tar.gz", "x; rm"])
def test_what_is_no_wheel_of_ours_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(BadInputError, match="is not a wheel of csdf-edge"):
        read_wheel(tmp_path / name)


@pytest.mark.parametrize(
    ("prefix", "extras"), [("/", "cpu"), ("..", "cpu"), ("/opt/../etc", "cpu"), ("/opt", "x;y")]
)
def test_a_folder_or_extra_that_cannot_be_meant_is_refused(prefix: str, extras: str) -> None:
    with pytest.raises(BadInputError):
        layout(prefix, extras)


def test_the_link_is_switched_by_one_rename(tmp_path: Path) -> None:
    old = tmp_path / "versions" / "0.1.0-aaaaaaaaaaaa"
    old.mkdir(parents=True)
    (tmp_path / "current").symlink_to("versions/0.1.0-aaaaaaaaaaaa")
    here = layout(str(tmp_path))
    for command in here.switch(here.target):
        subprocess.run(command, check=True)
    assert (tmp_path / "current").readlink() == Path(here.target)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["current", "versions"]
    assert list(old.iterdir()) == []


def test_only_versions_that_are_neither_new_nor_former_are_removed() -> None:
    names = ["0.1.0-aaaaaaaaaaaa", "0.1.1-bbbbbbbbbbbb", WHEEL.folder, "notes", "..", "-rf"]
    command = layout().prune("\n".join(names), "versions/0.1.1-bbbbbbbbbbbb")
    assert command == ("rm", "-rf", "/opt/csdf-edge/versions/0.1.0-aaaaaaaaaaaa")
    assert layout().prune(WHEEL.folder, layout().target) is None


def test_nodes_at_one_place_are_one_board(tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(b"")
    file = tmp_path / "cluster.yaml"
    file.write_text(
        "model: m.onnx\nnodes:\n"
        "- {name: a, address: 'tcp://10.0.0.1:5500', ssh: 'pi@board:2222'}\n"
        "- {name: b, address: 'tcp://10.0.0.1:5502', host: x, ssh: 'pi@board:2222'}\n"
        "- {name: c, address: 'tcp://[fd00::1]:5500'}\n"
        "- {name: d}\n"
    )
    found = boards_of(load_cluster(file))
    assert [(board.name, board.ssh) for board in found] == [
        ("a, b", SshTarget("board", "pi", 2222)),
        ("c", SshTarget("fd00::1")),
    ]
    assert [board.name for board in boards_of(load_cluster(file), ["b"])] == ["b"]
    with pytest.raises(BadInputError, match="launch starts its agent on this machine"):
        boards_of(load_cluster(file), ["d"])
    with pytest.raises(BadInputError, match="the nodes are a, b, c, d"):
        boards_of(load_cluster(file), ["e"])
