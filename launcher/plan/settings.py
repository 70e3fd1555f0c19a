"""Reads the model that a cluster names, and derives strategy, encodings and run options from it."""

from __future__ import annotations

from cnn.errors import CnnError
from cnn.merge import merge
from cnn.model import Model, read
from cnn.network import Network
from ga.strategies import STRATEGIES
from launcher.config.load import Cluster
from launcher.config.mistakes import suggestion
from launcher.errors import BadInputError
from launcher.quantities import megabytes, operations
from launcher.run.runtime import RunOptions
from partition.wire import COSTS, LOSSLESS_DEVIATION, LOSSY, WirePolicy, encoding_of


def read_model(cluster: Cluster) -> Model:
    """Read the model that the cluster names, or merge all of them (`cnn.merge`).

    Raises `BadInputError`, with the line, if one cannot be used.
    """
    models = []
    for wanted in cluster.models:
        config = wanted.config
        try:
            found = read(
                wanted.path,
                input_shapes=config.input_shape,
                seed=config.fill_seed,
                outputs=config.outputs,
                inputs=config.inputs,
                state=config.state,
            )
        except CnnError as error:
            raise cluster.error(wanted.location, str(error)) from error
        models.append(found.with_name(wanted.name))
    try:
        return merge(models)
    except CnnError as error:
        raise cluster.error(("model",), str(error)) from error


def run_options(cluster: Cluster) -> RunOptions:
    """Return the run options of a cluster, without `replan`, which recovery needs too."""
    run, usual = cluster.config.run, RunOptions()
    wait_s = usual.start_wait_s if run.start_wait_s is None else run.start_wait_s
    return RunOptions(run, cluster.config.recovery, start_wait_s=wait_s)


def wire_of(cluster: Cluster) -> WirePolicy:
    """Return how tensors between the cluster's nodes may be encoded.

    Raises `BadInputError` if that changes results and the user has not set a tolerance.
    """
    config = cluster.config
    of_node = {node.name: node.wire for node in config.nodes if node.wire is not None}
    if config.verify and config.tolerance is None:
        for location, wire in (
            (("wire",), config.wire),
            *((("nodes", i, "wire"), node.wire) for i, node in enumerate(config.nodes)),
        ):
            if wire is not None and wire in LOSSY:
                usual = COSTS[encoding_of(wire)].deviation
                raise cluster.error(
                    location,
                    f"{wire} changes results: give the largest relative difference that you "
                    f"allow, such as `tolerance: {usual:g}`, or write lossless",
                )
    tolerance = LOSSLESS_DEVIATION if config.tolerance is None else config.tolerance
    return WirePolicy(config.wire, of_node, tolerance)


def check_strategy(cluster: Cluster) -> None:
    """Raise `BadInputError`, which suggests others, if the cluster names an unknown one."""
    if mistake := _unknown(cluster.config.strategy):
        raise cluster.error(("strategy",), mistake)


def check_strategy_option(option: str, name: str) -> None:
    """Raise `BadInputError`, which suggests others, if an option names an unknown one."""
    if mistake := _unknown(name):
        raise BadInputError(f"{option}: {mistake}")


def _unknown(name: str) -> str:
    if name in STRATEGIES:
        return ""
    known = sorted(STRATEGIES)
    return f"unknown strategy {name!r}" + (
        suggestion(name, known) or f"; known are {', '.join(known)}"
    )


def summary(network: Network, filled_seed: int | None) -> str:
    """Describe a network in one line."""
    weights = sum(tensor.bytes for tensor in network.weights.values())
    macs = sum(layer.macs for layer in network.layers)
    text = (
        f"{network.name}: {len(network.layers)} layers, {megabytes(weights)} of weights, "
        f"{operations(macs)} multiply-accumulates per frame"
    )
    if filled_seed is not None:
        text += f"; the file has no weights, they were drawn with seed {filled_seed}"
    return text
