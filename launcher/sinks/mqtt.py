"""Publishes one JSON object per result to an MQTT broker, with paho-mqtt.

Exactly one message is in flight at a time, so that none waits in paho's own queue, which has no
bound and no count. With qos 1 `write` returns when the broker has acknowledged the message. The
message of a lost connection is forgotten with it and published again by the next attempt; a broker
that already had it delivers it twice, which qos 1 ("at least once") allows. With qos 0 `write`
returns when the message is in the system's hands, and a broken connection may lose some.

A broker that closes the connection on a message, because it is too large for instance, would be
sent it for ever; after `MOST_HANGUPS` times the message is refused.

With a birth message, or as a device of Home Assistant, the sink is connected from the beginning and
while there are no results. Each connection begins with the messages by which Home Assistant finds
the device, and with the birth message; it ends with the will, which the sink publishes itself if it
is closed. All of these are retained.
"""

from __future__ import annotations

import os
import re
import socket
import ssl
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import Field, field_validator, model_validator

from launcher.config.ends.passwords import from_environment, from_file
from launcher.config.ends.sink import (
    FrameResult,
    ResultRefusedError,
    SinkConfig,
    SinkLostError,
    tls_trusting,
)
from launcher.config.kinds import ReadFileName, Secret, imported
from launcher.errors import RunFailedError, reason
from launcher.sinks.broker_address import address_keys
from launcher.sinks.home_assistant import (
    Availability,
    HomeAssistantConfig,
    discovery_messages,
)
from launcher.sinks.result_json import result_text

if TYPE_CHECKING:
    from paho.mqtt.client import Client

MOST_HANGUPS = 3
"""How often in a row the broker may close the connection on the same message."""

_PLACEHOLDER = re.compile(r"\{(.*?)\}")
_PLACEHOLDERS = ("index", "name")
_UNSENT = r"\x00-\x1f\x7f-\x9f\ufdd0-\ufdef" + "".join(
    f"\\U{plane:04x}fffe\\U{plane:04x}ffff" for plane in range(17)
)
"""Control characters and noncharacters: brokers close the connection on a
topic that has one (MQTT 3.1.1, 1.5.3), as on the wildcards."""
_NOT_IN_A_TOPIC = re.compile(f"[+#{_UNSENT}]")
_NOT_IN_A_LEVEL = re.compile(f"[+#/{_UNSENT}]")
_HOST = re.compile(r"[\w.-]+|[0-9A-Fa-f:.]+(%[\w.-]+)?")
"""A name, or an address of either family."""
_UNAUTHORISED = (134, 135)
"""Codes of a refused connection that no later attempt changes: wrong user or password."""


class MqttConfig(SinkConfig):
    """A topic of an MQTT broker."""

    kind: ClassVar[str] = "mqtt"

    host: Annotated[
        str,
        Field(
            min_length=1,
            description="Name or address of the broker; also HOST:PORT, mqtt://HOST or mqtts://HOST",
        ),
    ]
    port: Annotated[
        int | None, Field(ge=1, le=65535, description="Its port; 1883, or 8883 with TLS")
    ] = None
    topic: Annotated[
        str,
        Field(
            min_length=1,
            max_length=1000,
            description="Topic, in which {index} and {name} stand for the frame's",
        ),
    ]
    qos: Annotated[
        Literal[0, 1],
        Field(description="0: at most once; 1: at least once, acknowledged by the broker"),
    ] = 1
    retain: Annotated[
        bool, Field(description="Whether the broker keeps the last message for new subscribers")
    ] = False
    client_id: Annotated[
        str, Field(max_length=200, description="Name of this client; by default a random one")
    ] = ""
    username: Annotated[str | None, Field(min_length=1, description="User at the broker")] = None
    password: Annotated[Secret, Field(description="Password; preferably given by password_env")] = (
        None
    )
    password_env: Annotated[
        str | None, Field(min_length=1, description="Environment variable with the password")
    ] = None
    password_file: Annotated[
        ReadFileName | None, Field(description="File whose only line is the password")
    ] = None
    tls: Annotated[bool, Field(description="Whether the connection is encrypted")] = False
    tls_ca: Annotated[
        ReadFileName | None,
        Field(description="PEM file of the authority that signed the broker's certificate"),
    ] = None
    keepalive_s: Annotated[
        int,
        Field(
            ge=5,
            le=65535,
            description="Seconds of silence after which the broker closes the connection",
        ),
    ] = 60
    timeout_s: Annotated[
        float, Field(gt=0, le=300, description="Seconds that connecting, or one message, may take")
    ] = 5.0
    will_topic: Annotated[
        str | None,
        Field(
            min_length=1,
            description="Topic on which the broker announces that this client has disconnected",
        ),
    ] = None
    will_payload: Annotated[
        str, Field(description="The message of that announcement; retained")
    ] = "offline"
    birth_topic: Annotated[
        str | None,
        Field(
            min_length=1,
            description="Topic on which this client announces that it is connected; will_payload "
            "follows there when it ends",
        ),
    ] = None
    birth_payload: Annotated[
        str, Field(description="The message of that announcement; retained")
    ] = "online"
    home_assistant: Annotated[
        HomeAssistantConfig | None,
        Field(description="Name of the device that Home Assistant is to find, or a mapping"),
    ] = None

    @model_validator(mode="before")
    @classmethod
    def _split_host(cls, data: object) -> object:
        """Take port, encryption and user from a host that is written as an address."""
        if not isinstance(data, Mapping) or not isinstance(host := data.get("host"), str):
            return data
        split = address_keys(host)
        for key, value in split.items():
            if key != "host" and data.get(key, value) != value:
                raise ValueError(f"host and {key} contradict each other; write one of them")
        return {**data, **split}

    @field_validator("host")
    @classmethod
    def _check_host(cls, host: str) -> str:
        if _HOST.fullmatch(host) and host.count(":") != 1:
            return host
        raise ValueError(
            "must be the name or the address of the broker, such as broker.local, "
            "broker.local:1883 or mqtt://broker.local"
        )

    @field_validator("topic")
    @classmethod
    def _check_topic(cls, topic: str) -> str:
        for name in _PLACEHOLDER.findall(topic):
            if name not in _PLACEHOLDERS:
                raise ValueError(f"there is no {{{name}}}; a topic may have {{index}} and {{name}}")
        return _plain_topic(topic)

    @field_validator("will_topic", "birth_topic")
    @classmethod
    def _check_plain(cls, topic: str | None) -> str | None:
        return None if topic is None else _plain_topic(topic)

    @model_validator(mode="after")
    def _check(self) -> MqttConfig:
        passwords = (self.password, self.password_env, self.password_file)
        if sum(each is not None for each in passwords) > 1:
            raise ValueError("there is more than one password; keep one")
        if self.username is None and any(passwords):
            raise ValueError("a password needs a username; add it")
        if self.tls_ca is not None and not self.tls:
            raise ValueError("tls_ca has no effect without tls: true; add it")
        if self.home_assistant is not None and "{" in self.topic:
            raise ValueError("home_assistant reads one topic; remove {name} and {index} from it")
        if self.home_assistant is not None and not self.empty:
            raise ValueError(
                "home_assistant would not learn that an object has gone; remove empty: false"
            )
        return self

    @property
    def availability(self) -> Availability | None:
        """The topic of birth and will; None if the client does not announce itself."""
        topic = self.birth_topic
        if topic is None and self.home_assistant is not None:
            topic = self.will_topic or f"{self.topic}/availability"
        return None if topic is None else Availability(topic, self.birth_payload, self.will_payload)

    @property
    def greetings(self) -> dict[str, bytes]:
        """The retained messages with which a connection begins, by topic."""
        availability = self.availability
        if availability is None:
            return {}
        found = {}
        if self.home_assistant is not None:
            found = discovery_messages(self.home_assistant, self.labels, self.topic, availability)
        return {**found, availability.topic: availability.online.encode()}

    def open(self, folder: Path) -> MqttSink:
        """Return the sink, not connected yet.

        Raises `BadInputError` if paho-mqtt is not installed, the environment lacks the password, or
        the certificate cannot be read.
        """
        imported("paho.mqtt.client", "the sink mqtt", "stream")
        password = (
            self.password
            or from_environment(self.password_env, "password_env")
            or from_file(self._path(folder, self.password_file), "password_file")
        )
        authority = self._path(folder, self.tls_ca)
        return MqttSink(self, password, tls_trusting(authority) if self.tls else None)

    @staticmethod
    def _path(folder: Path, name: str | None) -> Path | None:
        return None if name is None else folder / os.path.expanduser(name)


def _plain_topic(topic: str) -> str:
    if _NOT_IN_A_TOPIC.search(topic):
        raise ValueError("a topic that is published to has no +, no # and no control characters")
    return topic


class MqttSink:
    """A connection to a broker, made when there is a result to deliver."""

    needs_image = False

    def __init__(
        self, config: MqttConfig, password: str | None, tls: ssl.SSLContext | None
    ) -> None:
        self._config = config
        self._password = password
        self._tls = tls
        self._port = config.port or (8883 if tls is not None else 1883)
        self._connection: _Connection | None = None
        self._was_connected = False
        self._hangups = 0
        self._hung_up_on: int | None = None

    @property
    def description(self) -> str:
        """The broker and the topic."""
        return f"mqtt {self._config.host}:{self._port}, topic {self._config.topic}"

    def write(self, result: FrameResult) -> None:
        """Publish the result; see the module for the guarantee when it returns."""
        payload, topic = result_text(result), self._topic(result)
        connection = self._connected()
        problem = connection.publish(topic, payload, self._config.qos, self._config.retain)
        if problem is None:
            self._hung_up_on = None
            return
        hung_up = connection.was_closed
        self._drop()
        if hung_up:
            self._count_hangup(result.index)
        raise SinkLostError(f"{self.description}: {problem}")

    def be_present(self) -> None:
        """Connect if others see whether this client is; see `PresentSink`."""
        if self._config.availability is not None:
            self._connected()

    def _topic(self, result: FrameResult) -> str:
        name = _NOT_IN_A_LEVEL.sub("_", result.name.encode(errors="replace").decode()) or "_"
        values = {"index": str(result.index), "name": name}
        return _PLACEHOLDER.sub(lambda match: values[match[1]], self._config.topic)

    def _count_hangup(self, index: int) -> None:
        self._hangups = self._hangups + 1 if self._hung_up_on == index else 1
        self._hung_up_on = index
        if self._hangups == MOST_HANGUPS:
            raise ResultRefusedError(
                f"{self.description}: the broker closes the connection when it is sent frame "
                f"{index}; its log says why"
            )

    def _connected(self) -> _Connection:
        if self._connection is not None and self._connection.is_open:
            return self._connection
        self._drop()
        connection = _Connection(self._client(), self._config.timeout_s)
        problem = connection.open(self._config.host, self._port, self._config.keepalive_s)
        if problem is not None:
            connection.close()
            if connection.refusal in _UNAUTHORISED and not self._was_connected:
                raise RunFailedError(f"{self.description}: {problem}; check username and password")
            raise SinkLostError(f"{self.description}: {problem}")
        for topic, payload in self._config.greetings.items():
            problem = connection.publish(topic, payload, qos=1, retain=True)
            if problem is not None:
                connection.close()
                raise SinkLostError(f"{self.description}: topic {topic}: {problem}")
        self._connection, self._was_connected = connection, True
        return connection

    def _client(self) -> Client:
        from paho.mqtt.client import Client  # noqa: PLC0415 - needs an extra
        from paho.mqtt.enums import CallbackAPIVersion  # noqa: PLC0415

        config = self._config
        client = Client(CallbackAPIVersion.VERSION2, config.client_id, reconnect_on_failure=False)
        client.connect_timeout = config.timeout_s
        if config.username is not None:
            client.username_pw_set(config.username, self._password)
        if self._tls is not None:
            client.tls_set_context(self._tls)
        own = config.availability
        will_topic = config.will_topic or (None if own is None else own.topic)
        if will_topic is not None:
            client.will_set(will_topic, config.will_payload, qos=1, retain=True)
        return client

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def close(self) -> None:
        """Disconnect, so that the broker does not publish the will; take back the birth message."""
        connection, own = self._connection, self._config.availability
        if connection is not None and connection.is_open and own is not None:
            connection.publish(own.topic, own.offline.encode(), qos=1, retain=True)
        self._drop()


class _Connection:
    """One connection of paho, which has a thread for pings and answers; it never reconnects."""

    def __init__(self, client: Client, timeout_s: float) -> None:
        self._client = client
        self._timeout_s = timeout_s
        self._changed = threading.Condition()
        self._is_accepted = False
        self._delivered: int | None = None
        self._ended = ""
        self.refusal = 0
        """The code by which the broker refused the connection; 0 if it did not."""
        self.was_closed = False
        """Whether the broker closed the connection after it had accepted it."""
        client.on_connect = self._on_connect
        client.on_disconnect = self._on_disconnect
        client.on_publish = self._on_publish

    def open(self, host: str, port: int, keepalive_s: int) -> str | None:
        """Connect; return what is wrong, None once the broker has accepted the connection."""
        try:
            self._client.connect(host, port, keepalive_s)
        except (OSError, ValueError) as error:  # ValueError: the name is not a host's
            self._ended = f"cannot connect: {reason(error)}"
            return self._ended
        self._client.loop_start()
        with self._changed:
            self._changed.wait_for(lambda: self._is_accepted or self._ended, self._timeout_s)
            if self._is_accepted:
                return None
            return self._ended or f"no answer within {self._timeout_s:g} s"

    @property
    def is_open(self) -> bool:
        """Whether nothing has ended it yet."""
        return not self._ended

    def publish(self, topic: str, payload: bytes, qos: int, retain: bool) -> str | None:
        """Publish a message; return what is wrong, None once it is delivered."""
        try:
            sent = self._client.publish(topic, payload, qos, retain)
        except ValueError as error:  # longer than a message can be
            raise ResultRefusedError(f"topic {topic}: {reason(error)}") from error
        with self._changed:
            self._changed.wait_for(
                lambda: self._delivered == sent.mid or self._ended, self._timeout_s
            )
            if self._delivered == sent.mid:
                return None
            return self._ended or f"no acknowledgement within {self._timeout_s:g} s"

    def close(self) -> None:
        """Disconnect, and end paho's thread, which would wait for a broker that reads nothing."""
        self._client.disconnect()
        with self._changed:
            self._changed.wait_for(lambda: self._ended, min(1.0, self._timeout_s))
        connected: Any = self._client.socket()
        if connected is not None:
            with suppress(OSError):
                connected.shutdown(socket.SHUT_RDWR)
        self._client.loop_stop()

    def _on_connect(
        self, _client: Client, _data: object, _flags: object, code: Any, _properties: object
    ) -> None:
        with self._changed:
            if code.is_failure:
                self.refusal = code.value
                self._ended = f"the broker refuses the connection: {code}"
            else:
                self._is_accepted = True
            self._changed.notify_all()

    def _on_disconnect(
        self, _client: Client, _data: object, _flags: object, code: Any, _properties: object
    ) -> None:
        with self._changed:
            self.was_closed = self._is_accepted
            self._ended = self._ended or f"the connection has ended: {code}"
            self._changed.notify_all()

    def _on_publish(
        self, _client: Client, _data: object, mid: int, _code: Any, _properties: object
    ) -> None:
        with self._changed:
            self._delivered = mid
            self._changed.notify_all()
