"""Run the command `csdf`: parse its arguments, read the graph, and do what the subcommand says.

Exit codes: 0 fine, 1 inconsistent or not live, 2 cannot be read (or wrong usage), 3 readable, but
an exact answer would take too long, or does not exist because firings may overtake each other.
"""

from __future__ import annotations

import argparse
import difflib
import json
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path

from csdf.analysis import analyze, stuck
from csdf.buffers.capacities import CapacityProgress, CapacitySearch, Unit
from csdf.buffers.storage import unbounded
from csdf.cli import report
from csdf.cli.arguments import parser
from csdf.cli.output import ProgressLine, printable
from csdf.cli.report import analysis_text
from csdf.errors import (
    CsdfError,
    DeadlockError,
    InconsistentGraphError,
    OvertakingError,
    TooLargeError,
)
from csdf.execution.simulation import simulate
from csdf.execution.static_orders import Ordered, Orders, ordered
from csdf.formats import drawing, files, gantt, json_format
from csdf.generation import generate
from csdf.model.channels import fold_reverse_channels
from csdf.model.graph import Graph
from csdf.timing.expansion import homogeneous
from csdf.timing.latency import latency
from csdf.timing.schedule import periodic_schedule
from csdf.timing.slack import slack
from csdf.timing.throughput import throughput

EXIT_FINE, EXIT_NOT_LIVE, EXIT_UNREADABLE, EXIT_TOO_LARGE = 0, 1, 2, 3


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code, as in a shell after Ctrl-C or a closed pipe."""
    given = sys.argv[1:] if arguments is None else arguments
    if given and not given[0].startswith("-") and given[0] not in COMMANDS:
        close = difflib.get_close_matches(given[0], COMMANDS, n=1)
        hint = f"did you mean {close[0]}?" if close else f"the commands are {', '.join(COMMANDS)}"
        return _fail(f"there is no command {given[0]!r}; {hint}", EXIT_UNREADABLE)
    options = parser(COMMANDS).parse_args(given)
    try:
        code = _run(options)
        sys.stdout.flush()
    except KeyboardInterrupt:
        return _fail("interrupted", 128 + signal.SIGINT)
    except BrokenPipeError:  # the reader of the output has gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE
    except OSError as error:  # a full disk
        return _fail(f"the output cannot be written: {error.strerror or error}", EXIT_UNREADABLE)
    return code


def _run(options: argparse.Namespace) -> int:
    place = options.output if options.file is None else options.file
    try:
        _check_values(options)
        if options.command is _check_certificate:
            options.content = _read_certificate(options.certificate, options.file)
        if options.file is None or _plan_path(options) is not None:
            graph = Graph("", (), ())
        elif options.command is _scenarios:
            from csdf.formats.sdf3_scenarios import read_scenarios  # noqa: PLC0415 (few need it)

            graph = Graph("", (), ())
            options.scenarios = read_scenarios(options.file, options.processor)
        elif options.command is _schedule and options.processors is not None:
            graph, options.processors = files.read_for_binding(
                options.file, options.processors, options.processor, dict(options.set)
            )
        elif options.command is _parameters:
            graph = Graph("", (), ())
            options.parametric = json_format.read_parametric(options.file)
        elif options.command is _analyze:
            graph, options.untimed = files.read_for_analysis(
                options.file, options.processor, dict(options.set)
            )
        else:
            graph = files.read(options.file, options.processor, dict(options.set))
    except CsdfError as error:
        return _fail(error, EXIT_UNREADABLE)
    try:
        return int(options.command(options, graph))
    except (TooLargeError, OvertakingError) as error:
        return _fail(f"{place}: {error}", EXIT_TOO_LARGE)
    except (InconsistentGraphError, DeadlockError) as error:
        return _fail(f"{place}: {error}", EXIT_NOT_LIVE)
    except CsdfError as error:
        return _fail(f"{place}: {error}", EXIT_UNREADABLE)


def _check_values(options: argparse.Namespace) -> None:
    """Refuse two values of one parameter; raises `CsdfError`."""
    names = [name for name, _ in getattr(options, "set", ())]
    for name in names:
        if names.count(name) > 1:
            raise CsdfError(f"--set gives {name!r} two values; give it one")


def _analyze(options: argparse.Namespace, graph: Graph) -> int:
    _check_analyze(options)
    if options.slice:
        from csdf.timing.tdma import Slice, with_slices  # noqa: PLC0415 (few need it)

        slices: dict[str, Slice] = {}
        for name, *times in options.slice:
            if name in slices:
                raise CsdfError(f"actor {name!r} has two slices (--slice); give it one")
            slices[name] = Slice(*times)
        graph = with_slices(graph, slices)
    placed: Graph | Ordered = graph
    try:
        if options.order:
            placed = ordered(graph, _orders(options.order))
    except InconsistentGraphError:  # reported below
        result = analyze(graph)
    except DeadlockError as error:  # within the prologue of the orders
        result = stuck(graph, str(error))
    else:
        graph = placed.graph if isinstance(placed, Ordered) else placed
        result = analyze(
            graph,
            effort=options.effort,
            untimed=options.untimed,
            each_actor=options.throughput,
        )
    if options.slack and result.period is not None:
        result = replace(result, slack=slack(graph, period=result.period))
    if options.source is not None and result.period is not None:
        found = latency(placed, options.source, options.sink)
        result = replace(result, latency=found)
    _print(_json(result.as_json()) if options.json else analysis_text(graph, result))
    if result.unknown is not None:
        return _fail(f"{options.file}: {result.unknown}", EXIT_TOO_LARGE)
    return EXIT_FINE if result.live else EXIT_NOT_LIVE


def _check_analyze(options: argparse.Namespace) -> None:
    """Refuse options that contradict each other or the graph; raises `CsdfError`."""
    _check_ends(options)
    if options.untimed and (options.slack or options.source is not None):
        raise CsdfError(
            f"actor {options.untimed[0]!r} has no execution time, which --slack and --source need"
        )


def _check_ends(options: argparse.Namespace) -> None:
    if (options.source is None) != (options.sink is None):
        raise CsdfError("--source and --sink must be given together")


def _capacities(options: argparse.Namespace, graph: Graph) -> int:
    _check_ends(options)
    channels: list[str] | None = None
    if options.channels is not None:
        channels = options.channels.split(",")
    if options.resize:
        graph = fold_reverse_channels(graph)
        inner = [channel for channel in graph.channels if channel.source != channel.target]
        channels = channels or [channel.name for channel in inner]
    elif channels is None and not unbounded(graph):
        raise CsdfError("all channels are bounded; --resize finds smaller capacities")
    unit: Unit = "bytes" if options.bytes else "tokens"
    line = ProgressLine(sys.stderr)

    def progress(so_far: CapacityProgress) -> None:
        line.update(lambda: report.progress_text(so_far, unit))

    if options.source is not None:
        from csdf.buffers.latency_front import latency_front  # noqa: PLC0415 (few need it)

        ends = options.source, options.sink
        try:
            points = latency_front(
                graph, *ends, options.period, channels, unit, options.effort, progress
            )
        finally:
            line.clear()
        as_json = {"unit": unit, **points.as_json()}
        _print(_json(as_json) if options.json else report.latency_front_text(points, unit))
        return EXIT_FINE
    search = CapacitySearch(graph, channels, unit, options.effort, progress)
    try:
        front = search.front(options.period)
        live = search.smallest_live()
    finally:
        line.clear()
    _print(
        _json(report.front_json(front, live, unit))
        if options.json
        else report.front_text(front, live, unit)
    )
    return EXIT_FINE


def _schedule(options: argparse.Namespace, graph: Graph) -> int:
    if bool(options.on) + bool(options.order) + (options.processors is not None) > 1:
        raise CsdfError("--on, --processors and --order cannot be combined with each other")
    orders: Orders = _orders(options.order)
    more: list[tuple[dict[str, object], str]] = []
    if options.on:
        from csdf.timing import best_orders  # noqa: PLC0415 (few need it)

        processors = _on(options.on)
        most = best_orders.EFFORT if options.effort is None else options.effort
        best = best_orders.best_orders(graph, processors, most)
        orders = best.orders
        more.append(({"at_least": best.at_least}, report.best_orders_text(best)))
    if options.processors is not None:
        from csdf.timing.best_binding import best_binding  # noqa: PLC0415 (few need it)
        from csdf.timing.best_orders import EFFORT  # noqa: PLC0415

        most = EFFORT if options.effort is None else options.effort
        bound = best_binding(graph, options.processors, most)
        graph, orders = bound.graph, bound.orders.orders
        about = {"processors": bound.processors, "at_least": bound.orders.at_least}
        more.append((about, report.best_orders_text(bound.orders, binding=True)))
    placed = ordered(graph, orders)
    if options.cycles is not None:
        if options.period is not None or options.memory:
            raise CsdfError("--cycles cannot be combined with --period or --memory")
        from csdf.timing.k_periodic import k_periodic_schedule  # noqa: PLC0415 (few need it)

        fastest = k_periodic_schedule(placed.graph, options.cycles)
        as_json = None if fastest is None else asdict(fastest)
        _print(_json(as_json) if options.json else report.k_periodic_text(fastest))
        return EXIT_FINE if fastest is not None else EXIT_NOT_LIVE
    schedule = periodic_schedule(placed, options.period)
    if options.memory:
        from csdf.buffers.shared_memory import shared_memory  # noqa: PLC0415 (few need it)

        memory = shared_memory(graph, schedule)
        more.append(({"memory": memory.as_json()}, report.memory_text(memory)))
    if options.json:
        found = report.schedule_json(schedule, orders)
        for own, _ in more:
            found |= own
        _print(_json(found))
    else:
        _print("\n".join([report.schedule_text(schedule, orders), *(text for _, text in more)]))
    return EXIT_FINE


def _scenarios(options: argparse.Namespace, _: Graph) -> int:
    from csdf.timing.scenarios import scenario_periods  # noqa: PLC0415 (few need it)

    found = scenario_periods(options.scenarios, options.effort)
    _print(_json(found.as_json()) if options.json else report.scenarios_text(found))
    return EXIT_FINE


def _parameters(options: argparse.Namespace, _: Graph) -> int:
    from csdf.parametric_analysis import analyze_parameters  # noqa: PLC0415 (few need it)

    found = analyze_parameters(options.parametric, dict(options.set), options.effort)
    _print(_json(found.as_json()) if options.json else report.parameters_text(found))
    if any(own.live is False for _, own in found.values):
        return EXIT_NOT_LIVE
    if found.longest is None:
        why = next(str(own.unknown) for _, own in found.values if own.unknown is not None)
        return _fail(f"{options.file}: {why}", EXIT_TOO_LARGE)
    return EXIT_FINE


def _simulate(options: argparse.Namespace, graph: Graph) -> int:
    found = simulate(graph, options.iterations, _on(options.on), _orders(options.order))
    if options.gantt is not None:
        _write(options.gantt, gantt.as_svg(found))
    if options.trace is not None:
        _write(options.trace, _json(gantt.as_trace(found, options.microseconds)))
    if options.json:
        about = {"completed": found.completed, "busy": found.busy()}
        _print(_json({"firings": len(found.firings), **about}))
        return EXIT_FINE
    _print(f"{options.iterations} iterations, {len(found.firings)} firings, end at {found.end}")
    _print(f"complete at {' '.join(map(str, found.completed))}")
    for row, time in found.busy().items():
        share = f", {100 * float(time / found.end):.1f} %" if found.end else ""
        _print(f"{row}: busy for {time}{share}")
    return EXIT_FINE


def _draw(options: argparse.Namespace, graph: Graph) -> int:
    try:
        critical = throughput(graph).critical
    except (
        InconsistentGraphError,
        DeadlockError,
        TooLargeError,
    ):  # no critical cycle
        critical = ()
    picture = drawing.marked(graph, critical)
    if options.output is None:
        _print(drawing.as_svg(picture).rstrip())
    else:
        _write(options.output, drawing.as_svg(picture))
    return EXIT_FINE


def _convert(options: argparse.Namespace, graph: Graph) -> int:
    if options.max_plus and options.hsdf:
        raise CsdfError("give either --hsdf or --max-plus, not both")
    if options.max_plus:
        if not options.output.lower().endswith(".json"):
            raise CsdfError(f"--max-plus writes JSON, but {options.output!r} does not end in .json")
        from csdf.timing.max_plus import max_plus_matrix  # noqa: PLC0415 (few need it)

        _write(options.output, _json(max_plus_matrix(graph).as_json()) + "\n")
        return EXIT_FINE
    files.write(homogeneous(graph) if options.hsdf else graph, options.output)
    return EXIT_FINE


def _generate(options: argparse.Namespace, _: Graph) -> int:
    size = options.actors, options.channels, options.firings
    about = {"capacities": options.capacities, "feedback": options.feedback, "seed": options.seed}
    files.write(generate(*size, **about), options.output)
    return EXIT_FINE


def _certify(options: argparse.Namespace, graph: Graph) -> int:
    from csdf.certificates.certify import certify  # noqa: PLC0415 (OpenSSL takes 8 MB)
    from csdf.certificates.plans import certify_plan  # noqa: PLC0415

    file = _certified_file(options, graph)
    is_plan = _plan_path(options) is not None
    found = certify_plan(file, options.effort) if is_plan else certify(graph, file, options.effort)
    text = _json(found.content)
    for one in found.left_out:
        sys.stderr.write(printable(f"csdf: not certified: {one}") + "\n")
    if options.output is None:
        _print(text)
    else:
        _write(options.output, text + "\n")
    return EXIT_FINE if found.live else EXIT_NOT_LIVE


def _check_certificate(options: argparse.Namespace, graph: Graph) -> int:
    from csdf.certificates.check import RefusedError, check  # noqa: PLC0415 (OpenSSL takes 8 MB)

    file = _certified_file(options, graph)
    json_format.load(file)
    try:
        claims = check(options.content, file)
    except RefusedError as error:
        if options.json:
            _print(_json({"refused": str(error)}))
        return _fail(f"{options.certificate} proves nothing about {options.file}: {error}", 1)
    _print(_json(claims) if options.json else report.claims_text(claims))
    return EXIT_FINE


def _read_certificate(path: str, file: str) -> bytes:
    """Return the certificate about `file` in the file `path`. Raises `CsdfError` if it has none."""
    try:
        content = Path(path).read_bytes()
        if _is_certificate(content):
            return content
        problem = f"{path} is not a certificate"
    except OSError as error:
        problem = f"{path} cannot be read: {error.strerror or error}"
    except CsdfError as error:
        problem = f"{path} {error}"
    hint = "csdf certify makes certificates"
    with suppress(OSError, CsdfError):
        if _is_certificate(Path(file).read_bytes()):
            hint = f"{file} is one: the order is CERTIFICATE FILE"
    raise CsdfError(f"{problem}; {hint}")


def _is_certificate(content: bytes) -> bool:
    found = json_format.load(content)
    return isinstance(found, dict) and str(found.get("format")).startswith("csdf-certificate ")


def _plan_path(options: argparse.Namespace) -> Path | None:
    """Return the path of the `plan.json` to certify or to check, None if that is a graph."""
    path = Path(options.file)
    if options.command not in (_certify, _check_certificate):
        return None
    if path.is_dir():
        return path / "plan.json"
    return path if path.name == "plan.json" else None


def _certified_file(options: argparse.Namespace, graph: Graph) -> bytes:
    """Return the JSON file that a certificate is about: for SDF3 XML, or with
    values of parameters, what `convert` writes."""
    plan = _plan_path(options)
    if plan is not None and options.set:
        raise CsdfError(f"{plan}: a plan has no parameters (--set)")
    path = plan or Path(options.file)
    if path.suffix.lower() == ".json" and not options.set:
        try:
            return path.read_bytes()
        except OSError as error:
            raise CsdfError(f"{path} cannot be read: {error.strerror or error}") from error
    return files.as_text(graph, "graph.json").encode()


COMMANDS = {
    "analyze": _analyze,
    "capacities": _capacities,
    "scenarios": _scenarios,
    "parameters": _parameters,
    "schedule": _schedule,
    "simulate": _simulate,
    "draw": _draw,
    "convert": _convert,
    "generate": _generate,
    "certify": _certify,
    "check": _check_certificate,
}


def _on(given: Sequence[tuple[str, list[str]]]) -> dict[str, str]:
    """Return the processor of each actor."""
    processors: dict[str, str] = {}
    for processor, names in given:
        for name in names:
            if processors.setdefault(name, processor) != processor:
                both = f"both {processors[name]!r} and {processor!r}"
                raise CsdfError(f"{name!r} is to run on {both} (--on); give it one")
    return processors


def _orders(given: Sequence[tuple[str, list[str]]]) -> dict[str, list[str]]:
    orders: dict[str, list[str]] = {}
    for processor, order in given:
        if processor in orders:
            raise CsdfError(f"processor {processor!r} has two orders; give one for all its firings")
        orders[processor] = order
    return orders


def _write(path: str, text: str) -> None:
    try:
        files.write_whole(Path(path), text)
    except OSError as error:
        raise CsdfError(f"{path} cannot be written: {error.strerror or error}") from error


def _json(found: object) -> str:
    return json.dumps(found, default=_plain)


def _plain(value: object) -> object:
    """Return what `json` takes in place of a value: of a number, all its digits."""
    return dict(value) if isinstance(value, Mapping) else str(value)


def _print(text: str) -> None:
    encoding = sys.stdout.encoding or "ascii"  # a terminal may not know × and →
    sys.stdout.write(printable(text).encode(encoding, "replace").decode(encoding) + "\n")


def _fail(error: object, code: int) -> int:
    sys.stderr.write(f"csdf: {printable(str(error))}".replace("\n", "\n  ") + "\n")
    return code


if __name__ == "__main__":
    sys.exit(main())
