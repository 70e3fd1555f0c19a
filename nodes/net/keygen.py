"""`node-agent keygen`: makes one key pair, in a folder of its own.

The keys of a whole cluster at once are made by `launch CLUSTER.yaml --make-keys`.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from nodes.net.curve import new_pair
from nodes.net.keys import LAUNCHERS, NODES, PUBLIC, KeysError, write_secret


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
