"""Opens a cluster and serves its models until a signal comes or the cluster can compute no more."""

from __future__ import annotations

import asyncio
import functools
import signal
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

from pydantic import ValidationError

from cnn.model import Model
from launcher.config.load import Cluster
from launcher.config.serve import ServeConfig
from launcher.console import print_text
from launcher.errors import BadInputError
from launcher.progress import ProgressDisplay, Say
from launcher.results.page.comparison import of_view
from launcher.results.page.recording import RunRecorder
from launcher.run.request import Request
from launcher.serve.listening import (
    TlsFiles,
    check_can_listen,
    check_stateless,
    listening,
    tls_files,
)
from launcher.serve.request_traces import traces_to
from launcher.serve.routes import fixed_routes
from launcher.serve.served_sinks import ServedSinks, open_served_sinks
from launcher.serve.service import Service
from launcher.signals import stopping_on_signals
from launcher.sinks.opening import takes_standard_output
from launcher.streaming.job import load_target, run_record
from launcher.streaming.live_cluster import LiveCluster, open_cluster
from launcher.tasks.opening import open_task
from nodes.host.heap import give_back_free_memory


def serve(request: Request, given: Mapping[str, object], progress: ProgressDisplay) -> int:
    """Serve the models of the cluster or plan that `request` names; return the exit code.

    `given` overrides keys of the section `serve` of its file. Raises `LauncherError`, and
    `KeyboardInterrupt` after Ctrl-C once all requests in flight are answered.
    """
    cluster = load_target(request).cluster
    config = _config(cluster.config.serve, given)
    check_stateless(cluster)
    tls = tls_files(cluster, config)
    check_can_listen(config.addresses)
    with (
        ExitStack() as signals,
        traces_to(config.traces) as traces,
        open_served_sinks(cluster, config.most_in_flight, progress.say) as sinks,
        open_cluster(
            request,
            progress,
            most=config.most_in_flight,
            check=functools.partial(_decode, sinks, cluster),
            follows=config.traces is not None,
            is_service=True,
        ) as live,
    ):
        give_back_free_memory()  # that planning needed
        versions = {model.name: str(model.config.version) for model in cluster.models}
        service = Service(fixed_routes(live, versions), config.token, sinks=sinks, traces=traces)
        service.views = lambda: (live.view(),)
        service.metrics_are_open = config.metrics == "open"
        say = progress.say if takes_standard_output(cluster) else _print_line
        record = run_record(cluster, live.plan, live.models)
        with RunRecorder(request.report, live.view, record) as recorder:
            number = asyncio.run(_until_stopped(service, live, config, tls, say, signals))
        record = recorder.record
        if record.view is not None:
            recorder.write(replace(record, compared=of_view(record.view, live.plan)))
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


async def _until_stopped(
    service: Service,
    live: LiveCluster,
    config: ServeConfig,
    tls: TlsFiles | None,
    say: Say,
    signals: ExitStack,
) -> int | None:
    """Serve, and `say` where; return the number of the signal that stopped it.

    Until `signals` is closed, it is the only one that counts. Raises what the cluster or a sink
    ended with.
    """
    loop = asyncio.get_running_loop()
    stopped: asyncio.Future[None] = loop.create_future()
    by = signals.enter_context(
        stopping_on_signals(lambda: loop.call_soon_threadsafe(stopped.set_result, None))
    )
    most = config.most_in_flight * len(live.models)
    async with listening(
        service, config.addresses, cors_origins=config.cors_origins, tls=tls, most_in_flight=most
    ) as served:
        say(f"serving {', '.join(live.models)}: {', '.join(served.values())}")
        ends: list[asyncio.Future[Any]] = [asyncio.wrap_future(live.ended)]
        if service.sinks is not None:
            ends.append(asyncio.wrap_future(service.sinks.failed))
        await asyncio.wait([stopped, *ends], return_when=asyncio.FIRST_COMPLETED)
        if not stopped.done():
            for end in ends:
                if end.done():
                    end.result()
    return by.number


def _print_line(text: str) -> None:
    print_text(text + "\n")
    sys.stdout.flush()
