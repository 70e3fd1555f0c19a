"""What a model says of its task: metadata, and the names, types and shapes of its outputs.

A line of an input is an entry of the metadata (`names {0: 'cat'}`), an output (`> boxes float32 1
84 2100`), or a key of `task` in `cluster.yaml` (`= kind detect`).
"""

from __future__ import annotations

import contextlib
import json
import math
from typing import get_args

import numpy as np

from cnn.network import Tensor
from launcher.config.task import HeadName, TaskConfig, TaskKind
from launcher.errors import BadInputError, RunFailedError
from launcher.inputs.fitting import ImagePlacement
from launcher.tasks.metadata import LONGEST_NAME, MOST_CLASSES, model_facts
from launcher.tasks.recognition import Recognition
from tests.fuzz.input_files import is_good_sentence

_NAMES = b"author Ultralytics\nnames {0: 'cat', 1: \"dog's\", 2: 'bird\\n'}\n"

TASKS = (
    _NAMES + b"task detect\nhead Detect\n> output0 float32 1 7 84",
    _NAMES + b"task detect\nhead RTDETRDecoder\n> output0 float32 1 30 7",
    _NAMES + b"task segment\n> output0 float32 1 15 84\n> output1 float32 1 8 4 4",
    _NAMES + b"task pose\nkpt_shape [2, 3]\n> output0 float32 1 13 84\n= kind pose",
    _NAMES + b"task obb\n> output0 float32 1 30 7",
    b"names ['cat', 'dog']\n> output float32 1 30 7\n= kind detect\n= head yolov5",
    b"> boxes float32 9 4\n> scores float32 9\n> labels int64 9\n= kind detect",
    b"> boxes float32 1 9 4\n> scores float32 1 9 3\n= kind detect\n= head ssd",
    b"> detection_boxes float32 1 9 4\n> detection_scores float32 1 9\n"
    b"> detection_classes float32 1 9\n> num_detections float32 1\n= kind detect",
    b"> map float32 1 3 32 32\n= kind semantic",
    b"> classes float32 1 1000",
)

_MOST_ELEMENTS = 20_000
_SEEN = ImagePlacement(50, 40, 0.5, 0.5, 3.0, 6.0)
_TYPES = ("float32", "float16", "int64", "uint8", "bool")


def read_task(data: bytes) -> bool:
    """Choose a decoder, and decode outputs that fit and outputs that do not."""
    metadata, outputs, keys = _parsed(data.decode("utf-8", "replace"))
    facts = model_facts(metadata)
    assert len(facts.names) <= MOST_CLASSES
    assert all(name.isprintable() and len(name) <= LONGEST_NAME for name in facts.names)
    kind = next((k for k in get_args(TaskKind) if k == keys.get("kind")), "auto")
    head = next((h for h in get_args(HeadName) if h == keys.get("head")), "auto")
    task = TaskConfig(kind=kind, head=head)
    try:
        decoder = Recognition(outputs, (32, 32), facts, facts.names).decoder(task)
    except BadInputError as error:
        is_good_sentence(error)
        return False
    small = [one for one in outputs if math.prod(one.shape) <= _MOST_ELEMENTS]
    for fill in (0.0, 0.9, math.nan, math.inf):
        with np.errstate(all="ignore"):
            arrays = {one.name: np.full(one.shape, fill).astype(one.dtype) for one in small}
        with contextlib.suppress(RunFailedError):
            found = decoder.decode(arrays, _SEEN) if decoder is not None else None
            json.dumps(found.as_json() if found is not None else None, allow_nan=False)
    return True


def _parsed(text: str) -> tuple[dict[str, str], tuple[Tensor, ...], dict[str, str]]:
    metadata: dict[str, str] = {}
    keys: dict[str, str] = {}
    outputs: dict[str, Tensor] = {}
    for line in text.split("\n"):
        sign, _, rest = line.partition(" ")
        name, _, value = rest.partition(" ")
        if sign == "=":
            keys[name] = value
        elif sign == ">":
            dtype, *lengths = value.split(" ")
            shape = tuple(int(one) for one in lengths if one.isascii() and one.isdigit())
            if dtype in _TYPES and all(0 < length < 1 << 40 for length in shape):
                outputs[name] = Tensor(name, shape, dtype)
        else:
            metadata[sign] = rest
    return metadata, tuple(outputs.values()), keys
