"""The parent process of a node's slots, as `nodes.slots.settings.become_parent` starts it."""

from __future__ import annotations

import gc
import logging
import sys

from nodes.host.logs import begin_json_log
from nodes.protocol.errors import NodeError
from nodes.slots.parent import Parent
from nodes.slots.ports import open_ports
from nodes.slots.settings import Settings

EXIT_BAD_INPUT = 2

log = logging.getLogger("node-agent")


def main() -> int:
    """Run the slots that the only argument describes; return the exit code of `node-agent`."""
    settings = Settings.parsed(sys.argv[1])
    if settings.logs_json:
        begin_json_log(settings.log_level, lambda: {"node": settings.name})
    else:
        logging.basicConfig(
            stream=sys.stderr,
            level=settings.log_level,
            format="node-agent %(asctime)s %(levelname)s %(message)s",
        )
    try:
        ports = open_ports(settings.address, settings.slots)
    except NodeError as error:
        log.error("%s", error)
        return EXIT_BAD_INPUT
    gc.freeze()
    return Parent(settings, ports).run()


if __name__ == "__main__":
    sys.exit(main())
