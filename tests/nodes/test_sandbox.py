"""A started agent can open its own files and no others."""

from __future__ import annotations

import hashlib
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import onnx
import pytest
from onnx import helper

from nodes.protocol.messages import (
    HOST,
    BlobInfo,
    ChannelSpec,
    Deploy,
    Deployment,
    Failed,
    PhaseSpec,
    Put,
    Stop,
    Stopped,
    Stored,
)
from tests.nodes.deploying import Launcher
from tests.nodes.speaker import WAIT_S, AgentProcess


def outcome(*arguments: object, script: str) -> list[str]:
    """What its own process says, since none can take a restriction back."""
    done = subprocess.run(
        [sys.executable, "-c", script, *map(str, arguments)],
        check=True, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    return done.stdout.splitlines()


def is_offered() -> bool:
    return outcome(script="from nodes.host.sandbox import restrict; print(restrict([]))") == [
        "None"
    ]


pytestmark = [
    pytest.mark.skipif(not is_offered(), reason="this kernel offers no Landlock"),
]

TRYING = """
import errno, os, socket, sys
from pathlib import Path

def attempt(what, action):
    try:
        action()
    except OSError as error:
        print(what, "refused" if error.errno in (errno.EACCES, errno.EXDEV) else error)
    else:
        print(what, "done")
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    for name in ("cache", "keys", "models", "sockets", "elsewhere"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text("x")
    (tmp_path / "elsewhere" / "a.pub").write_text("key")
    (tmp_path / "keys" / "a.pub").symlink_to("../elsewhere/a.pub")
    (tmp_path / "cache" / "way out").symlink_to("../elsewhere")
    return tmp_path


AGENT = (
    TRYING
    + """
import numpy, onnxruntime, threading
from nodes.host.sandbox import sandbox_agent
place = Path(sys.argv[1])
keys = place / "keys"
assert sandbox_agent(place / "cache", keys, [f"ipc://{place}/sockets/0", "tcp://h:1"]) is None

def tries():
    for path in ("elsewhere/file", "models/file", "cache/way out/file", "cache/../elsewhere/file",
                 "cache/file", "keys/file", "keys/a.pub", "sockets/file"):
        attempt(f"read {path}", (place / path).read_bytes)
    for path in ("/etc/passwd", "/etc/shadow", "/dev/zero", "/dev/null", "/proc/self/status",
                 "/etc/hosts", os.path.expanduser("~/.bashrc"), "/root", "/tmp", "/", "/var"):
        if os.path.exists(path):
            read = os.listdir if os.path.isdir(path) else lambda p: open(p, "rb").read(1)
            attempt(f"read {path}", lambda: read(path))
    for path in ("elsewhere/new", "keys/new", "keys/file", "sockets/new", "models/new"):
        attempt(f"write {path}", lambda: (place / path).write_text("y"))
    for path in ("/usr/new", "/proc/self/comm", "/dev/shm/new"):
        attempt(f"write {path}", lambda: Path(path).write_text("y"))
    (place / "cache/a/b").mkdir(parents=True)
    (place / "cache/a/b/c").write_text("y")
    (place / "cache/a/b/c").rename(place / "cache/c")
    (place / "cache/c").write_text("z")
    (place / "cache/c").unlink()
    (place / "cache/a/b").rmdir()
    attempt("move", lambda: (place / "cache/file").rename(place / "elsewhere/moved"))
    attempt("link", lambda: os.link(place / "elsewhere/file", place / "cache/linked"))
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(place / "sockets/0"))
        listener.listen()
        with socket.socket(socket.AF_UNIX) as dialler:
            dialler.connect(str(place / "sockets/0"))
    (place / "sockets/0").unlink()

thread = threading.Thread(target=tries)
thread.start()
thread.join()
print("over")
"""
)


def test_an_agent_can_open_its_own_places_and_nothing_else(place: Path) -> None:
    said = outcome(place, script=AGENT)
    assert said[-1] == "over"
    done = {line.removesuffix(" done") for line in said if line.endswith(" done")}
    assert done == {
        "read cache/file", "read keys/file", "read keys/a.pub", "read /dev/null",
        "read /proc/self/status", "read /etc/hosts",
    }  # fmt: skip
    refused = {line.removesuffix(" refused") for line in said if line.endswith(" refused")}
    assert {"read elsewhere/file", "read cache/way out/file", "read /etc/passwd", "read /",
            "write keys/file", "write /proc/self/comm", "link"} <= refused  # fmt: skip


def test_what_an_agent_starts_is_shut_in_as_well(place: Path) -> None:
    script = """
import subprocess, sys
from pathlib import Path
from nodes.host.sandbox import sandbox_agent
assert sandbox_agent(Path(sys.argv[1], "cache"), None, []) is None
reading = "import numpy, nodes.cli, sys; open(sys.argv[1])"
for file in ("cache/file", "elsewhere/file"):
    path = str(Path(sys.argv[1], file))
    done = subprocess.run([sys.executable, "-c", reading, path], capture_output=True, text=True)
    print(done.stderr.splitlines()[-1].partition(":")[0] if done.returncode else "read")
"""
    assert outcome(place, script=script) == ["read", "PermissionError"]


def test_an_agent_can_run_itself_again(place: Path) -> None:
    """As it does when an engine's call never returns; wherever its script lies."""
    script = place / "elsewhere" / "node-agent"
    script.write_text("""
import sys
from pathlib import Path
from nodes.host.process import restart_in_place
from nodes.host.sandbox import sandbox_agent
print(sandbox_agent(Path(sys.argv[1]), None, []), flush=True)
if len(sys.argv) < 4:
    restart_in_place(["again"])
""")
    done = subprocess.run(
        [sys.executable, str(script), str(place / "cache")],
        check=True, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.stdout == "None\nNone\nNone\n"


def test_who_optimises_models_cannot_read_keys(place: Path) -> None:
    script = (
        TRYING
        + """
from nodes.host.sandbox import sandbox_optimiser
place = Path(sys.argv[1])
assert sandbox_optimiser(place / "cache", [place / "models"]) is None
for path in ("models/file", "cache/file", "keys/file", "elsewhere/file"):
    attempt(path, (place / path).read_bytes)
for path in ("models/new", "cache/new"):
    attempt(path, (place / path).touch)
"""
    )
    assert outcome(place, script=script) == [
        "models/file done", "cache/file done", "keys/file refused", "elsewhere/file refused",
        "models/new refused", "cache/new done",
    ]  # fmt: skip


def test_rules_for_what_is_not_there_are_passed_over(place: Path) -> None:
    script = """
import sys
from pathlib import Path
from nodes.host.sandbox import KEEP, READ, WRITE, AllowedPath, restrict
place = Path(sys.argv[1])
rules = (place / "absent", KEEP), (place, READ), (Path("/dev/null"), WRITE)
print(restrict([AllowedPath(*rule) for rule in rules]))
print(*(path.name for path in (place / "models").iterdir()))
"""
    assert outcome(place, script=script) == ["None", "file"]


# ---------------------------------------------------------------------- a real agent


def test_an_agent_has_given_up_new_privileges_in_all_its_threads(
    start: Callable[..., AgentProcess],
) -> None:
    """The kernel tells of no restriction; it asks for this first."""
    for task in start().threads().values():
        assert "NoNewPrivs:\t1" in (task / "status").read_text()


def test_agents_that_share_a_machine_still_reach_each_others_sockets(
    tmp_path: Path, start: Callable[..., AgentProcess], dial: Callable[..., Launcher]
) -> None:
    (tmp_path / "s").mkdir()
    agent = start("--listen", f"ipc://{tmp_path}/s/0")
    dial(agent.control).open_session()
    with socket.socket(socket.AF_UNIX) as probe:
        probe.connect(agent.data.removeprefix("ipc://"))


def test_where_the_kernel_offers_nothing_an_agent_says_so_and_continues(
    tmp_path: Path,
) -> None:
    """As under Docker before 2022: a filter of system calls answers for the kernel."""
    script = """
import sys
import nodes.host.sandbox
nodes.host.sandbox._call = lambda *_: -38
import nodes.cli
sys.exit(nodes.cli.main())
"""
    process = subprocess.Popen(
        [sys.executable, "-c", script, "--cache", str(tmp_path / "cache"), "--log-level", "info",
         "--listen", "tcp://127.0.0.1:0", "--exit-with-parent"],
        stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    _, said = process.communicate(timeout=WAIT_S)
    assert process.returncode == 0
    assert "can open every file of its user: the kernel offers no Landlock (ENOSYS)" in said


def test_a_model_that_names_another_file_is_refused_and_costs_the_agent_nothing(
    tmp_path: Path, start: Callable[..., AgentProcess], dial: Callable[..., Launcher]
) -> None:
    """The attack: a function's default value lies in a file of the agent's user."""
    (tmp_path / "secret").write_bytes(b"of the user")
    default = onnx.AttributeProto(name="v", type=onnx.AttributeProto.TENSOR)
    default.t.CopyFrom(onnx.TensorProto(name="t", data_type=2, dims=[11], data_location=1))
    default.t.external_data.add(key="location", value="../../secret")
    taken = helper.make_node("Constant", [], ["o"])
    taken.attribute.add(name="value", ref_attr_name="v", type=onnx.AttributeProto.TENSOR)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("f", 1)]
    function = helper.make_function(
        "f", "F", [], ["o"], [taken], opsets[:1], attribute_protos=[default]
    )
    nodes = [
        helper.make_node("F", [], ["y"], "call", domain="f"),
        helper.make_node("Identity", ["x"], ["z"]),
    ]
    values = [helper.make_tensor_value_info(n, 2, [11]) for n in "xyz"]
    graph = helper.make_graph(nodes, "attack", values[:1], values[1:])
    content = helper.make_model(
        graph, opset_imports=opsets, ir_version=9, functions=[function]
    ).SerializeToString()
    blob = BlobInfo(hashlib.sha256(content).hexdigest(), len(content))
    phase = PhaseSpec("attack", blob, None, ("x",), ("y",))
    channels = (
        ChannelSpec(0, "x", "uint8", (11,), HOST, None, "n0", (0,), 2),
        ChannelSpec(1, "y", "uint8", (11,), "n0", 0, HOST, (), 2),
    )
    launcher = dial(start("--name", "n0").control)
    launcher.open_session()
    assert launcher.ask(Put(blob, 0, content)) == Stored(blob.digest, 0, complete=True)
    launcher.say(Deploy(Deployment(1, "n0", "strict", (phase,), channels, ())))
    failed = launcher.hear(Failed)
    assert isinstance(failed, Failed)
    assert "subnet attack" in failed.reason
    assert "is refused" in failed.reason
    launcher.say(Stop(1))
    assert isinstance(launcher.hear(Stopped), Stopped)
