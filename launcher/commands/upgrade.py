"""The command `launch upgrade`."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Annotated

import typer

from launcher.commands.options import AsJson
from launcher.console import print_json, print_text
from launcher.errors import EXIT_FAILED, EXIT_FINE, BadInputError


@dataclass(frozen=True)
class UpgradeOptions:
    """Upgrade the agents of boards to a wheel, one board at a time, by ssh.

    Runs continue: they do without a board while its agent restarts, and then use it again. A board
    whose new agent does not work gets its former version back; then the upgrade ends, and the
    remaining boards are not touched.

    Uses your ssh keys, ssh agent, ~/.ssh/config and known hosts. The boards must be installed as
    deploy/README.md says.

    Exit code 0: all boards have the version. 1: one does not; the sentence says which and why.
    2: something given cannot be used, and nothing was done. 130: Ctrl-C.
    """

    target: Annotated[Path, typer.Argument(metavar="[CLUSTER]", help="cluster.yaml")] = Path(
        "cluster.yaml"
    )
    wheel: Annotated[Path | None, typer.Option(help="Wheel to install, csdf_edge-….whl")] = None
    extras: Annotated[str, typer.Option(help="Extras to install it with, or ''")] = "cpu"
    node: Annotated[
        list[str] | None, typer.Option(help="Only the board of this node; repeatable")
    ] = None
    prefix: Annotated[
        str, typer.Option(help="Folder of the installation on boards; relative to the user's home")
    ] = "/opt/csdf-edge"
    restart: Annotated[
        str,
        typer.Option(help="Command that restarts a board's agents and waits until they are ready"),
    ] = "systemctl restart node-agent"
    system_site_packages: Annotated[
        bool,
        typer.Option(
            "--system-site-packages",
            help="Give the installation access to the board's own packages",
        ),
    ] = False
    patience: Annotated[
        float, typer.Option(min=1, max=3600, help="Seconds that an agent may take to come back")
    ] = 120.0
    as_json: AsJson = False


def perform(options: UpgradeOptions, as_json: bool) -> int:
    """Perform `launch upgrade`; return its exit code."""
    import asyncio  # noqa: PLC0415 - slow to import, as what follows

    from launcher.config.access import opened  # noqa: PLC0415
    from launcher.config.load import load_cluster  # noqa: PLC0415
    from launcher.progress import LineDisplay  # noqa: PLC0415
    from launcher.upgrade.boards import boards_of  # noqa: PLC0415
    from launcher.upgrade.layout import InstallLayout, read_wheel  # noqa: PLC0415

    try:
        from launcher.upgrade.running import (  # noqa: PLC0415
            UpgradeSettings,
            restart_command,
            upgrade,
        )
    except ModuleNotFoundError as error:
        if error.name != "asyncssh":
            raise
        raise BadInputError(
            "launch upgrade needs the extra `upgrade`: pip install 'csdf-edge[upgrade]'"
        ) from error
    if options.wheel is None:
        raise BadInputError("name the wheel: launch upgrade cluster.yaml --wheel FILE")
    wheel = read_wheel(options.wheel)
    layout = InstallLayout(
        PurePosixPath(options.prefix), wheel, options.extras, options.system_site_packages
    )
    cluster = load_cluster(options.target)
    boards = boards_of(cluster, options.node or ())
    addresses = {name: address for board in boards for name, address in board.nodes}
    settings = UpgradeSettings(
        layout,
        opened(cluster.access, addresses),
        restart_command(options.restart),
        options.patience,
    )
    with LineDisplay(sys.stderr) as progress:
        ended = asyncio.run(upgrade(boards, settings, progress.say))
    code = EXIT_FAILED if ended.problems else EXIT_FINE
    if as_json:
        print_json(
            {
                "version": wheel.folder,
                "upgraded": list(ended.upgraded),
                "present": list(ended.present),
                "untouched": list(ended.untouched),
                "problems": [
                    {
                        "board": each.board,
                        "step": each.step.name.lower(),
                        "reason": each.reason,
                        "outcome": each.outcome,
                    }
                    for each in ended.problems
                ],
                "exit_code": code,
            }
        )
        return code
    lines = [
        *(f"{board}: has {wheel.folder} now" for board in ended.upgraded),
        *(f"{board}: had {wheel.folder} already" for board in ended.present),
        *(str(problem) for problem in ended.problems),
        *(f"{board}: was not touched" for board in ended.untouched),
    ]
    print_text("\n".join(lines) + "\n")
    return code
