"""Carries out the service's commands.

Slow imports wait until they are needed, so that `--help` and `status` answer at once.
"""

from __future__ import annotations

import json
import os
import re
import select
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from launcher.clock import as_local_time
from launcher.commands.service.options import (
    ApplyOptions,
    DownOptions,
    LogsOptions,
    RestartOptions,
    RollbackOptions,
    ServiceOptions,
    StatusOptions,
    UpOptions,
)
from launcher.console import print_json, print_text
from launcher.errors import EXIT_FAILED, EXIT_FINE, BadInputError, LauncherError

if TYPE_CHECKING:
    from launcher.service.control import ServiceClient

EXIT_DEGRADED = 3

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")

ENDING_S = 90.0
"""How long `launch down` waits for the end."""


def _folder(options: ServiceOptions) -> Path:
    from launcher.service.store import default_folder, system_folder  # noqa: PLC0415

    if not _NAME.fullmatch(options.name):
        raise BadInputError(
            f"--name {options.name!r}: use 1 to 64 letters, digits, '.', '_' and '-', beginning "
            "with a letter or digit"
        )
    if options.state is not None:
        return Path(os.path.expanduser(options.state)).absolute()
    own = default_folder(options.name)
    system = system_folder(options.name)
    return system if not own.exists() and system.exists() else own


# ------------------------------------------------------------ up


def _up(options: UpOptions, as_json: bool) -> int:
    from launcher.logs import check_log_format  # noqa: PLC0415
    from launcher.service.store import system_folder  # noqa: PLC0415
    from launcher.service.unit import SystemdUnit  # noqa: PLC0415
    from nodes.host.heap import keep_one_heap  # noqa: PLC0415

    check_log_format(options.log_format)
    folder = _folder(options)
    if options.install == "system" and options.state is None:
        folder = system_folder(options.name)
    if options.print_unit or options.install is not None:
        of_environment = options.token == os.environ.get("CSDF_EDGE_TOKEN")
        if given := options.given().keys() - ({"token"} if of_environment else set()):
            raise BadInputError(
                f"{', '.join(sorted(given))}: a unit has no such options; write them into the "
                "section serve of cluster.yaml"
            )
        unit = SystemdUnit(options.name, options.install or "user", folder, options.log_format)
        if options.print_unit:
            print_text(unit.text)
            return EXIT_FINE
        return _install(unit, options.cluster, as_json)
    from launcher.progress import open_progress  # noqa: PLC0415
    from launcher.run.consent import ignore_consent  # noqa: PLC0415
    from launcher.service.up import up  # noqa: PLC0415 - slow to import

    ignore_consent()  # SIGUSR1 asks for nothing here
    keep_one_heap()  # a server has many threads, and frees in one what another allocates
    with open_progress(sys.stdout) as progress:
        return up(folder, options.cluster, options.given(), progress)


def _install(unit: Any, cluster: Path | None, as_json: bool) -> int:
    done = unit.apply(cluster) + unit.install()
    if as_json:
        print_json({"done": done, "unit": str(unit.path), "state": str(unit.state)})
    else:
        print_text("\n".join(done) + "\n")
    return EXIT_FINE


# ------------------------------------------------------------ status


def _status(options: StatusOptions, as_json: bool) -> int:
    from launcher.service.control import NotRunningError, ServiceClient  # noqa: PLC0415

    try:
        found = ServiceClient(_folder(options)).get("status")
    except NotRunningError as error:
        return _not_running(error, as_json)
    if as_json:
        print_json(found)
    else:
        print_text(status_text(found))
    return EXIT_FINE if found["state"] == "ok" else EXIT_DEGRADED


def _not_running(error: LauncherError, as_json: bool) -> int:
    if as_json:
        print_json({"state": "not running", "error": str(error), "exit_code": EXIT_FAILED})
    else:
        print_text(f"{error}\n")
    return EXIT_FAILED


def status_text(found: dict[str, Any]) -> str:
    """Return a status for people."""
    lines = [
        f"{found['state']}: generation {found['generation']} ({found['origin']}), {found['path']}",
        *([found["problem"]] if found["problem"] else []),
        *(f"model {model['name']} {_model_text(model)}" for model in found["models"]),
    ]
    lines += [f"stream of {stream['model']}: {_stream_text(stream)}" for stream in found["streams"]]
    lines += [
        f"node {node['name']}: {node['state']}" + (f": {node['reason']}" if node["reason"] else "")
        for node in found["nodes"]
    ]
    lines += [f"  {_event_text(event)}" for event in found["events"][-5:]]
    return "\n".join(lines) + "\n"


def _model_text(model: dict[str, Any]) -> str:
    since = as_local_time(model["since_s"])
    text = f"version {model['version'] or '-'}: {model['state']} since {since}"
    if model["stage"] and model["state"] != "failed":  # it is that of another version
        text += f", {model['stage']}"
    if model["serving"] not in (None, model["version"]):
        text += f"; version {model['serving']} serves"
    if model["serving"] is None:
        text += "; no version serves"
    if model["reason"]:
        text += f"; {model['reason']}"
    return text


def _stream_text(stream: dict[str, Any]) -> str:
    counts = f"{stream['read']} frames read, {stream['dropped']} dropped"
    text = f"{stream['state']}, {counts}, {stream['results']} results"
    for sink in stream["sinks"]:
        text += f"; {sink['sink']}: {sink['delivered']} delivered, {sink['dropped']} dropped, "
        text += f"{sink['waiting']} wait"
    return f"{text}; failed last: {stream['reason']}" if stream["reason"] else text


def _event_text(event: dict[str, Any]) -> str:
    at = as_local_time(event["at_s"])
    level = "" if event["level"] == "info" else f"{event['level']}: "
    return f"{at} {level}{event['text']}"


# ------------------------------------------------------------ changes


def _change(options: ApplyOptions | RollbackOptions | RestartOptions, as_json: bool) -> int:
    """Change what is wanted, and follow it until everything serves or something has failed."""
    from launcher.service.control import ServiceClient  # noqa: PLC0415

    service = ServiceClient(_folder(options))
    events = service.get("status")["events"]
    last = int(events[-1]["number"]) if events else 0
    answer = _wanted(service, options)
    if not as_json:
        for line in (*answer["changes"], *answer["notes"]):
            print_text(line + "\n")
    if options.no_wait:
        if as_json:
            print_json(answer)
        else:
            print_text(f"generation {answer['generation']}; launch status shows its progress\n")
        return EXIT_FINE
    while True:
        status = service.get("status")
        waiting, failed = _unsettled(status, answer["generation"])
        if failed or not waiting:
            break
        for event in service.get(f"events/{last}")["events"]:
            last = event["number"]
            if not as_json:
                print_text(_event_text(event) + "\n")
                sys.stdout.flush()
    code = EXIT_FAILED if failed else EXIT_FINE
    problem = "; ".join(failed)
    if as_json:
        data = {**answer, "status": status}
        print_json(data | ({"error": problem, "exit_code": code} if failed else {}))
    elif failed:
        print_text(f"{problem}\n")
    else:
        print_text(f"generation {status['generation']} serves\n")
    return code


def _wanted(
    service: ServiceClient, options: ApplyOptions | RollbackOptions | RestartOptions
) -> dict[str, Any]:
    """Send the service the change that the options ask for; return its answer."""
    match options:
        case ApplyOptions(cluster=cluster, allow_gap=may_gap):
            answer = service.post("apply", path=str(cluster.absolute()), allow_gap=may_gap)
        case RollbackOptions(to=to, allow_gap=may_gap):
            answer = service.post("rollback", to=to, allow_gap=may_gap)
        case RestartOptions(node=node):
            answer = {"changes": [], "notes": [], **service.post(f"restart/{node}")}
            answer["generation"] = service.get("status")["generation"]
    return dict(answer)


def _unsettled(status: dict[str, Any], generation: int) -> tuple[bool, list[str]]:
    """Whether a model is not yet as a generation wants it, and the sentences for what failed."""
    if status["generation"] < generation:  # the service has not begun with it
        return True, []
    if status["generation"] > generation:
        return False, [
            f"generation {generation} did not serve before another command replaced it by "
            f"generation {status['generation']} ({status['origin']})"
        ]
    waiting, failed = False, []
    for model in status["models"]:
        if model["state"] == "failed":
            serves = model["serving"]
            now = f"version {serves} still serves" if serves else "no version serves"
            if model["lacks_room"]:
                now += f"; --allow-gap closes version {serves} first, while requests wait"
            failed.append(
                f"{model['name']}: version {model['version']} has failed: {model['reason']}; {now}"
            )
        elif model["state"] != "serving" or model["previous"]:
            waiting = True
    return waiting, failed


def _down(options: DownOptions, as_json: bool) -> int:
    from launcher.service.control import NotRunningError, ServiceClient  # noqa: PLC0415

    try:
        service = ServiceClient(_folder(options))
        process = os.pidfd_open(service.pid)
        service.post("down")
    except NotRunningError as error:
        return _not_running(error, as_json)
    has_ended = bool(select.select([process], [], [], ENDING_S)[0])
    text = "ended" if has_ended else f"process {service.pid} did not end within {ENDING_S:.0f} s"
    if as_json:
        print_json({"state": "ended" if has_ended else "stopping"})
    else:
        print_text(text + "\n")
    return EXIT_FINE if has_ended else EXIT_FAILED


# ------------------------------------------------------------ logs


def _logs(options: LogsOptions, as_json: bool) -> int:
    from launcher.service.control import ServiceClient  # noqa: PLC0415
    from launcher.service.store import DATABASE, read_events  # noqa: PLC0415

    folder = _folder(options)
    if not (folder / DATABASE).exists():
        raise BadInputError(f"{folder}: has no history; no service was started here")
    events = [event.as_json() for event in read_events(folder, options.lines)]
    for event in events:
        _print_event(event, as_json)
    service = ServiceClient(folder) if options.follow else None
    last = int(str(events[-1]["number"])) if events else 0
    while service is not None:
        for event in service.get(f"events/{last}")["events"]:
            last = event["number"]
            _print_event(event, as_json)
    return EXIT_FINE


def _print_event(event: dict[str, Any], as_json: bool) -> None:
    """Print one event; as JSON, one object per line."""
    print_text((json.dumps(event) if as_json else _event_text(event)) + "\n")
    sys.stdout.flush()


COMMANDS: dict[str, tuple[type, Callable[[Any, bool], int]]] = {
    "up": (UpOptions, _up),
    "status": (StatusOptions, _status),
    "apply": (ApplyOptions, _change),
    "rollback": (RollbackOptions, _change),
    "restart": (RestartOptions, _change),
    "down": (DownOptions, _down),
    "logs": (LogsOptions, _logs),
}
