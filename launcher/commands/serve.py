"""The command `launch serve`."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated

import typer

from launcher.logs import check_log_format
from launcher.run.request import Request


@dataclass(frozen=True, kw_only=True)
class AnsweringOptions:
    """Where requests are answered, and whose; each overrides a key of the section `serve`."""

    http: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT|off", help="Address for HTTP, or off; usually 127.0.0.1:8000"
        ),
    ] = None
    grpc: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT|off", help="Address for gRPC, or off; usually 127.0.0.1:8001"
        ),
    ] = None
    token: Annotated[
        str | None,
        typer.Option(
            envvar="CSDF_EDGE_TOKEN",
            help="Token that clients must send; preferably given in the environment, as "
            "CSDF_EDGE_TOKEN",
        ),
    ] = None
    tls_certificate: Annotated[
        Path | None, typer.Option(help="PEM file of the server's certificate chain")
    ] = None
    tls_key: Annotated[
        Path | None, typer.Option(help="PEM file of the certificate's private key")
    ] = None
    cors_origins: Annotated[
        list[str] | None,
        typer.Option(help="Origin whose pages may use the server, or '*'; repeatable"),
    ] = None
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Let other machines use the server without a token")
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
        int | None,
        typer.Option(
            min=1, help="Maximum number of requests under way; further ones are refused immediately"
        ),
    ] = None
    log_format: Annotated[
        str, typer.Option(metavar="text|json", help="json: one JSON object per line of the log")
    ] = "text"

    def given(self) -> dict[str, object]:
        """Return the keys of the section `serve` that the user has given."""
        keys = [key.name for key in fields(AnsweringOptions) if key.name != "log_format"]
        return {key: _as_written(value) for key in keys if (value := getattr(self, key))}


@dataclass(frozen=True)
class ServeOptions(AnsweringOptions):
    """Answer requests with the results of a cluster, over HTTP and gRPC.

    Deploys the network of a cluster.yaml or of a saved plan as launch does, and serves it by the
    Open Inference Protocol (KServe v2), which clients of Triton and KServe speak. Each option
    overrides the key of the same name in the section serve of cluster.yaml.

    SIGTERM and Ctrl-C answer the requests under way, and end the agents that were started.

    Exit code 0: SIGTERM. 1: the cluster failed. 2: something given cannot be used.
    130: Ctrl-C.
    """

    target: Annotated[
        Path,
        typer.Argument(
            metavar="CLUSTER_OR_PLAN", help="cluster.yaml, or the folder of a saved plan"
        ),
    ]
    strategy: Annotated[
        str | None, typer.Option(help="How layers are spread over nodes, such as 'vertical'")
    ] = None
    profile: Annotated[
        Path | None,
        typer.Option(help="File of csdf-edge partition profile: measured times for the search"),
    ] = None
    report: Annotated[
        Path | None, typer.Option(help="File for an HTML page on the run, written when it ends")
    ] = None


def perform(options: ServeOptions, _: bool) -> int:
    """Perform `launch serve`; return its exit code."""
    from launcher.progress import open_progress  # noqa: PLC0415
    from launcher.serve.serving import serve  # noqa: PLC0415 - slow to import
    from nodes.host.heap import keep_one_heap  # noqa: PLC0415

    keep_one_heap()  # a server has many threads, and frees in one what another allocates

    request = Request(
        options.target, strategy=options.strategy, profile=options.profile, report=options.report
    )
    check_log_format(options.log_format)
    with open_progress(sys.stderr) as progress:
        return serve(request, options.given(), progress)


def _as_written(value: object) -> object:
    """Return an option's value as that of a key, whose paths begin at cluster.yaml's folder."""
    if isinstance(value, Path):
        return str(Path(os.path.expanduser(value)).absolute())
    return tuple(value) if isinstance(value, list) else value
