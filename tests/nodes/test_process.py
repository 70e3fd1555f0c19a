"""A real agent process answers, survives whatever it receives, and stops."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from contextlib import suppress

import msgpack
import pytest

from nodes.cli import VERSION, main
from nodes.protocol.codec import MAX_MESSAGE_BYTES, encode
from nodes.protocol.messages import (
    PROTOCOL,
    Attach,
    BlobInfo,
    Bye,
    Credit,
    Failed,
    Hello,
    Missing,
    Ping,
    Pong,
    Put,
    Query,
    Refused,
    Shutdown,
    TensorHeader,
    Welcome,
)
from tests.nodes.speaker import WAIT_S, AgentProcess, refusal_of

DIGEST = "ab" * 32


@pytest.fixture(scope="module")
def agent(tmp_path_factory):
    """One agent for all tests that it has to survive."""
    agent = AgentProcess(tmp_path_factory.mktemp("cache"), "--name", "n0")
    yield agent
    agent.end()


@pytest.fixture
def launcher(agent, dial):
    """A speaker with a session, which it ends."""
    speaker = dial(agent.control)
    speaker.open_session()
    yield speaker
    speaker.say(Bye())
    assert isinstance(speaker.ask(Ping()), Refused)


# ---------------------------------------------------------------- a session


def test_says_who_it_is(agent, dial):
    speaker = dial(agent.control)
    welcome = speaker.ask(Hello(PROTOCOL, "s", 5.0))
    assert isinstance(welcome, Welcome)
    assert (welcome.protocol, welcome.name, welcome.version) == (PROTOCOL, "n0", VERSION)
    assert welcome.data_address == agent.data
    assert "ONNX Runtime" in welcome.engine
    assert welcome.cores >= 1
    total_bytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert welcome.available_bytes is not None
    assert 0 < welcome.available_bytes <= total_bytes
    speaker.say(Bye())


def test_answers_a_session(launcher):
    assert launcher.ask(Ping()) == Pong()
    assert launcher.ask(Query((DIGEST,))) == Missing((DIGEST,))
    assert launcher.stats().firings == ()


def test_has_one_session_at_a_time(agent, launcher, dial):
    other = dial(agent.control)
    answer = other.ask(Hello(PROTOCOL, "other", 5.0))
    assert isinstance(answer, Refused)
    assert "another launcher" in answer.reason
    assert launcher.ask(Ping()) == Pong()


def test_refuses_another_protocol_version(agent, dial):
    speaker = dial(agent.control)
    answer = speaker.ask(Hello(99, "s", 5.0))
    assert isinstance(answer, Refused)
    assert answer.protocol == PROTOCOL
    assert "protocol" in answer.reason
    later = {**msgpack.unpackb(encode(Hello(PROTOCOL, "s", 5.0))), "v": PROTOCOL + 1, "new": True}
    speaker.say_raw(msgpack.packb(later))
    assert isinstance(speaker.hear(), Refused)


def test_refuses_a_blob_whose_hash_is_wrong(launcher):
    launcher.say(Put(BlobInfo(DIGEST, 3), 0, b"abc"))
    answer = launcher.hear()
    assert isinstance(answer, Failed)
    assert DIGEST in answer.reason


# ---------------------------------------------------------------- whatever comes


@pytest.mark.parametrize(
    "parts",
    [
        (b"\xc1\xff garbage",),
        (b"",),
        (msgpack.packb({"v": 1, "t": "Rm", "path": "/"}),),
        (encode(Ping()), b"and more"),
        (b"\x93" * 5000,),
        (encode(Attach(1, "n1")),),
        (encode(Pong()),),
        (b"\x00" * (MAX_MESSAGE_BYTES + 1),),
        (b"x",) * 50,
    ],
    ids=["garbage", "empty", "unknown word", "two parts", "nested", "data word", "agent's word",
         "too long", "many parts"],
)  # fmt: skip
def test_counts_and_cuts_off_who_breaks_the_protocol(agent, launcher, dial, parts):
    before = launcher.stats().bad_messages
    stranger = dial(agent.control)
    stranger.say_raw(*parts)
    stranger.await_cut_off()
    assert launcher.stats().bad_messages == before + 1


@pytest.mark.parametrize(
    "parts",
    [
        (b"garbage",),
        (encode(Ping()),),
        (encode(Credit(1, 1, 1)), b"payload"),
        (encode(TensorHeader(1, 1, 0, "float32", (1,))), b"1234", b"more"),
    ],
    ids=["garbage", "control word", "credit with payload", "three parts"],
)
def test_counts_and_cuts_off_on_the_data_port_too(agent, launcher, dial, parts):
    before = launcher.stats().bad_messages
    stranger = dial(agent.data)
    stranger.say_raw(*parts)
    stranger.await_cut_off()
    assert launcher.stats().bad_messages == before + 1


def test_ignores_and_counts_data_of_another_epoch(agent, launcher, dial):
    before = launcher.stats()
    stranger = dial(agent.data)
    stranger.say(Attach(5, "n9"), Credit(5, 0, 1))
    stranger.say_raw(encode(TensorHeader(5, 0, 0, "float32", (1,))), b"1234")
    stranger.say_raw(b"to know that all of it has come")
    stranger.await_cut_off()
    after = launcher.stats()
    assert after.stale_messages == before.stale_messages + 3
    assert after.bad_messages == before.bad_messages + 1


@pytest.mark.parametrize("port", ["control", "data"])
@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        bytes(range(256)) * 64,
        b"\xff" + bytes(8) + b"\x7f" + b"\xee" * 99,
    ],
    ids=["http", "bytes", "bad greeting"],
)
def test_survives_what_is_not_zeromq(agent, launcher, stack, port, data):
    host, _, number = getattr(agent, port).removeprefix("tcp://").rpartition(":")
    connection = stack.enter_context(socket.create_connection((host, int(number)), WAIT_S))
    with suppress(OSError):  # it may hang up before all of it has come
        connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)
        while connection.recv(4096):
            pass
    assert launcher.ask(Ping()) == Pong()


def test_survives_a_message_far_too_long(agent, launcher, dial):
    stranger = dial(agent.control)
    stranger.say_raw(b"\x00" * (5 * MAX_MESSAGE_BYTES))
    stranger.await_cut_off()
    assert launcher.ask(Ping()) == Pong()


def test_a_launcher_that_breaks_the_protocol_loses_its_session(agent, dial):
    first = dial(agent.control)
    first.open_session("first")
    first.say_raw(b"\xc1")
    first.await_cut_off()
    second = dial(agent.control)
    second.open_session("second")
    second.say(Bye())


# ---------------------------------------------------------------- its end


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_stops_on_a_signal(start, number):
    agent = start(parent=False)
    agent.process.send_signal(number)
    report = agent.report()
    assert report["why"] == signal.Signals(number).name
    assert report["rss_bytes"] > 0


def test_exits_with_its_parent(start):
    agent = start()
    agent.process.stdin.close()
    agent.process.stdin = None
    assert agent.report()["why"] == "its parent process has ended"


def test_obeys_shutdown_if_a_launcher_started_it(start, dial):
    agent = start()
    launcher = dial(agent.control)
    launcher.open_session()
    launcher.say(Shutdown())
    assert "Shutdown" in agent.report()["why"]


def test_a_daemon_refuses_shutdown(start, dial):
    agent = start(parent=False)
    launcher = dial(agent.control)
    launcher.open_session()
    assert isinstance(launcher.ask(Shutdown()), Refused)
    assert launcher.ask(Ping()) == Pong()


# ---------------------------------------------------------------- its arguments


def test_an_address_in_use_is_reported_in_a_sentence(agent, tmp_path):
    said = refusal_of(tmp_path, "--listen", agent.control)
    assert agent.control in said
    assert "in use" in said


def test_a_socket_file_in_use_is_not_taken_over(start, dial, tmp_path):
    address = f"ipc://{tmp_path}/agent"
    agent = start("--listen", address)
    assert address in refusal_of(tmp_path / "cache", "--listen", address)
    assert (agent.control, agent.data) == (address, f"{address}.data")
    dial(address).open_session()


def test_other_machines_are_let_in_without_keys_if_that_is_spelled_out(start, dial):
    agent = start("--listen", "tcp://0.0.0.0:0", "--insecure")
    dial(agent.control.replace("0.0.0.0", "127.0.0.1")).open_session()


def test_usual_keys_are_taken_where_other_machines_can_come(start, dial, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert main(["keygen"]) == 0
    agent = start("--listen", "tcp://0.0.0.0:0")
    dial(agent.control.replace("0.0.0.0", "127.0.0.1")).await_cut_off()


# ---------------------------------------------------------------- what it costs


@pytest.mark.slow
def test_is_small_and_quiet_while_idle(start, dial):
    agent = start("--cpus", str(min(os.sched_getaffinity(0))))
    launcher = dial(agent.control)
    welcome = launcher.open_session()
    assert launcher.stats().rss_bytes <= 60e6
    assert welcome.rss_bytes <= 60e6
    assert welcome.cores == 1
    assert "executor" in agent.threads()
    launcher.say(Bye())
    assert isinstance(launcher.ask(Ping()), Refused)
    launcher.close()
    before_s = agent.cpu_s()
    with pytest.raises(subprocess.TimeoutExpired):
        agent.process.wait(2.0)
    assert agent.cpu_s() - before_s < 0.02  # 1 % of a core
