"""The console command `ga`, which tunes the genetic algorithms."""

from __future__ import annotations

from launcher.commands.options import SweepOptions
from launcher.console import EXIT_INTERRUPTED, command_group, print_result, run_command

app = command_group("Tune the genetic algorithms that divide networks.")
app.command("sweep")(SweepOptions)


def main(arguments: list[str] | None = None) -> None:
    """Entry point of the console script `ga`; never returns."""
    run_command(app, "ga", _perform, arguments)


def _perform(options: SweepOptions, as_json: bool) -> int:
    from launcher.commands.sweep.performing import perform  # noqa: PLC0415 - slow to import

    tuned = perform(options)
    print_result(tuned, as_json=as_json)
    return EXIT_INTERRUPTED if tuned.result.interrupted else 0


if __name__ == "__main__":
    main()
