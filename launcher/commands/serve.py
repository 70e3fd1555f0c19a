"""The command `launch serve`."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated

import typer

from launcher.console import run_command
from launcher.logs import JsonProgress, check_log_format, is_json
from launcher.run.request import Request


@dataclass(frozen=True)
class ServeOptions:
    """Answer requests with the results of a cluster, over HTTP and gRPC.

    Deploys the network of a cluster.yaml or of a saved plan as launch does, and serves it by the
    Open Inference Protocol (KServe v2), which clients of Triton and KServe speak. Each option
    overrides the key of the same name in the section serve of cluster.yaml.

    SIGTERM and Ctrl-C answer the requests under way, and end the agents that were started.

    Exit code 0: SIGTERM. 1: the cluster could not go on. 2: something given cannot be used.
    130: Ctrl-C.
    """

    target: Annotated[
        Path,
        typer.Argument(
            metavar="CLUSTER_OR_PLAN", help="cluster.yaml, or the folder of a saved plan"
        ),
    ]
    http: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="For HTTP; usually 127.0.0.1:8000")
    ] = None
    grpc: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="For gRPC; usually 127.0.0.1:8001")
    ] = None
    token: Annotated[
        str | None,
        typer.Option(
            envvar="CSDF_EDGE_TOKEN",
            help="What clients must send; better given in the environment, as CSDF_EDGE_TOKEN",
        ),
    ] = None
    tls_certificate: Annotated[
        Path | None, typer.Option(help="PEM file of the server's certificate chain")
    ] = None
    tls_key: Annotated[
        Path | None, typer.Option(help="PEM file of the certificate's private key")
    ] = None
    cors_origins: Annotated[
        list[str] | None, typer.Option(help="Origin whose pages may use it, or '*'; repeatable")
    ] = None
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Let other machines use it without a token")
    ] = False
    traces: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="OTLP receiver for traces of requests with a traceparent, such as "
            "http://127.0.0.1:4318",
        ),
    ] = None
    metrics: Annotated[
        str | None, typer.Option(help="'guarded': /metrics needs the token; 'open': it does not")
    ] = None
    most_in_flight: Annotated[
        int | None, typer.Option(min=1, help="Requests under way; more are refused at once")
    ] = None
    strategy: Annotated[
        str | None, typer.Option(help="How layers are spread over nodes, such as 'vertical'")
    ] = None
    profile: Annotated[
        Path | None,
        typer.Option(help="File of csdf-edge partition profile: measured times for the search"),
    ] = None
    report: Annotated[
        Path | None, typer.Option(help="File for a page on the run, in HTML, written at its end")
    ] = None
    log_format: Annotated[
        str, typer.Option(metavar="text|json", help="json: one JSON object per line of the log")
    ] = "text"


app = typer.Typer(pretty_exceptions_enable=False)
app.command("serve")(ServeOptions)


def main(arguments: list[str]) -> None:
    """Run `launch serve` with these arguments; never returns."""
    stopped = "interrupted; everything that was started has been stopped"
    run_command(app, "launch serve", _serve, arguments, stopped)


def _serve(options: ServeOptions, _: bool) -> int:
    from launcher.progress import LineProgress  # noqa: PLC0415
    from launcher.serve.serving import serve  # noqa: PLC0415 - slow to import
    from nodes.host.heap import keep_one_heap  # noqa: PLC0415

    keep_one_heap()  # a server has many threads, and frees in one what another allocates

    request = Request(
        options.target, strategy=options.strategy, profile=options.profile, report=options.report
    )
    own = {"target", "strategy", "profile", "report", "log_format"}
    keys = {key.name for key in fields(options)} - own
    given = {key: _as_written(value) for key in keys if (value := getattr(options, key))}
    check_log_format(options.log_format)
    with JsonProgress() if is_json() else LineProgress(sys.stderr) as progress:
        return serve(request, given, progress)


def _as_written(value: object) -> object:
    """As the key's value would stand in cluster.yaml, whose paths begin at its folder."""
    if isinstance(value, Path):
        return str(Path(os.path.expanduser(value)).absolute())
    return tuple(value) if isinstance(value, list) else value
