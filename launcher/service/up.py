"""Runs the service in the foreground until it is asked to end (`launch up`)."""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
import sys
import traceback
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

from launcher.config.serve import ServeConfig
from launcher.console import EXIT_INTERRUPTED, print_text
from launcher.errors import EXIT_FAILED, BadInputError, LauncherError
from launcher.files import cannot_write
from launcher.progress import ProgressDisplay
from launcher.serve.listening import TlsFiles, tls_files
from launcher.serve.request_traces import traces_to
from launcher.serve.service import Service
from launcher.serve.serving import answer, overridden
from launcher.service.control import CONTROL, ControlFile
from launcher.service.generations import cluster_of, read_generation
from launcher.service.running import RunningService
from launcher.service.store import Store, open_state
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


def up(
    folder: Path, path: Path | None, given: Mapping[str, object], progress: ProgressDisplay
) -> int:
    """Run the service of a state folder until it is asked to end; return the exit code.

    With a `path`, that cluster.yaml is applied first; without, the last one continues. `given`
    overrides keys of the section `serve` of its file. Raises `LauncherError`, and
    `KeyboardInterrupt` after Ctrl-C once all requests are answered.
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
        config = overridden(cluster.config.serve, given)
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
    _apply_on_hangup(service)
    keeping = asyncio.create_task(service.run())
    keeping.add_done_callback(lambda task: _end_at_once(task, progress))

    def begun(urls: Mapping[str, str]) -> None:
        _write_control(store.folder, urls["http"], token, tls, progress)
        progress.say(f"serving at {', '.join(urls.values())}; state in {store.folder}")
        service.start()
        manager.ready()

    try:
        with traces_to(config.traces) as traces:
            served = Service(
                service.routes,
                config.token,
                sinks=service.ends.sinks,
                control=service,
                views=service.views,
                traces=traces,
                metrics_are_open=config.metrics == "open",
            )
            return await answer(
                served,
                config,
                tls,
                signals,
                most=config.most_in_flight * 16,
                ends=[service.is_over],
                begun=begun,
                say=progress.say,
                addresses={"http": ("127.0.0.1", 0), **config.addresses},
                numbers=(signal.SIGINT, signal.SIGTERM),
                again=lambda: os._exit(EXIT_INTERRUPTED),
            )
    finally:
        await _stopped(service, progress)
        keeping.cancel()


def _end_at_once(keeping: asyncio.Task[None], progress: ProgressDisplay) -> None:
    """End the process after an internal error: nothing closes its runs."""
    if keeping.cancelled() or (error := keeping.exception()) is None:
        return
    try:
        progress.say("".join(traceback.format_exception(error)), "error")
    finally:  # also where nobody reads what is said
        os._exit(EXIT_FAILED)


async def _stopped(service: RunningService, progress: ProgressDisplay) -> None:
    try:
        await asyncio.wait_for(service.stop(), CLOSING_S)
    except asyncio.TimeoutError:
        progress.say("not everything ended in time; the rest ends with this process", "warning")
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
            f"{folder / CONTROL}: {cannot_write(error)}; this service serves, but no command can "
            "reach it until it is started again",
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
