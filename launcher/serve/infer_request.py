"""A request for a model's outputs: its frames, and which outputs are wanted in which form.

A request may have several frames along the first axis of its inputs. Each is computed as a
separate frame, and the outputs are put together along their first axis. An output may be wanted as
its likeliest classes instead of its values (Triton's classification extension).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from launcher.serve.errors import RequestError
from nodes.protocol.payload import Array


@dataclass(frozen=True)
class InferRequest:
    """The inputs of one or several frames, and the wanted outputs, each with whether it is sent as
    bytes."""

    id: str
    inputs: Mapping[str, Array]
    outputs: Mapping[str, bool]
    frames: int = 1
    classes: Mapping[str, int] = field(default_factory=dict)
    """How many of the likeliest classes are wanted of an output, instead of its values."""

    def each_frame(self) -> Iterator[Mapping[str, Array]]:
        """Yield the inputs of each frame, which are views of the request's."""
        if self.frames == 1:
            yield self.inputs
            return
        for number in range(self.frames):
            yield {name: array[number : number + 1] for name, array in self.inputs.items()}

    @property
    def size_bytes(self) -> int:
        """Bytes of all inputs."""
        return sum(array.nbytes for array in self.inputs.values())


def put_together(results: Sequence[Mapping[str, Array]]) -> Mapping[str, Array]:
    """Return the outputs of a request from those of its frames."""
    if len(results) == 1:
        return results[0]
    return {name: np.concatenate([one[name] for one in results]) for name in results[0]}


def checked_classes(output: str, count: int) -> int:
    """Return the number of classes that a request wants of an output; raises `RequestError`."""
    if count < 1:
        raise RequestError(f"output {output!r}: classification is {count}; ask for 1 class or more")
    return count


def classified(
    array: Array, frames: int, count: int, labels: Sequence[str]
) -> tuple[list[int], list[str]]:
    """Return a shape, and in it the classes of the `count` best scores of each frame.

    A class is `score:index`, or `score:index:label` if it has a label. The shape is [count], or
    [frames, count] for several frames, as Triton gives them. Equal scores come by index, and NaN
    last.
    """
    texts: list[str] = []
    for scores in array.reshape(frames, -1):
        comparable = scores.astype(np.float64)
        best = np.argsort(np.where(np.isnan(comparable), np.inf, -comparable), kind="stable")
        for index in best[:count].tolist():
            value = scores[index]
            text = f"{value:f}" if scores.dtype.kind == "f" else str(int(value))
            label = labels[index] if index < len(labels) else ""
            texts.append(f"{text}:{index}:{label}" if label else f"{text}:{index}")
    each = len(texts) // frames
    return ([each] if frames == 1 else [frames, each]), texts


def texts_as_bytes(texts: Sequence[str]) -> bytes:
    """Return texts as the bytes of a `BYTES` tensor: each behind its length, 4 bytes."""
    encoded = [text.encode() for text in texts]
    return b"".join(len(one).to_bytes(4, "little") + one for one in encoded)
