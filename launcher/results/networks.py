"""Gives every network of a run its own inputs, results and comparison.

Most runs have one network. Several that run side by side are merged into one (`cnn.merge`). A frame
is then one input for each of them; this module combines their inputs and separates their results.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from launcher.config.load import Cluster
from launcher.core.stream import ENDLESS
from launcher.inputs.frames import Inputs, Item, Items, open_inputs
from launcher.results.collecting import NetworkState, Results
from launcher.results.comparison.agreement import FirstResults
from launcher.results.comparison.tolerance import Numbers, numbers_of
from launcher.results.journal.ranges import FrameRanges
from launcher.results.outputs import OutputFolder, OutputFolders
from launcher.results.resuming import run_journal
from launcher.results.sample import FrameSample
from launcher.run.parts import Part, parts_of
from launcher.run.request import Request
from launcher.run.runtime import Frame
from launcher.tasks.classes import is_classifier, read_labels, read_truth
from launcher.tasks.opening import kind_of, usual_fitting

if TYPE_CHECKING:
    from cnn.model import Model


def network_numbers(model: Model) -> Numbers:
    """Return the kinds of numbers that the network computes with."""
    network = model.network
    return numbers_of(
        [tensor.dtype for tensor in (*network.tensors.values(), *network.weights.values())],
        model.operators.on_activations(network.layers),
    )


def open_results(
    request: Request, cluster: Cluster, model: Model, folder: Path, stack: ExitStack
) -> Results:
    """Open the inputs and everything that handles results; check files and make folders.

    `folder` is for temporary files; what must be closed is entered into `stack`. The frames of a
    source are not known before; a sample of them is compared if the user asks for that. Raises
    `BadInputError` for inputs that do not suit their network.
    """
    parts, config = parts_of(model), cluster.config
    opened: Sequence[Inputs] = ()
    inputs: Inputs | None = None
    if not config.has_source:
        opened = [_open_part(request, cluster, part) for part in parts]
        inputs = _together(cluster, parts, opened)
    journal = run_journal(request, cluster, model, inputs)
    if journal is not None:
        stack.enter_context(journal)
    elif inputs is not None:
        inputs.check()
    labels, truth = _known_classes(cluster, parts[0], inputs)
    writer: OutputFolders | None = None
    if request.output is not None:
        writers = []
        for index, part in enumerate(parts):
            network = part.model.network
            results_of = OutputFolder(
                request.output if part.is_alone else request.output / part.name,
                part.model.outputs,
                input_name=None if inputs is None else _names(inputs, opened[index]),
                top=request.top if is_classifier(network) else 0,
                labels=labels,
                kept=FrameRanges(() if journal is None else journal.removed.settled),
                resumes=request.resume,
            )
            writers.append((part, stack.enter_context(results_of)))
        writer = OutputFolders(writers)
    first = None
    sample = None
    if config.verify and (inputs is not None or config.verify_every is not None):
        first = FirstResults(folder / "first", network_numbers(model))
        if inputs is None and config.verify_every is not None:
            sample = FrameSample(folder / "sample", config.verify_every, first)
    return Results(
        inputs,
        model.network.outputs,
        writer,
        first,
        truth,
        journal,
        NetworkState(model.network),
        checked=config.check != "none",
        constants=model.constant_outputs,
        frames=config.frames or ENDLESS,
        sample=sample,
    )


def check_inputs(request: Request, cluster: Cluster, model: Model) -> None:
    """Raise `BadInputError` for inputs that a run would refuse."""
    inputs = run_inputs(request, cluster, model)
    inputs.check()
    _known_classes(cluster, parts_of(model)[0], inputs)


def run_inputs(request: Request, cluster: Cluster, model: Model) -> Inputs:
    """Open the files, or the random numbers, that a run streams; raises `BadInputError`."""
    parts = parts_of(model)
    return _together(cluster, parts, [_open_part(request, cluster, part) for part in parts])


def _together(cluster: Cluster, parts: Sequence[Part], opened: Sequence[Inputs]) -> Inputs:
    """Return the inputs of the network that is run."""
    return opened[0] if len(parts) == 1 else side_by_side(parts, opened, cluster.config.frames)


def side_by_side(parts: Sequence[Part], opened: Sequence[Inputs], frames: int | None) -> Inputs:
    """Combine one input of each network into a frame; networks with fewer inputs repeat theirs."""
    count = max(len(inputs.items) for inputs in opened)

    def frame(number: int) -> Callable[[], Frame]:
        return lambda: {
            part.common(name): array
            for part, inputs in zip(parts, opened, strict=True)
            for name, array in inputs.items[number % len(inputs.items)].load().items()
        }

    def name(number: int) -> str:
        return " + ".join(inputs.items[number % len(inputs.items)].name for inputs in opened)

    pairs = zip(parts, opened, strict=True)
    description = "; ".join(f"{part.name}: {inputs.description}" for part, inputs in pairs)
    items = Items(count, lambda number: Item(name(number), frame(number)))
    return Inputs(items, frames or count, description)


def _open_part(request: Request, cluster: Cluster, part: Part) -> Inputs:
    config, network = cluster.config, part.model.network
    own = {} if request.inputs else config.inputs
    where = ("inputs", part.name) if part.name in own else ("input",)
    has_imagenet_pixels, usual_resize = usual_fitting(cluster.task_of(part.name), part.model)
    return open_inputs(
        network,
        own.get(part.name, config.input),
        cluster.folder,
        frames=config.frames,
        seed=config.seed,
        is_classifier=has_imagenet_pixels,
        usual_resize=usual_resize,
        where="--input" if request.inputs else cluster.source.where(where),
    )


def _known_classes(
    cluster: Cluster, part: Part, inputs: Inputs | None
) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """Return the names of the classes and the class of each input, as far as the user gave them."""
    config, network = cluster.config, part.model.network
    has_names = kind_of(cluster.task_of(part.name), part.model) != "none"
    key = "labels" if config.labels and not has_names else "truth" if config.truth else ""
    if key and not is_classifier(network):
        raise cluster.error(
            (key,),
            f"needs a classifier, but {network.name} has other outputs than one score per class; "
            "remove it",
        )
    labels = read_labels(cluster.path(config.labels)) if config.labels is not None else ()
    if config.truth is None:
        return labels, ()
    if inputs is None:
        raise cluster.error(("truth",), "has the class of each file, and a source has no files")
    return labels, read_truth(cluster.path(config.truth), len(inputs.items))


def _names(inputs: Inputs, own: Inputs) -> Callable[[int], str]:
    """Return a function from a frame to the name of one network's input in it."""
    return lambda frame: own.items[inputs.source(frame) % len(own.items)].name
