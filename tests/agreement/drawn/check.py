"""Check that one network, simplified, rewritten and cut, computes what its file computes.

The launcher's own rules decide whether results are the same (`launcher.results.comparison`),
doubtful ones included. If they reject a run that is correct, this false alarm counts as a failure
too.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np
import onnx

import cnn
from cnn.operators.bodies import reads
from cnn.rewrite.rewrites import Copies, Rewrite
from csdf.conversion.from_network import convert
from launcher.results.comparison.tolerance import Outputs, WorstOutput, strict
from launcher.results.networks import network_numbers
from partition.plan import dealing_of
from tests.agreement.drawn import settled
from tests.agreement.drawn.case import Case, Division, Found
from tests.agreement.drawn.engine import Graph, Prepared, frames
from tests.agreement.drawn.network import Drawn
from tests.rewriting import random_rewrite

Kind = Literal["agrees", "skipped", "refused", "disagrees", "fails"]

REFUSED = {
    r"depends on the data": "a shape that depends on the data (not yet)",
    r"is made by no layer from": "an output that no input reaches (not yet)",
}
"""What may be refused though ONNX Runtime runs it: a part of the sentence, and why."""


ENGINE = {
    "this was a trial with": "a trial with zeros, which a subnet need not take",
}
"""Faults of the engine that keep subnets from being loaded: a part of its message, and which."""


@dataclass(frozen=True)
class Outcome:
    """The outcome for a network; `rules` are those by which differing results still agree."""

    seed: int
    kind: Kind
    reason: str = ""
    rules: tuple[str, ...] = ()
    idioms: tuple[str, ...] = field(default=(), repr=False)


Divide = Callable[[cnn.Model, random.Random], Division]
"""How a network is divided."""


def divided_at_random(model: cnn.Model, dice: random.Random) -> Division:
    """Divide a model at random: unchanged, or after up to four rewrites, on two to four devices."""
    rewrites: list[Rewrite] = []
    if dice.random() < 0.1:
        rewrites.append(Copies(tuple(dice.randint(1, 2) for _ in range(2))))
    rewritten = model.rewritten(rewrites) if rewrites else model
    for _ in range(dice.randint(0, 4)):
        rewrite = random_rewrite(rewritten, dice)
        if rewrite is not None:
            rewrites.append(rewrite)
            rewritten = rewritten.rewritten([rewrite])
    return _dealt(rewrites, rewritten, dice)


def check(
    drawn: Drawn,
    folder: Path,
    tell: Callable[[str], None] = lambda _: None,
    divide: Divide = divided_at_random,
    *,
    prepared: bool = False,
) -> Outcome:
    """Read, compare, rewrite, cut and compare again.

    Subnets that are `prepared` are loaded from what the engine has written of them, as agents do.

    `tell` is called with whose turn it is, so that if the process dies, it is known whether the
    engine was running the `original` or `ours`.
    """

    def outcome(kind: Kind, reason: str = "", rules: Sequence[str] = ()) -> Outcome:
        return Outcome(drawn.seed, kind, reason, tuple(rules), drawn.idioms)

    tell("original")
    given = frames(drawn.inputs, drawn.seed, half=drawn.half)
    serialised = drawn.model.SerializeToString()
    try:
        if drawn.model.opset_import[0].domain != "ai.onnx":  # which its checker does not know
            onnx.checker.check_model(drawn.model, full_check=True)
        original = Graph(serialised)
        wanted = [original.run(frame) for frame in given]
    except Exception as error:  # noqa: BLE001 - its exceptions share no base
        return outcome("skipped", _in_short(error))
    tell("ours")
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "model.onnx"
    file.write_bytes(serialised)
    shapes = {x.name: drawn.inputs[x.name].shape for x in drawn.model.graph.input
              if x.name in drawn.inputs}  # fmt: skip
    try:
        model = cnn.read(file, input_shapes=read_ones(drawn.model, shapes))
    except cnn.ModelError as error:
        known = [reason for text, reason in REFUSED.items() if re.search(text, str(error))]
        return outcome("refused", *known) if known else outcome("fails", str(error))
    rules: list[str] = []
    try:
        for found in _compared(
            Case(model, given, wanted, folder, Prepared if prepared else Graph), drawn.seed, divide
        ):
            if not found.agrees:
                return outcome("disagrees", found.words)
            rules.append(found.rule)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is reported with its seed
        faults = [reason for text, reason in ENGINE.items() if re.search(text, str(error))]
        if faults:
            return outcome("refused", *faults)
        return outcome("fails", f"{type(error).__name__}: {_in_short(error)}")
    return outcome("agrees", rules=rules)


def read_ones(
    model: onnx.ModelProto, shapes: Mapping[str, tuple[int, ...]]
) -> dict[str, tuple[int, ...]]:
    """Remove the inputs that the model does not read."""
    read = {name for node in model.graph.node for name in reads(node)}
    return {name: shape for name, shape in shapes.items() if name in read}


def _in_short(error: Exception) -> str:
    return " ".join(str(error).split())[:300]


def _compared(case: Case, seed: int, divide: Divide) -> Iterator[Found]:
    """Compare the simplified whole, then its division."""
    network = case.model.network
    whole = case.model.cut(network.layer, network.inputs, network.outputs, case.folder)
    graph = case.load(whole.graph)
    made = [graph.run(frame) for frame in case.frames]
    yield settled.simplified(case, whole.graph, made)
    yield _divided(case, divide(case.model, random.Random(seed)))


def _dealt(rewrites: Sequence[Rewrite], rewritten: cnn.Model, dice: random.Random) -> Division:
    """Assign layers one by one to any device, or in runs; each copy of a network to devices of its
    own.
    """
    devices, alone = dice.randint(2, 4), dice.random() < 0.25
    device, found = 0, {}
    for layer in rewritten.network.layers:
        if alone or dice.random() < 0.3:
            device = dice.randrange(devices)
        copied = rewrites and isinstance(rewrites[0], Copies)
        copy = layer.outputs[0].rpartition("@")[2][:1] if copied else ""
        found[layer.name] = f"d{device}{'abc'[int(copy)] if copy else ''}"
    return Division(tuple(rewrites), rewritten, found)


def _divided(case: Case, division: Division) -> Found:
    """Run the subnets one by one and compare them with the file."""
    model = division.model
    dataflow = convert(model.network, division.assignment, dealing_of(division.rewrites))
    graphs = [
        case.load(model.cut(phase.layers, phase.inputs, phase.outputs, case.folder).graph)
        for phase in dataflow.phases
    ]
    network = case.model.network
    numbers = network_numbers(case.model)
    doubtful: dict[int, WorstOutput] = {}
    results: dict[int, Outputs] = {}
    for number, (frame, wanted) in enumerate(zip(case.frames, case.wanted, strict=True)):
        held: dict[str, np.ndarray] = {}
        for names in division.copies(network.inputs):
            held |= {called: frame[name] for name, called in names.items()}
        for graph in graphs:
            held |= graph.run(held)
        for names in division.copies(network.outputs):
            found = {name: held[called] for name, called in names.items()}
            verdict = strict(found, wanted, numbers)
            if not verdict.agrees:
                doubtful[number], results[number] = verdict, found
    if not doubtful:
        return Found(True, "precision")
    return settled.doubts(case, division, doubtful, results)
