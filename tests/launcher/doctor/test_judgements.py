"""What is found in planted readings of boards, and of the way to them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from launcher.config.access import Access, barred
from launcher.config.node import NodeConfig
from launcher.core.clocks import RoundTrip
from launcher.core.events import MessageMalformed, MessageReceived, NodeEvent, NotAdmitted
from launcher.core.roll import Greeted
from launcher.doctor.boards import Board, BoardReading, facts_of, judge_board
from launcher.doctor.conversation import ConversationReading, compare_clocks
from launcher.doctor.path import PathReading, PortReach, Reach
from launcher.errors import BadInputError
from nodes.core.events import LinkChange
from nodes.doctor.findings import Severity
from nodes.protocol.messages import PROTOCOL, DeviceOffer, EngineOffer, Welcome

WHEEL = "csdf_edge-1.0-py3-none-any.whl"
ADDRESS, DATA = "tcp://192.0.2.9:5500", "tcp://192.0.2.9:5501"
WELCOME = Welcome(
    PROTOCOL, "a", "1.0", DATA, "ONNX Runtime", "a Pi", 4, 40_000_000,
    available_bytes=2 * 10**9, engines=(EngineOffer("onnxruntime", "", (DeviceOffer("cpu"),)),),
)  # fmt: skip
ANSWER = Greeted(ADDRESS, WELCOME, cause=MessageReceived("a", WELCOME))
TALK = ConversationReading(ANSWER, round_trip_s=3e-4, long_passed=True, bytes_per_s=60e6)
PATH = PathReading("eth0", 1500, 1500, 1500)
KEYLESS = NotAdmitted("a", barred("a", ADDRESS, None, LinkChange.KEYS_ON_ONE_END), True)
SOUND = BoardReading(
    PortReach(ADDRESS, Reach.CONNECTED), PATH, TALK, PortReach(DATA, Reach.CONNECTED)
)


def board(**keys: object) -> Board:
    node = NodeConfig.model_validate({"name": "a", "address": ADDRESS, **keys})
    return Board(node, ADDRESS, Access(insecure=True), Path("cluster.yaml"), "1.0")


def with_talk(**changes: object) -> BoardReading:
    return replace(SOUND, talk=replace(TALK, **changes))


def without_answer(cause: NodeEvent | None = None) -> BoardReading:
    talk = ConversationReading(Greeted(ADDRESS, error=BadInputError("no"), cause=cause))
    return replace(SOUND, talk=talk, data=None)


def test_a_sound_board():
    assert judge_board(board(link="1Gbit/s"), SOUND) == []
    facts = facts_of(SOUND)
    assert (facts["round trip"], facts["link"]) == ("0.30 ms", "60.0 MB/s")
    assert facts["path MTU"] == "1500"


@pytest.mark.parametrize(
    ("reading", "severity", "what", "remedy"),
    [
        (
            replace(SOUND, data=PortReach(DATA, Reach.SILENT)),
            Severity.ERROR,
            "its data port cannot (silent)",
            "ssh 192.0.2.9 'sudo ufw allow 5501/tcp'",
        ),
        (
            replace(SOUND, path=PathReading("eth0", 1500, 1500, 1400)),
            Severity.ERROR,
            "Packets longer than 1400 bytes vanish",
            "sudo ip link set dev eth0 mtu 1400",
        ),
        (
            replace(with_talk(long_passed=False), path=PathReading("eth0", 1500, 1500, None)),
            Severity.ERROR,
            "one of 17 KB does not",
            "sudo ip link set dev eth0 mtu 1280",
        ),
        (
            with_talk(bytes_per_s=2e6),
            Severity.WARNING,
            "It carries 2.0 MB/s, and cluster.yaml says 12.5 MB/s",
            "csdf-edge partition profile --cluster cluster.yaml",
        ),
        (
            with_talk(failure="its cache is full"),
            Severity.ERROR,
            "It failed: its cache is full.",
            "ssh 192.0.2.9 'node-agent --doctor'",
        ),
        (
            with_talk(clock_rate=1.5, clock_error=0.01),
            Severity.WARNING,
            "It advances 1.500 s per second",
            "ssh 192.0.2.9 'cat /sys/devices/system/clocksource/clocksource0/*_clocksource'",
        ),
        (
            without_answer(MessageMalformed("a", "version 99")),
            Severity.ERROR,
            "cannot read (version 99)",
            f"scp dist/{WHEEL} 192.0.2.9: && ssh 192.0.2.9 'sudo /opt/csdf-edge/current/bin/pip "
            f"install ./{WHEEL} && sudo systemctl restart node-agent'",
        ),
        (
            without_answer(),
            Severity.ERROR,
            "does not answer as an agent does",
            """ssh 192.0.2.9 'sudo ss -ltnp '"'"'sport = :5500'"'"''""",
        ),
        (
            without_answer(KEYLESS),
            Severity.ERROR,
            "requires a key, and this launcher uses none there",
            "launch cluster.yaml --make-keys && rsync -a --delete keys/a/ 192.0.2.9:csdf-keys/",
        ),
        (
            BoardReading(PortReach(ADDRESS, Reach.UNREACHABLE, "No route to host")),
            Severity.ERROR,
            "There is no answer (No route to host)",
            "ping -c 3 192.0.2.9; ip route get 192.0.2.9",
        ),
    ],
)
def test_what_is_wrong_with_a_board(reading, severity, what, remedy):
    (found,) = judge_board(board(link="100Mbit/s"), reading)
    assert (found.severity, found.remedy) == (severity, remedy)
    assert what in found.what


def test_an_agent_on_this_machine_with_keys_needs_the_key_in_the_file_and_no_copies():
    address = "tcp://127.0.0.1:5500"
    node = NodeConfig.model_validate({"name": "a", "address": address})
    local = Board(node, address, Access(), Path("cluster.yaml"), "1.0")
    reading = replace(
        without_answer(KEYLESS),
        control=PortReach(address, Reach.CONNECTED),
    )
    (found,) = judge_board(local, reading)
    assert found.remedy == "echo 'keys: keys' >> cluster.yaml"


def test_a_clock_that_was_hardly_measured_is_not_a_finding():
    assert judge_board(board(), with_talk(clock_rate=1.5, clock_error=0.9)) == []


trips = st.tuples(*[st.floats(0, 1)] * 3).map(sorted)


@given(st.floats(0.5, 2), trips, trips)
def test_the_rate_of_a_clock_is_known_to_its_error_however_long_answers_take(rate, first, second):
    (asked, said, answered), again = first, [2 + moment for moment in second]
    found, error = compare_clocks(
        RoundTrip(asked, rate * said, answered), RoundTrip(again[0], rate * again[1], again[2])
    )
    assert abs(found - rate) <= error + 1e-9


def test_clocks_asked_without_delay_have_an_exact_rate():
    assert compare_clocks(RoundTrip(1, 10, 1), RoundTrip(3, 13, 3)) == (1.5, 0)


def test_answers_with_no_time_between_them_say_nothing_of_a_clock():
    assert compare_clocks(RoundTrip(1, 10, 2), RoundTrip(2, 11, 3)) == (None, 0)


def test_a_way_on_which_long_packets_vanish_explains_why_nothing_came_back():
    reading = replace(without_answer(), path=PathReading("eth0", 1500, 1500, 1400))
    assert len(judge_board(board(), reading)) == 1
