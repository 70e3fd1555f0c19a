"""The launcher's log as JSON lines on standard error, for `--log-format json`.

Progress, notices of the run and the error that ends a command are then log records like those of
libraries, and nothing else is written to standard error.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from launcher.errors import BadInputError
from nodes.host.logs import JsonFormatter, begin_json_log

LEVELS = {"info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}

log = logging.getLogger("csdf-edge")


def begin_log(arguments: Sequence[str]) -> None:
    """Begin to log as JSON if a command line asks for it, before it is parsed: a mistake in it is
    also logged.
    """
    joined = " ".join(arguments)
    if "--log-format json" in joined or "--log-format=json" in joined:
        begin_json_log(logging.INFO)


def is_json() -> bool:
    """Whether standard error has JSON lines only."""
    formatters = (handler.formatter for handler in logging.getLogger().handlers)
    return any(isinstance(formatter, JsonFormatter) for formatter in formatters)


def check_log_format(given: str) -> None:
    """Raise `BadInputError` for an unknown form of logs."""
    if given not in ("text", "json"):
        raise BadInputError(f"--log-format {given}: write text or json")


def log_line(text: str, level: str = "info", *, nodes: Sequence[str] = (), run: str = "") -> None:
    """Log a text that is about these nodes and that run."""
    fields: dict[str, object] = {"run": run}
    if len(nodes) == 1:
        fields["node"] = nodes[0]
    elif nodes:
        fields["nodes"] = list(nodes)
    log.log(LEVELS[level], "%s", text, extra={"fields": fields})
