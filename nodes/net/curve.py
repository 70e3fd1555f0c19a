"""CURVE, ZeroMQ's encryption and authentication, as this project uses it (RFC 25 and 26 of ZeroMQ).

Both ends prove that they own the secret of their public key; what they say after that is encrypted
and authenticated, with session keys that are forgotten at its end. The dialling end knows whom it
means to reach. The listening end asks the `Doorkeeper`, ZeroMQ's ZAP handler (RFC 27), whether it
knows the caller: here a socket among the others in the agent's one poll, not a thread.

`node-agent keygen`: makes one key pair, in a folder of its own.

The keys of a whole cluster at once are made by `launch CLUSTER.yaml --make-keys`.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import zmq
from zmq.utils import z85

from nodes.net.keys import LAUNCHERS, NODES, PUBLIC, Keyring, KeysError, write_secret
from nodes.protocol.addresses import host_of

STATUS_WELCOME, STATUS_STRANGER = b"200", b"400"
OVERHEAD_BYTES = 64
"""A message is longer on the wire by less than this once it is encrypted."""

GREETING_BYTES, WELCOME_BYTES, ERROR_BYTES = 64, 170, 12
"""What a listening end says before it admits a caller: its greeting, its answer to a HELLO, which
only those can write who know its public key, and an ERROR for a key that is not admitted. Whoever
is admitted gets READY instead, which is longer."""

HANDSHAKE_BYTES = 4096
"""A caller says less than this until it is admitted; those of this project say some 600 bytes."""


def new_pair() -> tuple[bytes, bytes]:
    """A new key pair, (public, secret), of 32 bytes each; `KeysError` if ZeroMQ has no CURVE."""
    if not zmq.has("curve"):
        raise KeysError("this machine's ZeroMQ was built without CURVE: install pyzmq from PyPI")
    return tuple(_raw(key) for key in zmq.curve_keypair())  # type: ignore[return-value]


def public_of(secret: bytes) -> bytes:
    """The public key that belongs to a secret one."""
    if not zmq.has("curve"):
        raise KeysError("this machine's ZeroMQ was built without CURVE: install pyzmq from PyPI")
    return _raw(zmq.curve_public(_z85(secret)))


def guard(socket: zmq.Socket[Any], secret: bytes, port: str) -> None:
    """Let a listening socket take encrypted connections only, of those whom the doorkeeper admits.

    Before it is bound. Without a doorkeeper in its context it lets nobody in.
    """
    socket.setsockopt(zmq.CURVE_SERVER, 1)
    socket.setsockopt(zmq.CURVE_SECRETKEY, secret)
    socket.setsockopt_string(zmq.ZAP_DOMAIN, port)
    socket.setsockopt(zmq.ZAP_ENFORCE_DOMAIN, 1)


def identify(socket: zmq.Socket[Any], secret: bytes, server: bytes) -> None:
    """Let a dialling socket show its key, and talk to the owner of the key `server` only.

    Before it is connected.
    """
    socket.setsockopt(zmq.CURVE_SECRETKEY, secret)
    socket.setsockopt(zmq.CURVE_PUBLICKEY, public_of(secret))
    socket.setsockopt(zmq.CURVE_SERVERKEY, server)


def caller(part: zmq.Frame) -> bytes | None:
    """The public key of whoever sent a part; None over a connection that is not guarded."""
    try:
        return bytes.fromhex(str(part.get("User-Id")))
    except (zmq.ZMQError, ValueError):
        return None


class Doorkeeper:
    """Decides who comes in, for all guarded sockets of its context; made before they are."""

    def __init__(self, context: zmq.Context[Any], admits: Callable[[str, bytes], bool]) -> None:
        """`admits(port, public key)`."""
        self._admits = admits
        self.socket: zmq.Socket[bytes] = context.socket(zmq.REP)
        self.socket.setsockopt(zmq.LINGER, 0)
        self.socket.bind("inproc://zeromq.zap.01")

    def answer(self) -> list[str]:
        """Answer all who wait; a sentence for each that was turned away."""
        turned_away: list[str] = []
        while True:
            try:
                request = self.socket.recv_multipart(zmq.DONTWAIT)
            except zmq.Again:
                return turned_away
            version, number, port, address, _, mechanism, *credentials = request
            key = credentials[0] if mechanism == b"CURVE" and len(credentials) == 1 else b""
            welcome = self._admits(port.decode("ascii", "replace"), key)
            status = STATUS_WELCOME if welcome else STATUS_STRANGER
            name = key.hex().encode() if welcome else b""
            self.socket.send_multipart([version, number, status, b"", name, b""])
            if not welcome:
                turned_away.append(
                    f"{address.decode('ascii', 'replace')} came to the {port.decode()} port with "
                    f"the key {key.hex()}, which is not admitted there"
                )

    def close(self) -> None:
        """Let nobody in any more."""
        with contextlib.suppress(zmq.ZMQError):
            self.socket.close()


class Context:
    """What sockets are made in: one per agent or run, closed after all of them.

    With a `keyring` it can listen: all its TCP connections are encrypted and authenticated, and the
    `doorkeeper`'s socket must be waited for too. Whoever only dials needs none here.
    """

    def __init__(self, keyring: Keyring | None = None) -> None:
        self.zmq: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self.keyring = keyring
        self.doorkeeper: Doorkeeper | None = None
        if keyring is not None:
            public_of(keyring.secret)
            self.doorkeeper = Doorkeeper(self.zmq, keyring.admits)

    def keys_for(self, address: str) -> Keyring | None:
        """The keyring, if connections at this address are guarded."""
        return None if host_of(address) is None else self.keyring

    def close(self) -> None:
        """Wait until what lingers has left, and end ZeroMQ's own thread."""
        if self.doorkeeper is not None:
            self.doorkeeper.close()
        self.zmq.term()


def _raw(key: bytes) -> bytes:
    return z85.decode(key)


def _z85(key: bytes) -> bytes:
    return z85.encode(key)


def default_keys() -> Path:
    """Where an agent looks for its keys unless told otherwise."""
    base = os.environ.get("XDG_CONFIG_HOME")
    return (Path(base) if base else Path.home() / ".config") / "csdf-edge" / "keys"


def keygen(arguments: Sequence[str]) -> int:
    """Make a key pair; returns the exit code."""
    options = _parser().parse_args(arguments)
    folder: Path = options.out
    try:
        public, secret = new_pair()
        write_secret(folder, options.name, secret, public)
        for part in (LAUNCHERS, NODES):
            (folder / part).mkdir(mode=0o755, exist_ok=True)
    except (KeysError, OSError) as error:
        sys.stderr.write(f"node-agent keygen: {error}\n")
        return 2
    if options.json:
        sys.stdout.write(json.dumps({"folder": str(folder), "public_key": public.hex()}) + "\n")
        return 0
    sys.stdout.write(
        f"made a key pair in {folder}\n"
        f"public key: {public.hex()}\n"
        f"Next: copy {folder / PUBLIC} to the others, as {NODES}/{options.name}.pub in their "
        f"folders of keys; copy the launcher's here, as {folder / LAUNCHERS}/launcher.pub, and "
        f"those of the other nodes, as {folder / NODES}/NAME.pub (NAME as in cluster.yaml)\n"
    )
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="node-agent keygen",
        description="Make a key pair for this machine. Those of a whole cluster are made at once "
        "by `launch cluster.yaml --make-keys`.",
        epilog="Exit codes: 0 made, 2 not (there is a secret key already, say).",
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=default_keys(),
        metavar="DIR",
        help="folder for the keys, made if need be (default: %(default)s)",
    )
    parser.add_argument(
        "--name", default=os.uname().nodename, help="for people; default: this machine's name"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    return parser
