"""Opens a cluster and serves its models until a signal comes or the cluster can compute no more."""

from __future__ import annotations

import asyncio
import functools
import os
import signal
import ssl
import sys
from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from types import FrameType
from typing import Any

from pydantic import ValidationError

from cnn.model import Model
from launcher.config.load import Cluster
from launcher.config.serve import ServeConfig
from launcher.console import print_text
from launcher.errors import BadInputError
from launcher.progress import ProgressDisplay
from launcher.run.job import load_target
from launcher.run.live_cluster import LiveCluster, open_cluster
from launcher.run.request import Request
from launcher.serve.http_server import http_server
from launcher.serve.served_sinks import ServedSinks, open_served_sinks
from launcher.serve.service import Service
from launcher.serve.tensors import ModelRepository, ServedModel
from launcher.sinks.opening import takes_standard_output
from launcher.streaming.reading import Say
from launcher.tasks.opening import open_task
from nodes.host.heap import give_back_free_memory

os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # it is read once, when grpcio is imported
from launcher.serve.grpc_server import grpc_server

REFUSALS = 64
"""gRPC calls that there may be beyond those under way: to be refused, or to ask something else."""


def serve(request: Request, given: Mapping[str, object], progress: ProgressDisplay) -> int:
    """Serve the models of the cluster or plan that `request` names; return the exit code.

    `given` overrides keys of the section `serve` of its file. Raises `LauncherError`, and
    `KeyboardInterrupt` after Ctrl-C once all requests under way are answered.
    """
    cluster = load_target(request).cluster
    config = _config(cluster.config.serve, given)
    _check_models(cluster)
    tls = _tls(cluster, config)
    with (
        open_served_sinks(cluster, config.most_in_flight, progress.say) as sinks,
        open_cluster(
            request,
            progress,
            most=config.most_in_flight,
            check=functools.partial(_decode, sinks, cluster),
            is_service=True,
        ) as live,
    ):
        give_back_free_memory()  # that planning needed
        service = Service(live, _repository(cluster, live), config.token, sinks=sinks)
        say = progress.say if takes_standard_output(cluster) else _print_line
        number = asyncio.run(_until_stopped(service, config, tls, say))
    if number == signal.SIGINT:
        raise KeyboardInterrupt
    return 0


def _decode(sinks: ServedSinks, cluster: Cluster, model: Model) -> None:
    """Have the results that go to sinks decoded by the task of `cluster.yaml`."""
    if cluster.config.sinks:
        sinks.task = open_task(cluster, model)


def _config(section: ServeConfig, given: Mapping[str, object]) -> ServeConfig:
    try:
        config = ServeConfig.model_validate({**section.model_dump(), **given})
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        option = "".join(f"--{key}: ".replace("_", "-") for key in first["loc"][:1])
        raise BadInputError(option + first["msg"].removeprefix("Value error, ")) from None
    if (unsafe := config.what_is_unsafe()) is not None:
        raise BadInputError(unsafe)
    return config


def _check_models(cluster: Cluster) -> None:
    """Raise `BadInputError` for networks that cannot be served."""
    for model in cluster.models:
        if model.config.state:
            raise cluster.error(
                (*model.location, "state"),
                "the network keeps state from frame to frame, which requests of several clients "
                "would mix; serve takes networks without state",
            )


def _repository(cluster: Cluster, live: LiveCluster) -> ModelRepository:
    """The models by the names of their networks, with the versions that the file gives them."""
    version = {model.name: str(model.config.version) for model in cluster.models}
    networks = map(live.model, live.models)
    return ModelRepository(
        tuple(ServedModel(n.name, n.inputs, n.outputs, version[n.name]) for n in networks)
    )


def _tls(cluster: Cluster, config: ServeConfig) -> tuple[Path, Path] | None:
    """The files of the certificate and its key, which fit each other."""
    if config.tls_certificate is None or config.tls_key is None:
        return None
    files = cluster.path(config.tls_certificate), cluster.path(config.tls_key)
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(*files)
    except OSError as error:  # ssl.SSLError is one
        names = " and ".join(map(str, files))
        raise BadInputError(f"{names}: no certificate with its key: {error}") from error
    return files


async def _until_stopped(
    service: Service, config: ServeConfig, tls: tuple[Path, Path] | None, say: Say
) -> int:
    """Serve, and `say` where; return the number of the signal that stopped it.

    Raises what the cluster or a sink ended with.
    """
    stopped: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    _stop_on_signals(stopped)
    async with AsyncExitStack() as stack:
        served = []
        for kind, (host, port) in config.addresses.items():
            try:
                if kind == "http":
                    server = http_server(
                        service, host, port, tls=_context(tls), cors_origins=config.cors_origins
                    )
                else:
                    pem = tls and (tls[1].read_bytes(), tls[0].read_bytes())
                    most = config.most_in_flight * len(service.repository.models) + REFUSALS
                    server = grpc_server(service, host, port, tls=pem, most=most)
                bound = await stack.enter_async_context(server)
            except OSError as error:
                raise BadInputError(
                    f"{kind} at {host}:{port}: cannot be listened at: {error.strerror or error}"
                ) from error
            shown = f"[{host}]" if ":" in host else host
            served.append(f"{kind}{'s' if tls else ''}://{shown}:{bound}")
        say(f"serving {', '.join(service.cluster.models)}: {', '.join(served)}")
        ends: list[asyncio.Future[Any]] = [asyncio.wrap_future(service.cluster.ended)]
        if service.sinks is not None:
            ends.append(asyncio.wrap_future(service.sinks.failed))
        await asyncio.wait([stopped, *ends], return_when=asyncio.FIRST_COMPLETED)
        if not stopped.done():
            for end in ends:
                if end.done():
                    end.result()
    return stopped.result()


def _print_line(text: str) -> None:
    print_text(text + "\n")
    sys.stdout.flush()


def _context(tls: tuple[Path, Path] | None) -> ssl.SSLContext | None:
    if tls is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*tls)
    return context


def _stop_on_signals(stopped: asyncio.Future[int]) -> None:
    """Let the first SIGINT, SIGTERM or SIGHUP set `stopped`; after it, only SIGINT still counts."""
    loop = asyncio.get_running_loop()

    def stop(number: int, _: FrameType | None) -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        loop.call_soon_threadsafe(stopped.set_result, number)

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, stop)
