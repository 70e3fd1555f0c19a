"""Agents that share a cache: others evict, and whoever dies dies, between any two of our steps."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import onnxruntime
import pytest

from csdf_edge.testing import executor_models as models
from nodes.cache.blobs import BlobStore
from nodes.cache.room import Room
from nodes.executors.base import ExecutorError, LoadOptions
from nodes.executors.onnx.runtime import OnnxRuntimeExecutor
from nodes.executors.preparing.entries import PreparedFiles
from nodes.protocol.errors import NodeError
from nodes.protocol.messages import BlobInfo
from tests.nodes.steps import before_step

QUOTA = 10 << 20
OPTIONS = LoadOptions()


def blob_of(content: bytes) -> BlobInfo:
    return BlobInfo(sha256(content).hexdigest(), len(content))


def read(path: Path) -> bytes:
    """As an engine does, whose errors are sentences."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise ExecutorError(str(error)) from error


def deploy(store: BlobStore, files: PreparedFiles, content: bytes) -> None:
    """What an agent does with its cache for one subnet; the engine only copies."""
    blob = blob_of(content)
    store.pin([blob.digest])
    if store.missing([blob.digest]):
        half = len(content) // 2
        if not store.write(blob, 0, content[:half]):
            store.write(blob, half, content[half:])
    graph = store.path(blob.digest)
    store.verify([blob.digest])
    key = f"engine-{blob.digest}-0"
    entry = files.find(key)
    if entry is None:
        with store.room.reserve(1000), files.making(key) as folder:
            (folder / "model").write_bytes(read(graph))
        entry = files.find(key)
    if entry is None or read(entry / "model") != content:
        raise ExecutorError("what was just made cannot be read")


def evict(root: Path, _: bytes) -> None:
    Room(root, QUOTA).evict_to(0)


def start(root: Path, _: bytes) -> None:
    BlobStore(root, 0)


def deploy_too(root: Path, content: bytes) -> None:
    store = BlobStore(root, QUOTA)
    deploy(store, PreparedFiles(store.derived, store.room), content)
    store.release()


@pytest.mark.parametrize("happens", [evict, start, deploy_too])
@pytest.mark.parametrize("is_warm", [False, True], ids=["empty", "warm"])
def test_whatever_another_agent_does_at_any_step_no_deployment_fails(
    tmp_path: Path, happens: Callable[[Path, bytes], None], is_warm: bool
) -> None:
    content = b"a subnet"
    number, goes_on = 0, True
    while goes_on:
        number += 1
        root = tmp_path / str(number)
        store = BlobStore(root, QUOTA)
        files = PreparedFiles(store.derived, store.room)
        if is_warm:
            deploy(store, files, content)
            store.unpin()
        goes_on = before_step(
            number,
            lambda root=root: happens(root, content),
            lambda store=store, files=files: deploy(store, files, content),
        )
        assert store.room.damaged == 0
        store.release()
    assert number > 30


def test_whoever_deletes_everything_at_any_step_costs_a_sentence_at_most(tmp_path: Path) -> None:
    content = b"a subnet"
    number, goes_on, failed = 0, True, 0
    while goes_on:
        number += 1
        root = tmp_path / str(number)
        store = BlobStore(root, QUOTA)
        files = PreparedFiles(store.derived, store.room)
        deploy(store, files, content)

        def delete(root: Path = root) -> None:
            for path in root.rglob("*"):
                if path.is_file():
                    path.unlink()

        try:
            goes_on = before_step(
                number,
                delete,
                lambda store=store, files=files: deploy(store, files, content),
            )
        except NodeError:
            failed += 1
        store.release()
    assert failed < number


@pytest.mark.slow
def test_a_deployment_with_the_real_engine_succeeds_whenever_another_evicts(
    tmp_path: Path,
) -> None:
    content = models.residual().SerializeToString()
    number, goes_on = 0, True
    while goes_on:
        number += 17
        store = BlobStore(tmp_path / str(number), QUOTA)
        other = Room(tmp_path / str(number), QUOTA)
        engine = OnnxRuntimeExecutor(store.derived, room=store.room)
        if engine.describe() != f"ONNX Runtime {onnxruntime.__version__} (CPU)":
            pytest.skip("this machine computes on a GPU")

        def load(store: BlobStore = store, engine: OnnxRuntimeExecutor = engine) -> None:
            blob = blob_of(content)
            store.pin([blob.digest])
            store.write(blob, 0, content)
            path = store.path(blob.digest)
            engine.prepare([path], OPTIONS)
            engine.load(path, OPTIONS).close()

        goes_on = before_step(number, lambda other=other: other.evict_to(0), load)
        engine.close()
        store.release()
    assert number > 70


DIES_AT_EACH_STEP = """
import os, signal, sys
from pathlib import Path
from nodes.cache.blobs import BlobStore
from nodes.cache.room import Room
from nodes.executors.preparing.entries import PreparedFiles
from nodes.executors.preparing.process import _reserved
from tests.nodes.steps import before_step
from tests.nodes.test_shared_cache import QUOTA, blob_of, deploy

def live(root, number):
    store = BlobStore(root, QUOTA)
    files = PreparedFiles(store.derived, store.room)
    deploy(store, files, b"former")
    store.unpin()
    def all_of_it():
        deploy(store, files, b"a subnet")
        store.release()
        store.room.evict_to(0)
    before_step(number, lambda: os.kill(os.getpid(), signal.SIGKILL), all_of_it)

number, killed = 0, True
while killed:
    number += 1
    root = Path(sys.argv[1]) / str(number)
    child = os.fork()
    if child == 0:
        live(root, number)
        os._exit(0)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    killed = status == -signal.SIGKILL
    assert killed or status == 0, (number, status)
    after = BlobStore(root, QUOTA)
    left = [str(path) for path in root.rglob("*") if "partial" in str(path.relative_to(root)) and
            path != root / "partial"] + list((root / "pins").iterdir())
    assert not left, (number, left)
    digests = [path.name for path in after.room.blobs.iterdir()]
    entries = [path.name for path in after.derived.iterdir()]
    assert after.missing(digests) == (), number
    files = PreparedFiles(after.derived)
    assert all(files.find(name) for name in entries), number
    after.room.evict_to(0)
print(number)
"""


@pytest.mark.slow
def test_whoever_is_killed_at_any_step_leaves_nothing_half_written(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", DIES_AT_EACH_STEP, str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert int(ended.stdout) > 60


def test_a_living_agent_of_another_pid_namespace_keeps_its_pins_after_a_jump_of_the_clock(
    tmp_path: Path,
) -> None:
    command = [str(shutil.which("unshare")), "--pid", "--fork", "--kill-child", "--mount-proc"]
    if subprocess.run([*command, "true"], capture_output=True, check=False).returncode:
        pytest.skip("this user may not make PID namespaces")
    digest = blob_of(b"theirs").digest
    theirs = (
        "import sys; from pathlib import Path; from nodes.cache.blobs import BlobStore\n"
        f"store = BlobStore(Path({str(tmp_path)!r}), {QUOTA})\n"
        f"from tests.nodes.test_shared_cache import blob_of; b = blob_of(b'theirs')\n"
        "store.pin([b.digest]); store.write(b, 0, b'theirs'); print('ready', flush=True)\n"
        "sys.stdin.read()"
    )
    with subprocess.Popen(
        [*command, sys.executable, "-c", theirs], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        for path in (tmp_path / "pins").iterdir():
            os.utime(path, (1, 1))
        ours = BlobStore(tmp_path, QUOTA)
        ours.room.evict_to(0)
        assert ours.missing([digest]) == ()
        process.communicate(b"")
    ours.room.clear_leftovers()
    ours.room.evict_to(0)
    assert ours.missing([digest]) == (digest,)


def test_nothing_in_a_cache_can_be_read_by_others(tmp_path: Path) -> None:
    former = os.umask(0)
    try:
        store = BlobStore(tmp_path / "cache", QUOTA)
        store.pin([])
        deploy(store, PreparedFiles(store.derived, store.room), b"a subnet")
        modes = {path: path.stat().st_mode & 0o077 for path in store.room.root.rglob("*")}
    finally:
        os.umask(former)
    assert store.room.root.stat().st_mode & 0o077 == 0
    assert modes
    assert not any(modes.values()), modes


def test_folders_of_a_former_version_are_closed_to_others(tmp_path: Path) -> None:
    BlobStore(tmp_path, QUOTA).derived.chmod(0o755)
    assert BlobStore(tmp_path, QUOTA).derived.stat().st_mode & 0o777 == 0o700


def test_blobs_that_other_agents_use_are_counted_once_and_while_they_are_pinned(
    tmp_path: Path,
) -> None:
    stores = [BlobStore(tmp_path, QUOTA) for _ in range(3)]
    contents = [b"a" * 1000, b"b" * 200, b"c" * 30]
    digests = []
    for content in contents:
        blob = blob_of(content)
        assert stores[0].write(blob, 0, content)
        digests.append(blob.digest)
    stores[0].pin(digests[:2])
    stores[1].pin([digests[1], digests[2], "0" * 64])
    assert [store.pinned_by_others_bytes() for store in stores] == [230, 1200, 1230]
    stores[1].unpin()
    assert [store.pinned_by_others_bytes() for store in stores] == [0, 1200, 1200]
