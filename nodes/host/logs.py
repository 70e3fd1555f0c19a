"""Writes a log as one JSON object per line, for programs that collect logs.

Every line has `time` (UTC, RFC 3339), `level` and `message`, then what is known of the run, the
node, the frame and the phase that it is about. It is the standard library's logging with another
formatter, so that what libraries log has the same form.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Callable, Mapping
from typing import TextIO

TO_SECONDS = "%Y-%m-%dT%H:%M:%S"

Context = Callable[[], Mapping[str, object]]
"""The fields of every line in addition to its message, such as the node's name."""


class JsonFormatter(logging.Formatter):
    """Formats a record as a JSON object in ASCII, so that no line can forge another one.

    `extra={"fields": {…}}` adds keys to a line; those without a value are left out.
    """

    converter = time.gmtime  # type: ignore[assignment] # which takes it as a method

    def __init__(self, context: Context = dict) -> None:
        super().__init__()
        self._context = context

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        line: dict[str, object] = {
            "time": f"{self.formatTime(record, TO_SECONDS)}.{int(record.msecs):03}Z",
            "level": record.levelname.lower(),
            "message": record.getMessage(),
        }
        found = {**self._context(), **getattr(record, "fields", {})}
        line |= {name: value for name, value in found.items() if value not in (None, "")}
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


def begin_json_log(level: int, context: Context = dict, stream: TextIO | None = None) -> None:
    """Write everything that is logged, and Python's warnings, to standard error as JSON."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter(context))
    logging.basicConfig(level=level, handlers=[handler], force=True)
    logging.captureWarnings(True)
