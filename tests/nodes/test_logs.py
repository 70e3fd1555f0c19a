"""Logs as JSON lines: one object per line, and nothing else on that stream."""

from __future__ import annotations

import json
import logging
import sys

import pytest

from nodes.host.logs import JsonFormatter

FORMATTER = JsonFormatter(lambda: {"node": "a", "run": ""})


def record(message: str, *words: object, **more: object) -> logging.LogRecord:
    return logging.LogRecord("x", logging.WARNING, "", 0, message, words, None, **more)


def test_a_line_has_time_level_message_and_what_is_known_beside() -> None:
    given = record("phase %s hangs", "p0")
    given.created, given.msecs = 1_700_000_000.25, 250.0
    given.fields = {"phase": "p0", "frame": 7, "peer": None}
    assert json.loads(FORMATTER.format(given)) == {
        "time": "2023-11-14T22:13:20.250Z",
        "level": "warning",
        "message": "phase p0 hangs",
        "node": "a",
        "phase": "p0",
        "frame": 7,
    }


@pytest.mark.parametrize("text", ['a\n{"level": "error"}', "\x1b[2J", "\u2028", "ü", "\ud800"])
def test_no_text_makes_a_second_line_or_steers_a_terminal(text: str) -> None:
    line = FORMATTER.format(record("%s", text))
    assert line.isascii()
    assert line.isprintable()
    assert json.loads(line)["message"] == text


def test_an_exception_is_within_the_line() -> None:
    try:
        raise ValueError("broken")
    except ValueError:
        given = record("failed")
        given.exc_info = sys.exc_info()
    assert "ValueError: broken" in json.loads(FORMATTER.format(given))["error"]
