"""The service's commands: what fails changes nothing, and no end loses what was applied."""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.processes import agents_of
from benchmarks.service.server import (
    LAUNCH,
    Up,
    images,
    whole,
    write_cluster,
    write_version,
)

grpcclient = pytest.importorskip("tritonclient.grpc", reason="needs tritonclient[grpc,http]")

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("service")
    for version in (1, 2):
        write_version(folder, version)
    write_cluster(folder, ("digits", 1), count=1)
    return folder


@pytest.fixture(scope="module")
def up(folder: Path) -> Iterator[Up]:
    up = Up(folder, folder / "cluster.yaml")
    up.read_until("version 1 of digits serves")
    yield up
    assert up.end() == 0


def answered_by(up: Up) -> int:
    """The version that answers, whose results these are."""
    with grpcclient.InferenceServerClient(up.grpc) as client:
        given = grpcclient.InferInput("image", [1, 1, 8, 8], "FP32")
        given.set_data_from_numpy(images()[0])
        answer = client.infer("digits", [given])
    version = int(answer.get_response().model_version)
    wanted = whole(up.folder / f"digits{version}.onnx", 1)[0]
    assert abs(answer.as_numpy("probabilities") - wanted).max() < 1e-4
    return version


def asked(up: Up, path: str, token: str | None, data: bytes | None = None) -> int:
    """The status of the answer of the service's own API."""
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    request = urllib.request.Request(f"http://{up.http}/csdf-edge/v1/{path}", data, headers)
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def test_a_version_that_cannot_be_planned_leaves_the_present_one(up: Up) -> None:
    before = up.command("status")[1]["generation"]
    limited = [{"name": "n0", "memory": "1MB"}]
    cluster = write_cluster(up.folder, ("digits", 2), nodes=limited)
    code, answer = up.command("apply", str(cluster))
    assert code == 1
    assert "version 2 has failed" in answer["error"]
    assert "version 1 still serves" in answer["error"]
    code, status = up.command("status")
    assert (code, status["state"]) == (3, "degraded")
    assert answered_by(up) == 1
    code, answer = up.command("rollback")
    assert (code, answer["generation"]) == (0, before + 2)
    assert up.command("status")[0] == 0


def test_who_may_infer_may_not_change_the_service(tmp_path: Path) -> None:
    clients = "a-token-of-thirty-characters-ok"
    write_version(tmp_path, 1)
    serve = {"http": "127.0.0.1:0", "grpc": "127.0.0.1:0", "token": clients}
    up = Up(tmp_path, write_cluster(tmp_path, ("digits", 1), count=1, serve=serve))
    up.read_until("version 1 of digits serves")
    control = json.loads((tmp_path / "state" / "control.json").read_text())
    path = json.dumps({"path": str(tmp_path / "cluster.yaml")}).encode()
    for command, body in (("apply", path), ("rollback", b"{}"), ("restart/n0", b""), ("down", b"")):
        assert asked(up, command, clients, body) == 401, command
    assert asked(up, "status", clients) == 200, "whoever may infer may look"
    assert asked(up, "status", None) == 401
    assert asked(up, "apply", control["token"], path) == 200
    assert up.command("status")[1]["state"] == "ok"
    assert up.end() == 0


def test_a_pipe_in_a_files_place_is_refused_and_holds_up_nobody(up: Up) -> None:
    before = up.command("status")[1]["generation"]
    (up.folder / "pipes").mkdir()
    pipe = up.folder / "pipes" / "pipe"
    os.mkfifo(pipe)
    served = {"http": "127.0.0.1:0", "tls_certificate": str(pipe), "tls_key": str(pipe)}
    for keys in ({"profile": str(pipe)}, {"serve": served}, {"keys": str(pipe)}):
        file = write_cluster(up.folder, ("digits", 1), count=1, **keys)
        named = file.rename(up.folder / "pipes" / "cluster.yaml")
        code, answer = up.command("apply", str(named))
        assert (code, "pipe" in answer["error"]) == (2, True), (keys, answer)
    model = write_cluster(up.folder, ("digits", 1), count=1)
    model.write_text(model.read_text().replace("digits1.onnx", str(pipe)))
    for path, times in ((pipe, 8), (Path("/dev/zero"), 1), (Path("/dev/tty"), 1), (model, 8)):
        for _ in range(times):
            code, answer = up.command("apply", str(path))
            assert code == 2, answer
            assert "regular" in answer["error"] or "no such" in answer["error"].lower(), answer
    assert up.command("status")[1]["generation"] == before
    assert answered_by(up) == 1


def test_the_control_api_lets_operators_in_and_nobody_else(up: Up) -> None:
    control = up.folder / "state" / "control.json"
    assert stat.S_IMODE(control.stat().st_mode) == 0o600
    token = json.loads(control.read_text())["token"]
    assert asked(up, "status", token) == 200
    assert asked(up, "down", None, b"{}") == 401
    assert asked(up, "down", "another-token-of-some-length", b"{}") == 401
    assert asked(up, "apply", token, b"{") == 400
    assert asked(up, "apply", token, b'{"path": "relative"}') == 400
    assert asked(up, "apply", token, b'{"path": "/\\u0000"}') == 400
    assert asked(up, "apply", token, b'{"path": "/\\ud800"}') == 400
    assert asked(up, "apply", token, bytes(2 << 20)) == 413
    present = up.command("status")[1]["generation"]
    assert asked(up, "rollback", token, f'{{"too": {present}}}'.encode()) == 400
    assert asked(up, "rollback", token, f'{{"to": {present}, "allow_gap": "no"}}'.encode()) == 400
    assert asked(up, "rollback", token, f'{{"to": {present}, "allow_gap": true}}'.encode()) == 200
    assert up.command("status")[1]["generation"] == present
    assert asked(up, "nothing", token) == 404
    assert asked(up, "status", token) == 200


def test_where_an_agent_has_room_for_one_version_a_gap_must_be_allowed(tmp_path: Path) -> None:
    for version in (1, 2):
        write_version(tmp_path, version)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{probe.getsockname()[1]}"
    nodes = [{"name": "board", "address": address}]
    agent = subprocess.Popen(
        [sys.executable, "-m", "nodes.cli", "--listen", address, "--exit-with-parent"],
        stdin=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    up = Up(tmp_path, write_cluster(tmp_path, ("digits", 1), nodes=nodes))
    up.read_until("version 1 of digits serves")
    cluster = str(write_cluster(tmp_path, ("digits", 2), nodes=nodes))
    code, answer = up.command("apply", cluster)
    assert code == 1
    assert "another deployment of this launcher is using it" in answer["error"]
    assert "process" not in answer["error"], "it is the service itself"
    assert "slots: 2" in answer["error"]
    assert "version 1 still serves" in answer["error"]
    assert "--allow-gap" in answer["error"]
    assert answered_by(up) == 1
    assert up.command("apply", cluster, "--allow-gap")[0] == 0
    assert answered_by(up) == 2
    code, answer = up.command("rollback")
    assert code == 1
    assert (answer["changes"], answered_by(up)) == (["digits: version 1 replaces 2"], 2)
    code, answer = up.command("rollback", "--allow-gap")
    assert (code, answer["changes"]) == (0, ["digits: version 1 replaces 2"]), answer
    assert answered_by(up) == 1
    assert up.command("rollback", "--allow-gap")[0] == 0
    assert answered_by(up) == 2, "and back again, once that has served"
    code, answer = up.command("restart", "shelf")
    assert (code, answer["error"]) == (2, "there is no node 'shelf'; there are board")
    code, answer = up.command("restart", "board")
    assert code == 2
    assert "has its own agent at tcp://" in answer["error"]
    assert "restart it on its machine with `sudo systemctl restart node-agent`" in answer["error"]
    assert up.end() == 0
    agent.communicate()


def test_who_applies_what_another_replaces_at_once_is_not_told_that_it_serves(
    tmp_path: Path,
) -> None:
    for version in (1, 2):
        write_version(tmp_path, version)
    up = Up(tmp_path, write_cluster(tmp_path, ("digits", 1), count=1))
    up.read_until("version 1 of digits serves")
    first = (tmp_path / "cluster.yaml").rename(tmp_path / "first.yaml")
    second = write_cluster(tmp_path, ("digits", 2), count=1)
    applying = subprocess.Popen(
        [*LAUNCH, "apply", str(second), "--state", str(tmp_path / "state"), "--json"],
        stdout=subprocess.PIPE,
    )
    up.read_until("version 2 of digits is being loaded")
    assert up.command("apply", str(first))[0] == 0
    answer = json.loads(applying.communicate(timeout=60)[0])
    assert (applying.returncode, answer["generation"]) == (1, 2)
    assert "another command replaced it by generation 3 (applied)" in answer["error"]
    assert answered_by(up) == 1
    assert up.end() == 0


def test_after_a_sudden_end_what_was_applied_last_continues(folder: Path, tmp_path: Path) -> None:
    for version in (1, 2):
        write_version(tmp_path, version)
    up = Up(tmp_path, write_cluster(tmp_path, ("digits", 1), count=1))
    up.read_until("version 1 of digits serves")
    assert up.command("apply", str(write_cluster(tmp_path, ("digits", 2), count=1)))[0] == 0
    assert answered_by(up) == 2
    up.kill()
    (tmp_path / "cluster.yaml").write_text("half a fi")
    assert up.command("status")[0] == 1
    again = Up(tmp_path)
    again.read_until("version 2 of digits serves")
    assert answered_by(again) == 2
    (tmp_path / "digits1.onnx").unlink()  # the state has a copy
    assert again.command("rollback")[0] == 0
    write_version(tmp_path, 1)
    assert answered_by(again) == 1
    code, answer = again.command("down")
    assert (code, answer["state"]) == (0, "ended")
    assert again.end_of_output() == 0
    assert again.command("status")[1]["state"] == "not running"


def test_systemd_hears_that_it_is_ready_and_alive_and_sighup_applies_the_file(
    tmp_path: Path,
) -> None:
    write_version(tmp_path, 1)
    write_version(tmp_path, 2)
    heard = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    heard.bind(str(tmp_path / "notify"))
    heard.settimeout(60)
    cluster = write_cluster(tmp_path, ("digits", 1), count=1)
    up = Up(tmp_path, cluster, {"NOTIFY_SOCKET": heard.getsockname(), "WATCHDOG_USEC": "1000000"})

    def hear(text: str) -> None:
        while text not in heard.recv(4096).decode():
            pass

    hear("READY=1")
    hear("STATUS=ok, generation 1: digits 1")
    for _ in range(4):
        hear("WATCHDOG=1")
    write_cluster(tmp_path, ("digits", 2), count=1)
    os.kill(up.process.pid, signal.SIGHUP)
    hear("STATUS=ok, generation 2: digits 2")
    os.kill(up.process.pid, signal.SIGTERM)
    hear("STOPPING=1")
    assert up.end_of_output() == 0
    heard.close()


def test_its_log_can_be_json_that_names_runs_and_nodes(tmp_path: Path) -> None:
    write_version(tmp_path, 1)
    cluster = write_cluster(tmp_path, ("digits", 1), count=2)
    state = tmp_path / "state"
    service = subprocess.Popen(
        [*LAUNCH, "up", str(cluster), "--state", str(state), "--log-format", "json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert service.stderr is not None
    lines = map(json.loads, service.stderr)
    next(line for line in lines if line["message"] == "version 1 of digits serves")
    os.kill(agents_of(service.pid)[1], signal.SIGKILL)
    lost = next(line for line in lines if "was lost" in line["message"])
    assert lost["level"] == "warning"
    assert lost["node"] in ("n0", "n1")
    if "continues without it" not in lost["message"]:  # a busy machine may have left it no layers
        again = next(line for line in lines if "streaming again" in line["message"])
        assert again["run"] == lost["run"]
    service.terminate()
    assert {line["level"] for line in lines} <= {"info", "warning"}
    assert (service.wait(), service.communicate()[0]) == (0, "")
