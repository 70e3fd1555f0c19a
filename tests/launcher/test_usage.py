"""What commands say about values of options that cannot be used."""

from __future__ import annotations

import pytest

from launcher.commands import launch, partition


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ("--tolerance x", "--tolerance must be a number, not 'x' (see launch --help)"),
        ("--frames 0", "--frames must be at least 1, not '0' (see launch --help)"),
        ("--seed 1.5", "--seed must be a whole number, not '1.5' (see launch --help)"),
        ("--order x", "--order: 'x' is not one of 'pipelined', 'strict' (see launch --help)"),
        ("--nix", "No such option: --nix (see launch --help)"),
    ],
)
def test_a_value_that_cannot_be_used_is_shown_with_what_it_must_be(
    arguments: str,
    sentence: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("sys.argv", ["launch", "cluster.yaml", *arguments.split()])
    with pytest.raises(SystemExit) as ended:
        launch.main()
    assert ended.value.code == 2
    assert capsys.readouterr().err == f"launch: {sentence}\n"


def test_the_help_of_the_command_itself_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["csdf-edge partition", "solve", "m.onnx", "--devices", "0"])
    with pytest.raises(SystemExit):
        partition.main()
    assert capsys.readouterr().err.endswith(
        "--devices must be at least 1, not '0' (see csdf-edge partition solve --help)\n"
    )
