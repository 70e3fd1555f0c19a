"""Faults are planted on this machine: `node-agent --doctor` finds each, and its remedy helps."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from launcher.commands.make_keys import make_keys
from nodes.doctor.findings import Severity
from nodes.host.control_groups import group_folders
from tests.arm64.marks import not_in_qemu
from tests.nodes.doctor.examined import agent, apply, doctor, examined

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="planting this fault needs root")

HERE = "tcp://127.0.0.1:0"
EXPOSED = "tcp://0.0.0.0:0"


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def test_a_machine_without_a_fault_has_no_error(cache, tmp_path):
    make_keys(tmp_path / "keys", {"a": None, "b": None})
    arguments = ("--listen", EXPOSED, "--keys", tmp_path / "keys" / "a", "--name", "a")
    found = doctor("node-agent", *arguments, "--cache", cache)
    assert found.code == 0, found.data["findings"]
    assert not cache.exists()
    checks = {each["check"] for each in found.data["checks"]}
    assert checks == {
        *("keys", "ports", "versions", "clock", "disk", "memory", "processor", "engine"),
        *("network", "limits"),
    }
    assert found.data["facts"]["a"]["protocol"].isdigit()


def test_missing_keys(tmp_path):
    arguments = ("--listen", EXPOSED, "--keys", tmp_path / "keys")
    (missing,) = examined("keys", *arguments)
    assert missing.severity is Severity.ERROR
    apply(missing, tmp_path)
    (left,) = examined("keys", *arguments)
    assert left.where == str(tmp_path / "keys" / "launchers")  # whose keys the launcher has


def test_a_secret_that_others_can_read(tmp_path):
    make_keys(tmp_path / "keys", {"a": None})
    folder = tmp_path / "keys" / "a"
    (folder / "secret.key").chmod(0o644)
    (found,) = examined("keys", "--listen", EXPOSED, "--keys", folder)
    assert "Other users can read it (mode 0644)" in found.what
    apply(found, tmp_path)
    assert examined("keys", "--listen", EXPOSED, "--keys", folder) == []


def test_the_keys_of_another_machine(tmp_path):
    make_keys(tmp_path / "keys", {"a": None, "b": None})
    board = tmp_path / "board"
    arguments = ("--listen", EXPOSED, "--keys", board, "--name", "b")
    shutil.copytree(tmp_path / "keys" / "a", board)
    (found,) = examined("keys", *arguments)
    assert found.severity is Severity.ERROR
    assert "another machine" in found.what
    assert found.remedy == f"rsync -a --delete LAUNCHER:keys/b/ {board}/"
    shutil.copytree(tmp_path / "keys" / "b", board, dirs_exist_ok=True)
    (board / "nodes" / "b.pub").unlink()  # as --delete does
    assert examined("keys", *arguments) == []


def test_a_port_that_another_program_has(tmp_path):
    program = "import socket; s = socket.create_server(('127.0.0.1', 0)); print(s.getsockname()[1]"
    with subprocess.Popen(
        [sys.executable, "-c", f"{program}, flush=True); s.accept()"],
        stdout=subprocess.PIPE,
        text=True,
    ) as other:
        assert other.stdout is not None
        port = int(other.stdout.readline())
        arguments = ("--listen", f"tcp://127.0.0.1:{port}", "--data", HERE)
        (found,) = examined("ports", *arguments)
        assert f"process {other.pid}" in found.what
        apply(found, tmp_path)
        other.wait(20)
    assert examined("ports", *arguments) == []


def test_an_address_of_another_machine():
    found = examined("ports", "--listen", "tcp://192.0.2.99:5500", "--insecure")
    assert [each.severity for each in found] == [Severity.ERROR] * 2
    assert found[0].remedy == "node-agent --listen tcp://0.0.0.0:5500"


@contextmanager
def tmpfs(folder: Path, options: str) -> Iterator[None]:
    folder.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", options, "tmpfs", folder], capture_output=True, check=False
    )
    if done.returncode:
        pytest.skip(f"this machine does not let us mount a tmpfs: {done.stderr.decode()}")
    try:
        yield
    finally:
        subprocess.run(["umount", folder], check=True)


@needs_root
def test_a_cache_on_a_read_only_file_system(cache, tmp_path):
    with tmpfs(cache, "ro,size=5g"):
        (found,) = examined("disk", "--cache", cache / "csdf-edge")
        assert (found.severity, "read-only" in found.what) == (Severity.ERROR, True)
        apply(found, tmp_path)
        assert examined("disk", "--cache", cache / "csdf-edge") == []


@needs_root
def test_a_cache_of_another_user(cache, tmp_path):
    cache.mkdir(mode=0o700)
    for folder in (tmp_path, *tmp_path.parents[:-2]):
        folder.chmod(folder.stat().st_mode | 0o011)
    as_nobody = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
    if subprocess.run([*as_nobody, sys.executable, "-c", ""], check=False).returncode:
        pytest.skip("other users cannot run this Python")
    found = doctor("node-agent", "--cache", cache, prefix=as_nobody).only("disk")
    assert found["remedy"] == f"sudo chown -R 65534 {cache}"
    apply(found, tmp_path)
    assert doctor("node-agent", "--cache", cache, prefix=as_nobody).of("disk") == []


@needs_root
def test_a_full_disk(cache):
    with tmpfs(cache, "size=120m,mode=0755"):
        filler = cache / "video.mp4"
        with filler.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, 100 << 20)
        (found,) = examined("disk", "--cache", cache, "--cache-bytes", "50MB")
        assert (found.severity, "full" in found.what) == (Severity.ERROR, True)
        shell = ["sh", "-c", found.remedy]
        largest = subprocess.run(shell, capture_output=True, text=True, check=True).stdout
        assert str(filler) in largest
        filler.unlink()
        assert examined("disk", "--cache", cache, "--cache-bytes", "50MB") == []


@contextmanager
def control_group(controller: str, **files: str) -> Iterator[Path]:
    """A group below this process's one."""
    above = (group_folders(controller, Path("/proc/self")) or [None])[0]
    if above is None or (above / "cgroup.controllers").exists():
        pytest.skip("tests plant limits with version 1 of control groups")
    group = above / f"csdf-doctor-{os.getpid()}"
    try:
        group.mkdir()
    except OSError as error:
        pytest.skip(f"this machine does not let us make control groups: {error}")
    try:
        for name, text in files.items():
            (group / f"{controller}.{name}").write_text(text)
        yield group
    finally:
        group.rmdir()


def entering(group: Path):
    return lambda: (group / "cgroup.procs").write_text("0")


@needs_root
@not_in_qemu
def test_a_memory_limit_that_is_too_small(cache, tmp_path):
    with control_group("memory", limit_in_bytes=str(120 << 20)) as group:
        inside = entering(group)
        (found, *_) = doctor("node-agent", "--cache", cache, enter=inside).of("memory")
        assert (found["severity"], found["where"]) == ("error", str(group))
        apply(found, tmp_path)
        after = doctor("node-agent", "--cache", cache, enter=inside).of("memory", severity="error")
        assert after == []


@needs_root
def test_a_quota_that_stops_the_processor(cache, tmp_path):
    with control_group("cpu", cfs_quota_us="30000", cfs_period_us="100000") as group:
        inside = entering(group)
        found = doctor("node-agent", "--cache", cache, enter=inside).only("processor")
        assert found["where"] == str(group)
        assert "grants 0.3 cores" in found["what"]
        apply(found, tmp_path)
        assert doctor("node-agent", "--cache", cache, enter=inside).of("processor") == []


def test_no_engine(cache, tmp_path):
    (tmp_path / "sitecustomize.py").write_text("import sys; sys.modules['onnxruntime'] = None\n")
    paths = f"{tmp_path}:{Path(__file__).parents[3]}"
    found = doctor("node-agent", "--cache", cache, environment={"PYTHONPATH": paths})
    (missing,) = found.of("engine")
    assert found.code == 1
    assert "it is not installed" in missing["what"]
    assert missing["remedy"].endswith("-m pip install 'csdf-edge[cpu]'")
    assert doctor("node-agent", "--cache", cache).of("engine") == []


def test_an_engine_that_crashes(cache, tmp_path):
    package = tmp_path / "onnxruntime"
    package.mkdir()
    (package / "__init__.py").write_text("import os; os.kill(os.getpid(), 11)\n")
    paths = f"{tmp_path}:{Path(__file__).parents[3]}"
    crashed = doctor("node-agent", "--cache", cache, environment={"PYTHONPATH": paths})
    assert "crashed (SIGSEGV)" in crashed.only("engine")["what"]


@pytest.mark.skipif(shutil.which("faketime") is None, reason="libfaketime is not installed")
def test_a_clock_that_is_years_behind(cache):
    environment = {"NO_FAKE_STAT": "1", "FAKETIME_DONT_FAKE_MONOTONIC": "1"}
    found = doctor(
        "node-agent",
        *("--cache", cache),
        prefix=("faketime", "-f", "-9y"),
        environment=environment,
    ).only("clock")
    assert found["severity"] == "error"
    assert "before this package was installed" in found["what"]
    assert found["remedy"] == "sudo timedatectl set-ntp true"
    assert doctor("node-agent", "--cache", cache).of("clock", severity="error") == []


def test_too_few_file_descriptors(cache):
    found = doctor(
        "node-agent",
        "--cache",
        cache,
        "--connections",
        90000,
        prefix=("prlimit", "--nofile=1024:4096"),
    )
    assert "LimitNOFILE=" in found.only("limits")["what"]


def test_a_port_where_an_agent_listens_is_as_it_should_be(cache):
    with agent("--listen", HERE, "--cache", cache) as control:
        (found,) = examined("ports", "--listen", control, "--data", HERE)
        assert (found.severity, "An agent listens there" in found.what) == (Severity.NOTE, True)
