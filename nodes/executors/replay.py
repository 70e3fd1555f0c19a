"""Runs steps of a computation again, to find where a distributed run went wrong.

`python -m nodes.executors.replay STEPS` reads a JSON file: `folder`, a list of `frames`, and a
list of `steps`. Every step runs one ONNX `graph` on each frame, in plain ONNX Runtime at a `level`
of fusion (`all`, `none`), or at the level `agent` as an agent on this machine runs it. Its inputs
are arrays that exist or that earlier steps made, and its outputs are written to files:

    {"graph": "…/a3f0", "level": "all",
     "inputs": {"x": ["in/0.npy", [[1, 0, 8]]]}, "outputs": {"y": "chain/4.npy"}}

File names are relative to FOLDER/FRAME/. The bounds [axis, start, stop] after an input's file
select the elements that are fed; an empty list selects all. `outputs` may also name tensors inside
the graph; a name that the graph does not have is ignored. Only one graph is loaded at a time. For
each step and frame it prints a JSON line.

Exit code 0: all steps are computed. 2: one sentence on standard error says what was wrong.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from nodes.executors.base import ExecutorError, LoadOptions
from nodes.executors.onnx.protobuf import field, submessages, text_field, texts
from nodes.executors.onnx.schema import GraphField, ModelField, NodeField, ValueInfoField, graphs
from nodes.executors.onnx.sessions import (
    cpu_session,
    engine_errors,
    import_onnxruntime,
    plain_options,
)
from nodes.executors.registry import open_executor
from nodes.protocol.payload import Array

_Compute: TypeAlias = Callable[[Mapping[str, Array]], Mapping[str, Array]]

_AGENT = "agent"
"""The level of a step that an agent's executor runs, and the name of its cache's folder."""


def run(wanted: Mapping[str, Any]) -> None:
    """Run all steps of a parsed STEPS file; see the module's docstring.

    Raises ExecutorError for a graph or an array that cannot be used.
    """
    ort = import_onnxruntime()
    folder = Path(wanted["folder"])
    for number, step in enumerate(wanted["steps"]):
        with _engine(ort, step, folder) as compute:
            for frame in wanted["frames"]:
                own = folder / frame
                feed = {
                    name: _read(own / file, within)
                    for name, (file, within) in step["inputs"].items()
                }
                for name, result in compute(feed).items():
                    target = own / step["outputs"][name]
                    target.parent.mkdir(parents=True, exist_ok=True)
                    np.save(target, np.asanyarray(result), allow_pickle=False)
                print(json.dumps({"step": number, "frame": frame}), flush=True)  # noqa: T201


@contextmanager
def _engine(ort: Any, step: Mapping[str, Any], folder: Path) -> Iterator[_Compute]:
    """Load a step's graph, and yield what computes its outputs from its inputs."""
    graph = Path(step["graph"])
    if step["level"] == _AGENT:
        subnet = open_executor("onnxruntime", folder / _AGENT).load(graph, LoadOptions())
        yield subnet.run
        subnet.close()
        return
    session = _session(ort, graph, step["level"], step["outputs"])
    names = [output.name for output in session.get_outputs() if output.name in step["outputs"]]

    def compute(feed: Mapping[str, Array]) -> dict[str, Array]:
        with engine_errors(ort, str(graph), "run"):
            return dict(zip(names, session.run(names, feed), strict=True))

    yield compute


def with_outputs(model: bytes, wanted: Iterable[str]) -> bytes:
    """Return a serialised model with the inner tensors that are `wanted` as further outputs.

    Protocol buffers merge a message that comes in two pieces, so outputs can be appended.
    """
    made: set[str] = set()
    given: set[str] = set()
    for graph in graphs(memoryview(model)):
        for kind, value in submessages(graph):
            if kind == GraphField.OUTPUT:
                given.add(text_field(value, ValueInfoField.NAME) or "")
            elif kind == GraphField.NODE:
                made.update(texts(value, NodeField.OUTPUT))
    more = [name for name in wanted if name in made - given]
    outputs = b"".join(
        field(GraphField.OUTPUT, field(ValueInfoField.NAME, name.encode())) for name in more
    )
    return model + field(ModelField.GRAPH, outputs) if more else model


def _session(ort: Any, graph: Path, level: str, outputs: Iterable[str]) -> Any:
    with engine_errors(ort, str(graph), "load"):
        content = with_outputs(graph.read_bytes(), outputs)
        return cpu_session(ort, graph, plain_options(ort, is_fused=level == "all"), content)


def _read(path: Path, within: Sequence[tuple[int, int, int]]) -> Array:
    try:
        array: Array = np.load(path, allow_pickle=False)
    except (OSError, ValueError) as error:
        raise ExecutorError(f"{path} cannot be read as an array: {error}") from error
    bounds = {axis: slice(start, stop) for axis, start, stop in within}
    part = array[tuple(bounds.get(axis, slice(None)) for axis in range(array.ndim))]
    # Indexing an array of no axes returned a scalar. ONNX Runtime reads the bytes of an array of
    # the other byte order as if they were in this one.
    return np.asarray(part.astype(part.dtype.newbyteorder("="), copy=False))


def main(arguments: list[str] | None = None) -> int:
    """Run the command; returns its exit code."""
    given = sys.argv[1:] if arguments is None else arguments
    try:
        (file,) = given
        run(json.loads(Path(file).read_text("utf-8")))
    except (ExecutorError, OSError, ValueError) as error:
        print(error, file=sys.stderr)  # noqa: T201
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
