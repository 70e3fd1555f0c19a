"""Writes tuned parameters into the section `ga` of the user's `cluster.yaml`.

Everything else in the file stays as it is, including comments and the parameters of other
strategies.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from ga.sweep.spaces import Sections, as_yaml
from launcher.errors import BadInputError
from launcher.files import write_whole

KEY = "ga"


def with_tuning(text: str, tuned: Sections) -> str:
    """Return the text of a cluster.yaml with these sections of strategies.

    Raises `ValueError` if they cannot be inserted without changing other keys.
    """
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    if not isinstance(root, yaml.MappingNode) or root.flow_style:
        raise ValueError("it is not written as a block of keys and values")
    data = yaml.safe_load(text)
    wanted = {**(data.get(KEY) or {}), **{name: dict(own) for name, own in tuned.items()}}
    section = as_yaml(wanted)
    lines = text.splitlines(keepends=True)
    for key, value in root.value:
        if key.value == KEY:
            first, last = key.start_mark.line, max(key.start_mark.line, _last_line(value))
            found = "".join([*lines[:first], section, *lines[last + 1 :]])
            break
    else:
        separator = "" if not text or text.endswith("\n") else "\n"
        found = f"{text}{separator}\n# found by ga sweep\n{section}"
    if yaml.safe_load(found) != {**data, KEY: wanted}:
        raise ValueError("its section cannot be replaced without changing other keys")
    return found


def save(path: Path, tuned: Sections) -> None:
    """Write the sections into the file; raises `BadInputError` and leaves it unchanged if not."""
    advice = "copy these lines into it instead:\n" + as_yaml(tuned)
    try:
        text = path.read_text("utf-8-sig")
        write_whole(path, with_tuning(text, tuned), durable=True)
    except OSError as error:
        raise BadInputError(f"--save: {path}: {error.strerror}; {advice}") from None
    except ValueError as error:
        raise BadInputError(f"--save: {path}: {error}; {advice}") from None


def _last_line(node: Any) -> int:
    """Return the last line of a YAML node, whose end mark may be where the next key begins."""
    if isinstance(node, yaml.MappingNode) and not node.flow_style and node.value:
        return max(_last_line(part) for pair in node.value for part in pair)
    if isinstance(node, yaml.SequenceNode) and not node.flow_style and node.value:
        return max(map(_last_line, node.value))
    line: int = node.end_mark.line
    return line
