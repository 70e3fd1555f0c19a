"""`ga sweep --save`: a tuned strategy's parameters in the section `ga` of `cluster.yaml`.

The file is the user's: everything else in it, comments too, stays as it is, and other strategies'
parameters stay in the section.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from ga.sweep.use import as_yaml
from launcher.errors import BadInputError
from launcher.whole_files import write_whole

KEY = "ga"


def with_tuning(text: str, strategy: str, parameters: Mapping[str, float]) -> str:
    """The text of a cluster.yaml with these parameters.

    Raises `ValueError` if it is no block of keys and values, so that nothing can be put in.
    """
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    if not isinstance(root, yaml.MappingNode) or root.flow_style:
        raise ValueError("it is not written as a block of keys and values")
    data = yaml.safe_load(text)
    section = as_yaml({**(data.get(KEY) or {}), strategy: parameters})
    lines = text.splitlines(keepends=True)
    for key, value in root.value:
        if key.value == KEY:
            first, last = key.start_mark.line, max(key.start_mark.line, _last_line(value))
            found = "".join([*lines[:first], section, *lines[last + 1 :]])
            break
    else:
        separator = "" if not text or text.endswith("\n") else "\n"
        found = f"{text}{separator}\n# found by ga sweep\n{section}"
    if yaml.safe_load(found) != {**data, KEY: {**(data.get(KEY) or {}), strategy: parameters}}:
        raise ValueError("its section cannot be replaced without changing other keys")
    return found


def save(path: Path, strategy: str, parameters: Mapping[str, float]) -> None:
    """Put the parameters into the file, whole or not at all; raises `BadInputError`."""
    try:
        text = path.read_text("utf-8")
        write_whole(path, with_tuning(text, strategy, parameters), durable=True)
    except OSError as error:
        raise BadInputError(f"--save: {path}: {error.strerror}; paste the lines") from None
    except ValueError as error:
        raise BadInputError(f"--save: {path}: {error}; paste the lines") from None


def _last_line(node: Any) -> int:
    """The last line that a YAML node really has: its end mark is where the next key begins."""
    if isinstance(node, yaml.MappingNode) and not node.flow_style and node.value:
        return max(_last_line(part) for pair in node.value for part in pair)
    if isinstance(node, yaml.SequenceNode) and not node.flow_style and node.value:
        return max(map(_last_line, node.value))
    line: int = node.end_mark.line
    return line
