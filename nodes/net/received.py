"""What the parts of a received message say; the same for agents and launchers."""

from __future__ import annotations

from nodes.core import events as ev
from nodes.net.sockets import SHARED_BELOW_BYTES, Part
from nodes.protocol.codec import decode
from nodes.protocol.errors import RemoteProtocolError
from nodes.protocol.messages import Attach, Control, Credit, TensorHeader


def read_control(parts: list[Part]) -> Control:
    """A message on a control connection; raises `RemoteProtocolError` if it is none."""
    if len(parts) != 1:
        raise RemoteProtocolError(f"a control message of {len(parts)} parts")
    message = decode(parts[0].buffer)
    if isinstance(message, (Attach, Credit, TensorHeader)):
        raise RemoteProtocolError(f"{type(message).__name__} on a control connection")
    return message


def read_data(link: ev.Link, parts: list[Part]) -> ev.DataReceived | ev.DataMalformed:
    """What came on a data connection."""
    try:
        if not 1 <= len(parts) <= 2:
            raise RemoteProtocolError(f"a data message of {len(parts)} parts")
        message = decode(parts[0].buffer)
    except RemoteProtocolError as error:
        return ev.DataMalformed(link, str(error))
    if len(parts) == 1:
        return ev.DataReceived(link, message)
    payload = parts[1]
    size = len(payload)
    whole = payload.bytes if size <= SHARED_BELOW_BYTES else payload.buffer
    return ev.DataReceived(link, message, whole, size)
