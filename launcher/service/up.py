"""Runs the service in the foreground until it is asked to end (`launch up`)."""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
import sys
import traceback
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path
from typing import Any

from launcher.config.serve import ServeConfig
from launcher.console import EXIT_INTERRUPTED, print_text
from launcher.errors import EXIT_FAILED, BadInputError, LauncherError
from launcher.files import cannot_write
from launcher.progress import ProgressDisplay
from launcher.serve.listening import TlsFiles, listening, tls_files
from launcher.serve.request_traces import traces_to
from launcher.serve.service import Service
from launcher.service.control import CONTROL, ControlFile
from launcher.service.generations import cluster_of, read_generation
from launcher.service.running import RunningService
from launcher.service.store import Store, open_state
from launcher.signals import stopping_on_signals
from nodes.host.systemd import ServiceManager

CLOSING_S = 20.0
"""How long the releases may take to end; those that remain end with the process."""

SWITCH_INTERVAL_S = 0.0005
"""How long a thread that plans may hold the interpreter while the servers' thread waits for it; by
default ten times as long, which clients would notice at each of a request's steps."""


def add_file(store: Store, path: Path) -> str:
    """Apply a cluster.yaml to the state of a service that does not run; return what was done.

    Raises `BadInputError` for a mistake in it.
    """
    known = store.generations()
    generation = read_generation(path, store, known, may_be_pipe=True).generation
    last = known[-1] if known else None
    if last is not None and (last.models, last.text) == (generation.models, generation.text):
        return f"generation {last.number}, as it was applied before"
    store.add(generation)
    return f"generation {generation.number}, from {path}"


def apply_first(folder: Path, path: Path | None = None) -> list[str]:
    """Apply a cluster.yaml to the state of a service before it is installed; without one, check
    that another was applied. Return what was done; raises `LauncherError`.
    """
    with open_state(folder) as store:
        done = [] if path is None else [add_file(store, path)]
        if store.last() is None:
            raise BadInputError(
                "nothing was applied yet; name the cluster: launch up cluster.yaml --install"
            )
    return done


def up(folder: Path, path: Path | None, progress: ProgressDisplay) -> int:
    """Run the service of a state folder until it is asked to end; return the exit code.

    With a `path`, that cluster.yaml is applied first; without, the last one continues. Raises
    `LauncherError`, and `KeyboardInterrupt` after Ctrl-C once all requests are answered.
    """
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    with open_state(folder) as store:
        if path is not None:
            progress.say(add_file(store, path))
        last = store.last()
        if last is None:
            raise BadInputError(
                f"{folder}: nothing was applied here yet; name the cluster: launch up cluster.yaml"
            )
        cluster = cluster_of(store, last)
        config = cluster.config.serve
        tls = tls_files(cluster, config)
        (folder / CONTROL).unlink(missing_ok=True)  # of a process that was killed
        try:
            with ExitStack() as signals:
                number = asyncio.run(_run(store, config, tls, progress, signals))
        finally:
            (folder / CONTROL).unlink(missing_ok=True)
    if number == signal.SIGINT:
        raise KeyboardInterrupt
    return 0


async def _run(
    store: Store,
    config: ServeConfig,
    tls: TlsFiles | None,
    progress: ProgressDisplay,
    signals: ExitStack,
) -> int | None:
    """Serve until a signal or an operator ends it; return the signal's number, None if none did.

    Until `signals` is closed, only a second SIGINT counts after it, which ends the process.
    """
    manager = ServiceManager()
    token = secrets.token_urlsafe(32)
    service = RunningService(store, token, progress, manager)
    loop = asyncio.get_running_loop()
    stopped: asyncio.Future[None] = loop.create_future()
    by = signals.enter_context(
        stopping_on_signals(
            lambda: loop.call_soon_threadsafe(stopped.set_result, None),
            (signal.SIGINT, signal.SIGTERM),
            again=lambda: os._exit(EXIT_INTERRUPTED),
        )
    )
    _apply_on_hangup(service)
    keeping = asyncio.create_task(service.run())
    served = Service(
        service.routes,
        config.token,
        control=service,
        views=service.views,
        metrics_are_open=config.metrics == "open",
    )
    addresses = {"http": ("127.0.0.1", 0), **config.addresses}
    try:
        async with AsyncExitStack() as stack:
            served.traces = stack.enter_context(traces_to(config.traces))
            urls = await stack.enter_async_context(
                listening(
                    served,
                    addresses,
                    cors_origins=config.cors_origins,
                    tls=tls,
                    most_in_flight=config.most_in_flight * 16,
                )
            )
            _write_control(store.folder, urls["http"], token, tls, progress)
            progress.say(f"serving at {', '.join(urls.values())}; state in {store.folder}")
            service.start()
            manager.ready()
            over = asyncio.create_task(service.is_over.wait())
            ends: list[asyncio.Future[Any]] = [over, stopped, keeping]
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            over.cancel()
            if keeping.done():
                _end_at_once(keeping, progress)
            progress.say("ending: requests under way are answered")
    finally:
        if not keeping.done():
            await _stopped(service, progress)
        keeping.cancel()
    return by.number


def _end_at_once(keeping: asyncio.Task[None], progress: ProgressDisplay) -> None:
    """End the process after an internal error: nothing closes its runs."""
    error = keeping.exception()
    progress.say("".join(traceback.format_exception(error)), "error")
    os._exit(EXIT_FAILED)


async def _stopped(service: RunningService, progress: ProgressDisplay) -> None:
    try:
        await asyncio.wait_for(service.stop(), CLOSING_S)
    except asyncio.TimeoutError:
        progress.say("not everything has ended in time; it ends with this process", "warning")
        os._exit(0)  # agents that were started end when their standard input closes


def _write_control(
    folder: Path, url: str, token: str, tls: TlsFiles | None, progress: ProgressDisplay
) -> None:
    certificate = None if tls is None else str(tls[0])
    for every, own in (("//0.0.0.0:", "//127.0.0.1:"), ("//[::]:", "//[::1]:")):
        url = url.replace(every, own)
    try:
        ControlFile(url, token, os.getpid(), certificate).write(folder)
    except OSError as error:
        progress.say(
            f"{folder / CONTROL}: {cannot_write(error)}; until this service is started again, "
            "it serves, and no command can reach it",
            "error",
        )


def _apply_on_hangup(service: RunningService) -> None:
    """Let SIGHUP apply the file again."""
    loop = asyncio.get_running_loop()
    applying: set[asyncio.Task[None]] = set()

    def apply() -> None:
        task = loop.create_task(service.apply_again())
        applying.add(task)
        task.add_done_callback(applying.discard)

    loop.add_signal_handler(signal.SIGHUP, apply)


def _main(folder: str, *path: str) -> None:
    """Apply a file as the user who runs this; see `launcher.service.unit`."""
    try:
        print_text("".join(f"{line}\n" for line in apply_first(Path(folder), *map(Path, path))))
    except LauncherError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    _main(*sys.argv[1:])
