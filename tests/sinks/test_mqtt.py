"""The kind mqtt, against real brokers: amqtt, and mosquitto where it is installed."""

from __future__ import annotations

import json
import random
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from csdf_edge.testing.sink_contract import SinkContract, made_result
from launcher.config.ends.sink import ResultRefusedError, SinkConfig, SinkLostError
from launcher.config.run import ReconnectConfig
from launcher.errors import RunFailedError
from launcher.sinks.filtering import ResultFilter
from launcher.sinks.home_assistant import HomeAssistantConfig
from launcher.sinks.mqtt import MOST_HANGUPS, MqttConfig
from launcher.streaming.delivery import Delivery
from tests.sinks.brokers import (
    Mosquitto,
    PurePythonBroker,
    Subscriber,
    self_signed,
    why_no_mosquitto,
)

pytestmark = pytest.mark.filterwarnings(  # amqtt, and paho after a failed handshake, leave sockets
    "ignore::pytest.PytestUnraisableExceptionWarning"  # to the collector
)

PASSWORD = "the-secret-password"


@pytest.fixture
def broker() -> Iterator[PurePythonBroker]:
    started = PurePythonBroker()
    started.start()
    yield started
    started.stop()


class TestMqtt(SinkContract):
    password = PASSWORD

    @pytest.fixture(autouse=True)
    def _broker(self, broker: PurePythonBroker) -> Iterator[None]:
        self.broker = broker
        self.subscriber = Subscriber(broker.port)
        yield
        self.subscriber.end()

    def config(self, place: Path) -> SinkConfig:
        return MqttConfig(
            host="127.0.0.1", port=self.broker.port, topic="t", username="u", password=PASSWORD
        )

    def delivered(self, place: Path) -> list[int]:
        self.subscriber.catch_up()
        return [result["index"] for result in self.subscriber.results]

    @contextmanager
    def outage(self, place: Path) -> Iterator[None]:
        self.subscriber.catch_up()
        self.subscriber.end()
        self.broker.stop()
        yield
        self.broker.start()
        self.subscriber.connect()


def test_a_topic_has_the_frames_name_and_index(broker: PurePythonBroker, tmp_path: Path) -> None:
    subscriber = Subscriber(broker.port)
    config = MqttConfig(host="127.0.0.1", port=broker.port, topic="cam/{name}/{index}")
    sink = config.open(tmp_path)
    names = ("a.jpg", "", "+/#", "a\x01b\x7f\x85.jpg", "\ufdd0\uffff\U0001fffe", "ü\udcff")
    for index, name in enumerate(names):
        sink.write(replace(made_result(index), name=name))
    subscriber.wait_for(6)
    sent = ["a.jpg", "_", "___", "a_b__.jpg", "___", "ü?"]
    assert subscriber.topics == [f"cam/{name}/{index}" for index, name in enumerate(sent)]
    sink.close()
    subscriber.end()


@pytest.mark.parametrize("qos", [0, 1])
def test_a_subscriber_has_each_result_once_write_has_returned(
    broker: PurePythonBroker, tmp_path: Path, qos: int
) -> None:
    subscriber = Subscriber(broker.port)
    sink = MqttConfig(host="127.0.0.1", port=broker.port, topic="t", qos=qos).open(tmp_path)
    for index in range(20):
        sink.write(made_result(index))
    subscriber.wait_for(20)
    assert [result["index"] for result in subscriber.results] == list(range(20))
    sink.close()
    subscriber.end()


def test_a_broker_that_does_not_answer_is_given_up_in_time(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        sink = MqttConfig(host="127.0.0.1", port=port, topic="t", timeout_s=0.2).open(tmp_path)
        with pytest.raises(SinkLostError, match=r"no answer within 0\.2 s"):
            sink.write(made_result(0))
        sink.close()


@pytest.mark.parametrize("values", [3, 400_000], ids=["small", "more than a socket takes"])
def test_a_broker_that_acknowledges_nothing_loses_no_result(tmp_path: Path, values: int) -> None:
    """It accepts connections, and reads nothing then."""
    result = replace(made_result(0), predictions=Long("x" * 20 * values))
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        sink = MqttConfig(host="127.0.0.1", port=port, topic="t", timeout_s=0.2).open(tmp_path)
        accepted: list[socket.socket] = []

        def answer() -> None:
            for _ in range(MOST_HANGUPS + 1):
                accepted.append(server.accept()[0])
                accepted[-1].sendall(b"\x20\x02\0\0")

        thread = threading.Thread(target=answer)
        thread.start()
        for _ in range(MOST_HANGUPS + 1):
            with pytest.raises(SinkLostError, match=r"no acknowledgement within 0\.2 s"):
                sink.write(result)
        sink.close()
        thread.join()
        for client in accepted:
            client.close()


def test_garbage_of_a_broker_costs_nothing_but_the_attempt(tmp_path: Path) -> None:
    drawn = random.Random(1)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        sink = MqttConfig(host="127.0.0.1", port=port, topic="t", timeout_s=0.1).open(tmp_path)

        def answer() -> None:
            for _ in range(20):
                with server.accept()[0] as client:
                    client.sendall(drawn.choice((b"", b"\x20\x02\0\0")) + drawn.randbytes(40))

        thread = threading.Thread(target=answer)
        thread.start()
        lost = 0
        while thread.is_alive():
            with pytest.raises((SinkLostError, ResultRefusedError)):
                sink.write(made_result(0))
            lost += 1
        thread.join()
        assert lost
        sink.close()


def test_a_device_of_home_assistant_is_seen_from_its_birth_to_its_end(
    broker: PurePythonBroker, tmp_path: Path
) -> None:
    subscriber = Subscriber(broker.port)
    sink = MqttConfig(
        host="127.0.0.1", port=broker.port, topic="gate", labels=("person",),
        home_assistant=HomeAssistantConfig(name="Gate"),
    ).open(tmp_path)  # fmt: skip
    sink.be_present()
    sink.be_present()
    sink.write(made_result(0))
    subscriber.wait_for(4)
    late = Subscriber(broker.port, "late")  # as Home Assistant, if it starts later
    late.wait_for(3)
    late.catch_up()
    assert late.retained["gate/availability"] == "online"
    (presence,) = (topic for topic in late.retained if "/binary_sensor/" in topic)
    assert late.retained[presence]["state_topic"] == "gate"
    sink.close()
    subscriber.wait_for(5)
    subscriber.catch_up()
    assert subscriber.topics[2:] == ["gate/availability", "gate", "gate/availability"]
    assert subscriber.results[-1] == "offline"
    late.end()
    subscriber.end()


def test_a_sink_that_dies_leaves_its_will_where_its_birth_was(
    broker: PurePythonBroker, tmp_path: Path
) -> None:
    code = (
        "import os, sys; from pathlib import Path;"
        "from launcher.sinks.mqtt import MqttConfig;"
        "sink = MqttConfig(host='127.0.0.1', port=int(sys.argv[1]), topic='t', birth_topic='b',"
        "birth_payload='{}', will_payload='[]').open(Path()); sink.be_present(); os._exit(0)"
    )
    subscriber = Subscriber(broker.port)
    subprocess.run([sys.executable, "-c", code, str(broker.port)], check=True)
    subscriber.wait_for(2)
    assert list(zip(subscriber.topics, subscriber.results, strict=True)) == [("b", {}), ("b", [])]
    subscriber.end()


def test_a_quiet_sink_is_connected_again_after_the_broker_was_away(
    broker: PurePythonBroker, tmp_path: Path
) -> None:
    """Also while nothing is found: others would take it for dead."""
    config = MqttConfig(
        host="127.0.0.1", port=broker.port, topic="t", birth_topic="b", birth_payload="{}",
        on_change=True,
    )  # fmt: skip
    said: list[str] = []
    sink = config.open(tmp_path)
    delivering = Delivery(sink, ReconnectConfig(), said.append, wanted=ResultFilter.of(config))
    thread = threading.Thread(target=delivering.run)
    thread.start()
    subscriber = Subscriber(broker.port)
    subscriber.wait_for(1)
    subscriber.end()
    broker.stop()
    broker.start()
    subscriber.connect()
    subscriber.wait_for(2)
    assert set(subscriber.topics) == {"b"}
    delivering.finish()
    thread.join(20)
    assert not thread.is_alive()
    subscriber.end()


@pytest.mark.parametrize(
    "host", ["a", "a-b.local", "10.0.0.1", "::1", "fe80::1%eth0", "bücher", "_a"]
)
def test_a_broker_has_a_name_or_an_address(host: str) -> None:
    assert MqttConfig(host=host, topic="t").host == host


mosquitto = pytest.mark.skipif(why_no_mosquitto() is not None, reason=str(why_no_mosquitto()))


@contextmanager
def running(config: Path, lines: str = "allow_anonymous true\n") -> Iterator[Mosquitto]:
    broker = Mosquitto(config, lines)
    broker.start()
    try:
        yield broker
    finally:
        broker.stop()


class Long:
    def __init__(self, text: str) -> None:
        self.text = text

    def as_json(self) -> dict[str, object]:
        return {"text": self.text}


class Found:
    """Predictions with a box."""

    def as_json(self) -> dict[str, object]:
        return {"kind": "detect", "objects": [{"class": 0, "box": [1.5, 2.0, 30.25, 40.0]}]}


@mosquitto
def test_mosquitto_sub_sees_each_detection_as_json(tmp_path: Path) -> None:
    with running(tmp_path / "mosquitto.conf") as broker:
        subscribe = [
            *("mosquitto_sub", "-h", "127.0.0.1", "-p", str(broker.port), "-t", "cam/#"),
            *("--id", "camera-app", "--disable-clean-session", "-q", "1", "-W", "20"),
        ]
        subprocess.run([*subscribe, "-E"], check=True)
        sink = MqttConfig(host="127.0.0.1", port=broker.port, topic="cam/{name}").open(tmp_path)
        for index in range(5):
            sink.write(replace(made_result(index), predictions=Found()))
        sink.close()
        said = subprocess.run([*subscribe, "-C", "5"], check=True, capture_output=True).stdout
    results = [json.loads(line) for line in said.splitlines()]
    assert [result["index"] for result in results] == list(range(5))
    for result in results:
        (found,) = result["predictions"]["objects"]
        assert found["box"] == [1.5, 2.0, 30.25, 40.0]


@mosquitto
def test_a_broker_that_was_stopped_for_a_while_gets_the_rest(tmp_path: Path) -> None:
    lines = f"allow_anonymous true\npersistence true\npersistence_location {tmp_path}/\n"
    with running(tmp_path / "mosquitto.conf", lines) as broker:
        subscriber = Subscriber(broker.port)
        sink = MqttConfig(host="127.0.0.1", port=broker.port, topic="t").open(tmp_path)
        sink.write(made_result(0))
        subscriber.catch_up()
        subscriber.end()
        broker.stop()
        for _ in range(3):
            with pytest.raises(SinkLostError):
                sink.write(made_result(1))
        broker.start()
        subscriber.connect()
        for index in (1, 2):
            sink.write(made_result(index))
        subscriber.catch_up()
        assert [result["index"] for result in subscriber.results] == [0, 1, 2]
        sink.close()
        subscriber.end()


@mosquitto
def test_a_message_that_the_broker_hangs_up_on_is_given_up(tmp_path: Path) -> None:
    with running(
        tmp_path / "mosquitto.conf", "allow_anonymous true\nmax_packet_size 2000\n"
    ) as broker:
        sink = MqttConfig(host="127.0.0.1", port=broker.port, topic="t").open(tmp_path)
        large = made_result(0, values=900)
        for _ in range(2):
            with pytest.raises(SinkLostError):
                sink.write(large)
        with pytest.raises(
            ResultRefusedError, match="closes the connection when it is sent frame 0"
        ):
            sink.write(large)
        sink.write(made_result(1))
        sink.close()


@mosquitto
def test_the_will_is_published_when_the_launcher_dies_and_not_when_it_ends(tmp_path: Path) -> None:
    code = (
        "import os, sys; from pathlib import Path;"
        "from csdf_edge.testing.sink_contract import made_result;"
        "from launcher.sinks.mqtt import MOST_HANGUPS, MqttConfig;"
        "sink = MqttConfig(host='127.0.0.1', port=int(sys.argv[1]), topic='t', will_topic='w',"
        "will_payload='{}').open(Path()); sink.write(made_result(0));"
        "os._exit(0) if sys.argv[2] == 'dies' else sink.close()"
    )
    with running(tmp_path / "mosquitto.conf") as broker:
        subscriber = Subscriber(broker.port)
        for how, topics in (("ends", ["t"]), ("dies", ["t", "t", "w"])):
            subprocess.run([sys.executable, "-c", code, str(broker.port), how], check=True)
            subscriber.wait_for(len(topics))
            subscriber.catch_up()
            assert subscriber.topics == topics
        subscriber.end()


@mosquitto
def test_an_encrypted_connection_needs_a_certificate_that_fits(tmp_path: Path) -> None:
    certificate, key = self_signed(tmp_path)
    lines = f"allow_anonymous true\ncertfile {certificate}\nkeyfile {key}\n"
    with running(tmp_path / "mosquitto.conf", lines) as broker:
        sink = MqttConfig(
            host="localhost", port=broker.port, topic="t", tls=True, tls_ca=str(certificate)
        ).open(tmp_path)
        sink.write(made_result(0))
        sink.close()
        stranger = MqttConfig(host="localhost", port=broker.port, topic="t", tls=True)
        with pytest.raises(SinkLostError, match="certificate"):
            stranger.open(tmp_path).write(made_result(0))


@mosquitto
def test_a_wrong_password_ends_the_run_with_a_sentence(tmp_path: Path) -> None:
    with running(tmp_path / "mosquitto.conf", "allow_anonymous false\n") as broker:
        sink = MqttConfig(
            host="127.0.0.1", port=broker.port, topic="t", username="u", password=PASSWORD
        ).open(tmp_path)
        with pytest.raises(RunFailedError, match="check username and password") as caught:
            sink.write(made_result(0))
        assert PASSWORD not in str(caught.value)
        sink.close()
