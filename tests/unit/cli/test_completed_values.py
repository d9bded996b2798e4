"""What the shell completes: tenants, devices, groups, plans, limits and settings, beside commands and options."""

from __future__ import annotations

import pytest
from click.shell_completion import ShellComplete

from iothub.cli import main
from iothub.cli.hints import Hints
from tests.support.in_process.command import Cli


def completed(*words: str, options: tuple[str, ...] = ()) -> list[str]:
    """What is offered for the last word."""
    shell = ShellComplete(main.command, {"obj": Hints()}, "iothub", "_IOTHUB_COMPLETE")
    return [item.value for item in shell.get_completions([*options, *words[:-1]], words[-1])]


@pytest.fixture
def full(cli: Cli) -> Cli:
    for name in ("acme", "acorn", "beta"):
        cli("tenant", "create", name)
    cli("plan", "create", "small")
    cli("group", "create", "acme", "sensors")
    for name in ("dev1", "dev10", "gate"):
        cli("device", "create", "acme", name, "--jwt")
    return cli


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (("device", "list", "ac"), ["acme", "acorn"]),
        (("quota", "set", ""), ["acme", "acorn", "beta"]),
        (("tenant", "show", "b"), ["beta"]),
        (("tenant", "create", "b"), []),
        (("device", "show", "acme", "dev1"), ["dev1", "dev10"]),
        (("device", "show", "acme", ""), ["dev1", "dev10", "gate"]),
        (("device", "create", "acme", "dev1"), []),
        (("device", "show", "beta", ""), []),
        (("device", "show", "none", "d"), []),
        (("group", "show", "acme", "s"), ["sensors"]),
        (("plan", "set", "s"), ["small", "standard"]),
        (("plan", "create", "s"), []),
        (("plan", "create", "tiny", "--from", "u"), ["unlimited"]),
        (("tenant", "update", "acme", "--plan", "sm"), ["small"]),
        (("quota", "set", "acme", "connections=1", "retained_"), ["retained_messages=", "retained_bytes="]),
        (("quota", "explain", "acme", "retained_"), ["retained_messages", "retained_bytes"]),
        (("plan", "unset", "small", "retained_b"), ["retained_bytes"]),
        (("serve", "--set", "listeners.tls.cert"), ["listeners.tls.cert_file="]),
        (("config", "show", "--set", "http.po"), ["http.port="]),
    ],
)
def test_value_is_completed(full: Cli, words: tuple[str, ...], offered: list[str]) -> None:
    assert completed(*words, options=("--data-dir", str(full.data_dir))) == offered


def test_nothing_is_offered_where_there_is_no_hub(cli: Cli, capsys: pytest.CaptureFixture[str]) -> None:
    """And nothing printed: it would stand in the middle of a command line."""
    offered = completed("device", "list", "", options=("--data-dir", str(cli.data_dir / "none")))

    assert offered == []
    assert capsys.readouterr() == ("", "")
