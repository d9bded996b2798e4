"""A command that a message names is pasted by somebody: it must be right as it stands."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from iothub.cli.hints import Hints
from tests.support.in_process.command import Cli, Result


def given(data_dir: str | None = None, config_file: str | None = None) -> Hints:
    hints = Hints()
    hints.give(Path(data_dir) if data_dir else None, Path(config_file) if config_file else None)
    return hints


@pytest.mark.parametrize(
    ("message", "completed"),
    [
        ("done\nnext: iothub serve", "done\nnext: iothub --data-dir hub serve"),
        ("x: `iothub tenant list` shows them", "x: `iothub --data-dir hub tenant list` shows them"),
        ("run `iothub --data-dir other init` first", "run `iothub --data-dir other init` first"),
        ("see `iothub tenant update --help`", "see `iothub tenant update --help`"),
        ("`iothub cert self-signed DIR` makes one", "`iothub cert self-signed DIR` makes one"),
        ("the process iothub serve", "the process iothub serve"),
    ],
)
def test_command_gets_the_directory_where_it_needs_one(message: str, completed: str) -> None:
    assert given("hub").complete(message) == completed
    assert Hints().complete(message) == message, "the default directory needs no word"


def test_names_are_quoted_and_the_configuration_is_kept() -> None:
    """A blank in a path must not become two words."""
    completed = given("my hub", "o'ther.toml").complete("next: iothub serve")

    assert shlex.split(completed) == ["next:", "iothub", "--data-dir", "my hub", "--config", "o'ther.toml", "serve"]


def test_printed_hints_work_when_pasted(call: Callable[..., Result], tmp_path: Path) -> None:
    """From an empty directory on: each command is the one that the last one has named."""
    hub = tmp_path / "my hub"
    commands, said = [], ""
    for words in (
        ("init",),
        ("tenant", "create", "acme"),
        ("device", "create", "acme", "DEVICE"),
        ("tenant", "show", "nobody"),
    ):
        said = call("--data-dir", str(hub), *words).err
        commands += [shlex.split(line.partition("next: ")[2]) for line in said.splitlines() if "next: " in line]
    commands.append(shlex.split(said.split("`")[1]))

    assert [command[3:] for command in commands] == [
        ["tenant", "create", "NAME"],
        ["device", "create", "acme", "DEVICE"],
        ["tenant", "list"],
    ]
    assert all(command[:3] == ["iothub", "--data-dir", str(hub)] for command in commands)
    assert call(*commands[-1][1:]).code == 0


def test_directory_of_the_environment_is_named_too(
    cli: Cli, call: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next shell may not have it."""
    monkeypatch.setenv("IOTHUB_DATA_DIR", str(cli.data_dir))

    assert f"next: iothub --data-dir {cli.data_dir} device create" in call("tenant", "create", "acme").err


def test_hint_of_the_running_hub_is_completed(acme: Cli) -> None:
    """Also what other rooms say names the directory, which they do not know."""
    assert f"`iothub --data-dir {acme.data_dir} device list acme`" in acme("device", "show", "acme", "x", code=3).err
