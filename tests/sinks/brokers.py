"""MQTT brokers: amqtt's in a thread of this process, mosquitto as a process; and a subscriber."""

from __future__ import annotations

import asyncio
import gc
import getpass
import json
import shutil
import socket
import subprocess
import threading
from pathlib import Path
from typing import Any

from amqtt.broker import Broker
from paho.mqtt.client import Client, MQTTMessage
from paho.mqtt.enums import CallbackAPIVersion


def free_port() -> int:
    """A port on loopback that nobody has now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class PurePythonBroker:
    """amqtt's broker, which lets everybody in."""

    def __init__(self) -> None:
        self.port = free_port()
        anonymous = "amqtt.plugins.authentication.AnonymousAuthPlugin"
        self._config = {
            "listeners": {"default": {"type": "tcp", "bind": f"127.0.0.1:{self.port}"}},
            "plugins": {anonymous: {"allow_anonymous": True}},
        }
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        started = threading.Event()
        self._thread = threading.Thread(target=asyncio.run, args=(self._serve(started),))
        self._thread.start()
        assert started.wait(20)

    async def _serve(self, started: threading.Event) -> None:
        self._loop, self._stopped = asyncio.get_running_loop(), asyncio.Event()
        broker = Broker(self._config)
        await broker.start()
        started.set()
        await self._stopped.wait()
        await broker.shutdown()

    def stop(self) -> None:
        if self._thread is not None:
            self._loop.call_soon_threadsafe(self._stopped.set)
            self._thread.join(20)
            assert not self._thread.is_alive()
            gc.collect()  # amqtt leaves sockets to the collector, which warns of them here and now
        self._thread = None


class Mosquitto:
    """mosquitto, with lines of a configuration."""

    def __init__(self, config: Path, lines: str) -> None:
        self.port = free_port()
        config.write_text(f"user {getpass.getuser()}\nlistener {self.port} 127.0.0.1\n{lines}")
        self._config = config
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self._process = subprocess.Popen(
            ["mosquitto", "-c", str(self._config)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        assert self._process.stderr is not None
        for line in self._process.stderr:
            if b" running" in line:
                return
        raise AssertionError("mosquitto has ended")

    def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.communicate()
        self._process = None


def why_no_mosquitto() -> str | None:
    """Why mosquitto cannot be tested here; None if it can."""
    missing = [
        name for name in ("mosquitto", "mosquitto_sub", "openssl") if shutil.which(name) is None
    ]
    return f"{' and '.join(missing)} not installed" if missing else None


class Subscriber:
    """A client that remembers all results that come."""

    def __init__(self, port: int, name: str = "subscriber") -> None:
        self.results: list[Any] = []
        self.retained: dict[str, Any] = {}
        """The messages that the broker had kept before."""
        self.topics: list[str] = []
        self._port, self._name = port, name
        self._changed = threading.Condition()
        self._is_caught_up = False
        self._client: Client | None = None
        self.connect()

    def connect(self) -> None:
        ready = threading.Event()
        client = Client(CallbackAPIVersion.VERSION2, self._name, reconnect_on_failure=False)
        client.on_message = self._on_message
        client.on_subscribe = lambda *_: ready.set()
        client.connect("127.0.0.1", self._port)
        client.subscribe("#", qos=1)
        client.loop_start()
        assert ready.wait(20)
        self._client = client

    def _on_message(self, _client: Client, _data: object, message: MQTTMessage) -> None:
        with self._changed:
            if message.topic == "caught/up":
                self._is_caught_up = True
                self._changed.notify_all()
                return
            self.topics.append(message.topic)
            self.results.append(_content(message.payload))
            if message.retain:
                self.retained[message.topic] = self.results[-1]
            self._changed.notify_all()

    def catch_up(self) -> None:
        """Wait until everything that the broker has had before has come."""
        assert self._client is not None
        self._client.publish("caught/up", b"", qos=1)
        with self._changed:
            assert self._changed.wait_for(lambda: self._is_caught_up, 20)
            self._is_caught_up = False

    def wait_for(self, results: int) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.results) >= results, 20), self.results

    def end(self) -> None:
        if self._client is not None:
            self._client.disconnect()
            self._client.loop_stop()
        self._client = None


def _content(payload: bytes) -> Any:
    try:
        return json.loads(payload)
    except ValueError:
        return payload.decode()


def self_signed(folder: Path) -> tuple[Path, Path]:
    """A certificate of localhost, and its key."""
    certificate, key = folder / "certificate.pem", folder / "key.pem"
    subprocess.run(
        [
            *(
                "openssl",
                "req",
                "-x509",
                "-newkey",
                "ec",
                "-pkeyopt",
                "ec_paramgen_curve:P-256",
                "-nodes",
                "-days",
                "2",
            ),
            *("-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"),
            *("-keyout", str(key), "-out", str(certificate)),
        ],
        check=True,
        capture_output=True,
    )
    key.chmod(0o644)
    return certificate, key
