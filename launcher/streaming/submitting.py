"""Submits a source's frames to the networks of a cluster.

A frame of several networks has the inputs of all, each under its network's name (`detector/image`),
and its result has the outputs likewise. The result is complete once every network's has arrived.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from functools import partial

from cnn.merge import part_name
from launcher.errors import BadInputError
from launcher.run.runtime import Array
from launcher.streaming.live_cluster import LiveCluster
from launcher.streaming.source_stream import Outputs, Submit


def submit_to(cluster: LiveCluster) -> Submit:
    """Return the function that submits a frame to `cluster`; arrays are not copied.

    It raises what `LiveModel.submit` does. An array whose name is empty is the only input.
    """
    return _submit_to_all(cluster) if len(cluster.models) > 1 else _submit_to_one(cluster)


def _submit_to_one(cluster: LiveCluster) -> Submit:
    def submit(inputs: Mapping[str, Array]) -> Future[Outputs]:
        if set(inputs) == {""} and len(cluster.inputs) == 1:
            inputs = dict(zip(cluster.inputs, inputs.values(), strict=True))
        return cluster.submit(inputs, copy=False)

    return submit


def _submit_to_all(cluster: LiveCluster) -> Submit:
    own_names = {
        name: {part_name(name, own): own for own in cluster.model(name).inputs}
        for name in cluster.models
    }
    known = [full for names in own_names.values() for full in names]

    def submit(inputs: Mapping[str, Array]) -> Future[Outputs]:
        for name in inputs:
            if name not in known:
                raise BadInputError(f"no network has an input {name!r}; there are {known}")
        frames = {
            name: {own: inputs[full] for full, own in names.items() if full in inputs}
            for name, names in own_names.items()
        }
        futures: dict[str, Future[Outputs]] = {}
        try:
            for name, frame in frames.items():
                futures[name] = cluster.model(name).submit(frame, copy=False)
        except BaseException:
            for future in futures.values():
                future.cancel()
            raise
        return joined(futures)

    return submit


def joined(futures: Mapping[str, Future[Outputs]]) -> Future[Outputs]:
    """Return the future of all outputs, or of the first error.

    Where it ends without all outputs, by an error or because it is cancelled, so do the others.
    """
    whole: Future[Outputs] = Future()
    parts: dict[str, Outputs] = {}
    lock = threading.Lock()

    def done(name: str, future: Future[Outputs]) -> None:
        with suppress(InvalidStateError):  # it has ended before
            try:
                outputs = future.result()
            except BaseException as error:  # noqa: BLE001 - raised where it is waited for
                whole.set_exception(error)
                return
            with lock:
                parts[name] = outputs
                is_complete = len(parts) == len(futures)
            if is_complete:
                whole.set_result(
                    {
                        part_name(name, own): parts[name][own]
                        for name in futures
                        for own in parts[name]
                    }
                )

    def ended(_: object) -> None:
        if whole.cancelled():
            whole.set_running_or_notify_cancel()
        for future in futures.values():
            future.cancel()

    whole.add_done_callback(ended)
    for name, future in futures.items():
        future.add_done_callback(partial(done, name))
    return whole
