"""Serves the models of a cluster until a signal comes or the cluster can compute no more."""

from __future__ import annotations

import asyncio
import functools
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
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
from launcher.run.parts import parts_of
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
from launcher.signals import ENDING, stopping_on_signals
from launcher.sinks.opening import takes_standard_output
from launcher.streaming.job import run_record
from launcher.streaming.live_cluster import open_cluster
from launcher.streaming.target import load_target
from launcher.tasks.opening import Task, open_task
from nodes.host.heap import give_back_free_memory


def serve(request: Request, given: Mapping[str, object], progress: ProgressDisplay) -> int:
    """Serve the models of the cluster or plan that `request` names; return the exit code.

    `given` overrides keys of the section `serve` of its file. Raises `LauncherError`, and
    `KeyboardInterrupt` after Ctrl-C once all requests in flight are answered.
    """
    cluster = load_target(request).cluster
    config = overridden(cluster.config.serve, given)
    check_stateless(cluster)
    tls = tls_files(cluster, config)
    check_can_listen(config.addresses)
    tasks: dict[str, Task] = {}
    with (
        ExitStack() as signals,
        traces_to(config.traces) as traces,
        _delivering(open_served_sinks(cluster, config.most_in_flight, progress.say)) as sinks,
        open_cluster(
            request,
            progress,
            most=config.most_in_flight,
            check=functools.partial(_open_tasks, tasks, sinks, cluster),
            follows=config.traces is not None,
            is_service=True,
        ) as live,
    ):
        give_back_free_memory()  # that planning needed
        versions = {model.name: str(model.config.version) for model in cluster.models}
        routes = fixed_routes(live, versions, tasks)
        service = Service(routes, config.token, sinks=sinks, traces=traces)
        service.views = lambda: (live.view(),)
        service.metrics_are_open = config.metrics == "open"
        models = ", ".join(live.models)
        say = progress.say if takes_standard_output(cluster) else _print_line
        record = run_record(cluster, live.plan, live.models)
        with RunRecorder(request.report, live.view, record) as recorder:
            number = asyncio.run(
                answer(
                    service,
                    config,
                    tls,
                    signals,
                    most=config.most_in_flight * len(live.models),
                    ends=[live.ended, *(end for each in sinks.values() for end in each.running)],
                    begun=lambda urls: say(f"serving {models}: {', '.join(urls.values())}"),
                    say=progress.say,
                )
            )
        record = recorder.record
        if record.view is not None:
            recorder.write(replace(record, compared=of_view(record.view, live.plan)))
    if number == signal.SIGINT:
        raise KeyboardInterrupt
    return 0


@contextmanager
def _delivering(sinks: dict[str, ServedSinks]) -> Iterator[dict[str, ServedSinks]]:
    with ExitStack() as stack:
        for each in sinks.values():
            stack.enter_context(each)
        yield sinks


def _open_tasks(
    tasks: dict[str, Task], sinks: Mapping[str, ServedSinks], cluster: Cluster, model: Model
) -> None:
    """Fill `tasks` with the task of each network, which decodes what goes to its sinks as well."""
    for part in parts_of(model):
        tasks[part.name] = open_task(cluster, part.model)
        if part.name in sinks:
            sinks[part.name].task = tasks[part.name]


def overridden(section: ServeConfig, given: Mapping[str, object]) -> ServeConfig:
    """Return the section `serve` with the keys that options have given; raises `BadInputError`."""
    try:
        config = ServeConfig.model_validate({**section.model_dump(), **given})
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        option = "".join(f"--{key}: ".replace("_", "-") for key in first["loc"][:1])
        raise BadInputError(option + first["msg"].removeprefix("Value error, ")) from None
    if (unsafe := config.what_is_unsafe()) is not None:
        raise BadInputError(unsafe)
    return config


async def answer(
    service: Service,
    config: ServeConfig,
    tls: TlsFiles | None,
    signals: ExitStack,
    *,
    most: int,
    ends: Iterable[Future[Any] | asyncio.Future[Any]],
    begun: Callable[[Mapping[str, str]], None],
    say: Say,
    addresses: Mapping[str, tuple[str, int]] | None = None,
    numbers: Sequence[signal.Signals] = ENDING,
    again: Callable[[], object] | None = None,
) -> int | None:
    """Answer requests until a signal comes or one of `ends` is done; return the signal's number.

    `begun` gets the URLs once requests are answered, at `addresses` or else those of `config`; gRPC
    takes `most` requests. Until `signals` is closed, only a second Ctrl-C counts after the first of
    the signals `numbers`; it calls `again`. Raises what an end raises.
    """
    loop = asyncio.get_running_loop()
    stopped: asyncio.Future[None] = loop.create_future()

    def stop() -> None:
        loop.call_soon_threadsafe(stopped.set_result, None)

    by = signals.enter_context(stopping_on_signals(stop, numbers, again=again))
    async with listening(
        service,
        addresses or config.addresses,
        cors_origins=config.cors_origins,
        tls=tls,
        most_in_flight=most,
    ) as urls:
        begun(urls)
        own = [asyncio.wrap_future(end) for end in ends]
        done, _ = await asyncio.wait([stopped, *own], return_when=asyncio.FIRST_COMPLETED)
        for end in own:
            if end not in done:
                end.cancel()  # else it would wake the loop when that is closed
        if stopped not in done:
            for end in done:
                end.result()
        say("ending: requests under way are answered")
    return by.number


def _print_line(text: str) -> None:
    print_text(text + "\n")
    sys.stdout.flush()
