"""The command itself: help, versions, configuration, and what every kind of failure looks like to a person.

The whole text of the help is held by `docs/reference/cli.md` (tests/architecture/test_docs.py).
"""

from __future__ import annotations

import errno
import ipaddress
import re
import socket
import sqlite3
import stat
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import click
import pytest
from cryptography import x509

from iothub.base.errors import ConfigError, UnavailableError
from iothub.cli import main
from iothub.config.datadir import DataDir
from iothub.config.reference_page import render_reference
from iothub.records.admin_commands import Verb
from iothub_services.quota.names import Quota
from tests.support.in_process.answering import AnsweringHub
from tests.support.in_process.command import Cli, Result


def tree(command: click.Command, path: tuple[str, ...]) -> list[tuple[tuple[str, ...], click.Command]]:
    found = [(path, command)]
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            assert inner is not None
            found += tree(inner, (*path, name))
    return found


def help_of(path: tuple[str, ...], command: click.Command) -> str:
    context = click.Context(
        command,
        info_name=" ".join(path),
        terminal_width=100,
        max_content_width=100,
        help_option_names=["-h", "--help"],
    )
    return command.get_help(context)


def test_every_verb_has_help_with_an_example() -> None:
    for path, found in tree(main.command, ("iothub",)):
        if isinstance(found, click.Group):
            continue
        text = help_of(path, found)
        assert "Example" in text, path
        assert " ".join(path[1:]) in text.partition("Example")[2], path
        for option in found.params:
            assert not isinstance(option, click.Option) or option.help, (path, option.name)


@pytest.mark.parametrize("words", [("--help",), ("-h",), ("tenant", "--help"), ("tenant", "create", "--help")])
def test_help_is_on_standard_output(call: Callable[..., Result], words: tuple[str, ...]) -> None:
    result = call(*words)

    assert (result.code, result.err) == (0, "")
    assert result.out.startswith("Usage: iothub")


@pytest.mark.parametrize(
    "words",
    [
        ("tenan", "list"),
        ("tenant", "lst"),
        ("tenant", "create"),
        ("tenant", "list", "--what"),
        ("tenant", "list", "-o", "yaml"),
        ("acl", "allow", "acme", "*", "write", "#"),
        ("quota", "set", "acme"),
    ],
)
def test_wrong_usage_is_two(call: Callable[..., Result], words: tuple[str, ...]) -> None:
    result = call(*words)

    assert (result.code, result.out) == (2, "")
    assert "Traceback" not in result.err


@pytest.mark.parametrize(
    ("words", "meant"),
    [(("tenat",), "tenant"), (("tenant", "creat", "acme"), "create"), (("retian", "list"), "retain")],
)
def test_misspelt_command_gets_a_suggestion(call: Callable[..., Result], words: tuple[str, ...], meant: str) -> None:
    result = call(*words)

    assert result.code == 2
    assert f"Did you mean {meant!r}?" in result.err


@pytest.mark.parametrize("words", [("tenant", "list"), ("tenant", "--debug", "list"), ("version",), ("doctor",)])
def test_flags_of_a_whole_run_may_stand_after_the_verb(
    call: Callable[..., Result], cli: Cli, words: tuple[str]
) -> None:
    before = call("--data-dir", str(cli.data_dir), "--no-input", *words)

    after = call("--data-dir", str(cli.data_dir), *words, "--no-input", "--debug")

    assert (after.code, after.out[:20]) == (before.code, before.out[:20])
    assert "No such option" not in after.err


def test_form_may_stand_between_noun_and_verb(cli: Cli) -> None:
    assert cli("tenant", "-o", "json", "list").json == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("device", "delete", "acme", "d", "--data-dir", "x"), "iothub --data-dir VALUE device delete ..."),
        (("device", "--config", "x", "list"), "iothub --config VALUE device ..."),
        (("version", "--version"), "iothub --version"),
    ],
)
def test_option_out_of_place_gets_its_place(call: Callable[..., Result], words: tuple[str, ...], said: str) -> None:
    """And one that no command has, the nearest of the command itself."""
    result = call(*words)

    assert result.code == 2
    assert result.err.endswith(f"stands before the noun: {said}\n")
    assert "Did you mean '--yes'?" in call("device", "delete", "acme", "d", "--yess").err


def test_command_like_no_other_gets_no_suggestion(call: Callable[..., Result]) -> None:
    assert call("qqq").err.endswith("No such command 'qqq'.\n")


@pytest.mark.parametrize("words", [("quota", "set"), ("plan", "set"), ("plan", "create")])
def test_help_on_limits_names_all(call: Callable[..., Result], words: tuple[str, ...]) -> None:
    text = call(*words, "--help").out

    assert [quota.value for quota in Quota if not re.search(rf"\b{quota.value}\b", text)] == []


WITHOUT_VERBS = {
    "apply",
    "completion",
    "bundle",
    "init",
    "serve",
    "status",
    "doctor",
    "rejected",
    "backup",
    "restore",
    "version",
}


@pytest.mark.parametrize("noun", [name for name in main.NOUNS if name not in WITHOUT_VERBS])
def test_noun_alone_shows_its_verbs(call: Callable[..., Result], noun: str) -> None:
    result = call(noun)

    assert "Commands:" in result.out + result.err


@pytest.mark.parametrize("noun", main.NOUNS)
def test_summary_that_names_verbs_names_all_of_them(noun: str) -> None:
    """Whoever looks for a verb in `iothub --help` takes what is not there for not existing."""
    group = main.command.get_command(click.Context(main.command), noun)
    verbs = set(group.commands) if isinstance(group, click.Group) else set()
    named = set(re.findall(r"[a-z-]+", main.NOUNS[noun][1].lower()))
    secrets = {verb for verb in verbs if verb.startswith(("set-", "rotate-"))} if "secrets" in named else set()
    opposites = {verb for verb in verbs if verb.startswith("un") and verb.removeprefix("un") in named}

    assert not verbs & named or verbs - named <= secrets | opposites


def test_version_names_the_twin(call: Callable[..., Result]) -> None:
    facts = call("version", "-o", "json").json

    assert facts["name"] == "iothub"
    assert facts["twin"] in {"compiled", "plain"}
    assert set(facts["libraries"]) >= {"Twisted", "SQLAlchemy"}
    assert "Twisted" in call("version").out


def test_version_is_an_option_too(call: Callable[..., Result]) -> None:
    result = call("--version")

    assert (result.code, result.err) == (0, "")
    assert result.out == f"iothub {call('version', '-o', 'json').json['version']}\n"


def test_list_of_verbs_is_not_cut(call: Callable[..., Result]) -> None:
    """A sentence that ends in dots helps nobody."""
    for noun in main.NOUNS:
        assert "..." not in call(noun, "--help").out.partition("Commands:")[2], noun


def test_output_that_cannot_be_written_is_unavailable(
    cli: Cli, call: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk behind `>` is no defect of ours."""

    def refuse(*_arguments: object, err: bool = False, **_options: object) -> None:
        if not err:
            raise OSError(errno.ENOSPC, "No space left on device")
        said.append(str(_arguments[0]))

    said: list[str] = []
    monkeypatch.setattr("iothub.cli.output.click.echo", refuse)
    monkeypatch.setattr("iothub.cli.main._silence_stdout", lambda: None)

    cli("config", "show", code=7)

    assert said == ["iothub: standard output cannot be written: No space left on device\n"]


# --- configuration


def test_configuration_is_checked_with_the_same_words_as_serve_uses(cli: Cli) -> None:
    """Same message and exit code both ways, before anything is touched."""
    for flag in ("listeners.tcp.prot=1", "listeners.tls.port=8883", "http.port=x", "listeners.tcp.port=off"):
        check, serve = cli("config", "check", "--set", flag, code=2), cli("serve", "--set", flag, code=2)
        assert check.err == serve.err


def test_hub_without_a_listener_is_refused_with_the_settings_that_turn_one_on(cli: Cli) -> None:
    """Nobody could connect. HTTP is no listener; commands that serve nobody go on."""
    (cli.data_dir / "iothub.toml").write_text('config_version = 1\n[listeners.tcp]\nport = "off"\n[http]\nport = 0\n')

    for words in (("serve",), ("serve", "--check"), ("config", "check")):
        assert cli(*words, code=2).err == (
            "iothub: no listener has a port, so no client can connect: set listeners.tcp.port, listeners.tls.port, "
            "listeners.ws.port or listeners.wss.port\n"
        )

    assert cli("config", "check", "--set", "listeners.ws.port=0").err == "the configuration is valid\n"
    assert cli("tenant", "list").code == 0


def test_valid_configuration_is_said_to_be(cli: Cli) -> None:
    assert cli("config", "check").err == "the configuration is valid\n"
    shown = cli("config", "check", "-o", "json").json
    assert (shown["is_valid"], shown["file"]) == (True, str(cli.data_dir / "iothub.toml"))


def test_check_of_the_configuration_looks_at_certificates_of_links_that_are_there(cli: Cli, tmp_path: Path) -> None:
    """One of another node, as the start would find it. Those that are missing may be issued later."""
    settings = ("events.driver=kafka", "kafka.brokers=127.0.0.1:9092", "cluster.listen=127.0.0.1:7883", "node.number=4")
    flags = [word for setting in settings for word in ("--set", setting)]
    assert cli("config", "check", *flags).err == "the configuration is valid\n"
    cli("cluster", "init-ca", str(tmp_path))
    target = str(DataDir(cli.data_dir).cluster_files)
    cli("cluster", "issue", "3", "--ca", str(tmp_path), "--out", target)

    assert "is the certificate of node 3, this hub is node 4" in cli("config", "check", *flags, code=2).err


def test_configuration_without_a_file_is_said_to_have_none(cli: Cli) -> None:
    """Otherwise it looks as if the file had been read."""
    file = cli.data_dir / "iothub.toml"
    file.unlink()

    assert cli("config", "check").err == (
        f"iothub: warning: there is no configuration file {file}: every setting that is not given has its default\n"
        "the configuration is valid\n"
    )
    assert cli("config", "check", "-o", "json").json["file"] is None


def test_check_of_the_configuration_names_every_mistake(cli: Cli) -> None:
    """Of the settings and of the files that they name; a start says the same."""
    (cli.data_dir / "iothub.toml").write_text(
        '[mqtt]\nmax_inflght = 3\n[log]\nlevel = "loud"\n[auth]\npepper_file = "no-pepper"\n'
    )

    for words in (("config", "check"), ("serve",), ("serve", "--check")):
        lines = cli(*words, code=2).err.splitlines()
        assert [line.partition("iothub.toml, ")[2][:30] for line in lines[:2]] == [
            "line 2: unknown setting 'mqtt.",
            "line 4: log.level: expected on",
        ]
        assert lines[2] == f"auth.pepper_file: {cli.data_dir / 'no-pepper'}: No such file or directory"


ANY_PORT = ("--set", "listeners.tcp.port=0")


def test_check_of_a_start_finds_nothing_on_a_sound_directory(cli: Cli) -> None:
    """And leaves nothing behind: no lock, no store."""
    before = {path.name for path in cli.data_dir.iterdir()}

    assert cli("serve", "--check", *ANY_PORT).err == "nothing keeps the hub from starting\n"

    after = {path.name for path in cli.data_dir.iterdir()}
    assert after - before <= {"lock", "accounts.db-wal", "accounts.db-shm"}


def test_check_of_a_start_finds_what_a_start_refuses(cli: Cli) -> None:
    """All of it at once, and the start says the same, because it looks at the same."""
    (cli.data_dir / "pepper").chmod(0o644)
    with closing(sqlite3.connect(cli.data_dir / "state.db")) as future:
        future.execute("PRAGMA user_version=99")
    with socket.create_server(("127.0.0.1", 0)) as rival:
        port = rival.getsockname()[1]
        flags = ("--set", f"listeners.tcp.port={port}", "--set", "http.bind=::1", "--set", f"http.port={port}")
        with socket.create_server(("::1", port), family=socket.AF_INET6):
            found = cli("serve", "--check", *flags, code=2).err

            assert cli("serve", *flags, code=2).err == found

    assert [line.partition(" ")[0] for line in found.splitlines()] == ["iothub:", "state.db", "listener", "http:"]
    assert f"pepper: readable by others (mode 0644); run `chmod 600 {cli.data_dir / 'pepper'}`" in found


def test_check_of_a_start_is_a_record_for_programs(cli: Cli) -> None:
    """With its errors, and with several workers, too; the exit code is that of the start."""
    fine = cli("serve", "--check", "-o", "json", *ANY_PORT)
    assert fine.json == {"name": "hub", "is_startable": True, "exit_code": 0, "errors": []}
    assert fine.err == ""
    (cli.data_dir / "pepper").chmod(0o644)

    with socket.create_server(("127.0.0.1", 0)) as rival:
        flags = ("--set", f"listeners.tcp.port={rival.getsockname()[1]}", "--workers", "2")
        found = cli("serve", "--check", "-o", "json", *flags, code=2)
    wrong = cli("serve", "--check", "-o", "json", "--set", "node.wrong=1", "--workers", "2", code=2)

    assert (found.json["is_startable"], found.json["exit_code"], found.err) == (False, 2, "")
    assert [error.partition(" ")[0] for error in found.json["errors"]][1:] == ["listener"]
    assert "readable by others" in found.json["errors"][0]
    assert "node.wrong" in wrong.json["errors"][0]


def test_check_of_a_start_finds_that_init_is_missing(call: Callable[..., Result], tmp_path: Path) -> None:
    for words in (("serve", "--check"), ("serve",)):
        result = call("--data-dir", str(tmp_path / "new"), *words, *ANY_PORT)
        assert (result.code, "is not initialised yet" in result.err) == (3, True)


def test_check_of_a_start_finds_a_running_hub(cli: Cli) -> None:
    lock = DataDir(cli.data_dir).lock("iothub serve")

    assert "is in use by process" in cli("serve", "--check", *ANY_PORT, code=4).err
    lock.release()


def test_reload_shows_what_was_applied_and_what_needs_a_restart(cli: Cli) -> None:
    rows = [
        {"name": "log.level", "value": '"debug"', "reload": "now"},
        {"name": "http.port", "value": "8080", "reload": "restart"},
    ]
    answers = iter([(rows, ["tls"]), ([], []), (rows, [])])

    def asked(_request: object) -> tuple[list[dict[str, str]], dict[str, object]]:
        changed, certificates = next(answers)
        return changed, {
            "warnings": ["a secret can be read by others"] if changed else [],
            "certificates": certificates,
        }

    with AnsweringHub(cli.data_dir, asked) as hub:
        shown, unchanged, as_json = cli("config", "reload"), cli("config", "reload"), cli.rows("config", "reload")

    assert [(request.verb, request.tenant) for request in hub.requests] == [(Verb.CONFIG_RELOAD, "")] * 3
    assert [line.split() for line in shown.out.splitlines()] == [
        ["NAME", "VALUE", "RELOAD"],
        ["log.level", '"debug"', "now"],
        ["http.port", "8080", "restart"],
    ]
    assert shown.err == (
        "iothub: warning: a secret can be read by others\n"
        "reloaded: applied 1 changed setting; read the certificates of tls again; 1 changed setting needs a restart of the hub\n"
    )
    assert (unchanged.out, unchanged.err) == ("", "reloaded: no changed setting to apply\n")
    assert as_json == rows


def test_refused_reload_names_every_mistake(cli: Cli) -> None:
    error = ConfigError("iothub.toml, line 2: unknown setting 'mqtt.prot'")
    error.details = ("iothub.toml, line 4: unknown setting 'log.levl'; `iothub config show` lists all settings",)

    def asked(_request: object) -> tuple[list[dict[str, str]], dict[str, object]]:
        raise error

    with AnsweringHub(cli.data_dir, asked):
        refused = cli("config", "reload", code=2).err

    pasted = error.details[0].replace("iothub config", f"iothub --data-dir {cli.data_dir} config")
    assert refused == f"iothub: {error}\n{pasted}\n"


def test_reload_without_a_hub_says_so(cli: Cli) -> None:
    assert "no hub runs in" in cli("config", "reload", code=7).err


def test_bad_file_is_named_by_every_command(cli: Cli) -> None:
    (cli.data_dir / "iothub.toml").write_text("config_version = 1\n[mqtt]\nmax_inflght = 3\n")

    for words in (("tenant", "list"), ("serve",), ("config", "show")):
        assert "iothub.toml, line 3: unknown setting 'mqtt.max_inflght'" in cli(*words, code=2).err


def test_other_file_is_taken_instead(cli: Cli, call: Callable[..., Result], tmp_path: Path) -> None:
    (tmp_path / "other.toml").write_text("config_version = 1\n[mqtt]\nmax_inflight = 3\n")

    result = call(
        "--data-dir", str(cli.data_dir), "--config", str(tmp_path / "other.toml"), "config", "show", "--changed"
    )

    assert result.out == "config_version = 1\nmqtt.max_inflight = 3\n"


def test_origin_of_every_value_is_shown(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IOTHUB_HTTP__PORT", "8080")

    rows = {row["name"]: row for row in cli("config", "show", "--set", "node.name=x", "-o", "json").json}

    assert rows["http.port"]["origin"] == "env IOTHUB_HTTP__PORT"
    assert rows["node.name"] == {"name": "node.name", "value": "x", "origin": "flag --set"}
    assert rows["listeners.tcp.port"] == {"name": "listeners.tcp.port", "value": 1883, "origin": "default"}
    assert rows["listeners.tcp.allow"]["value"] == []
    assert 'node.name = "x"' in cli("config", "show", "--set", "node.name=x").out, "a person gets the form of the file"


def test_reference_page_is_printed(call: Callable[..., Result]) -> None:
    assert call("config", "show", "--reference").out == render_reference()


# --- certificates


def test_self_signed_certificate_names_the_machine(call: Callable[..., Result], tmp_path: Path) -> None:
    result = call("cert", "self-signed", str(tmp_path / "c"), "--name", "hub.example.com", "--name", "192.0.2.7")

    assert result.code == 0
    certificate = x509.load_pem_x509_certificate((tmp_path / "c/cert.pem").read_bytes())
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["localhost", "hub.example.com"]
    assert ipaddress.ip_address("127.0.0.1") in names.get_values_for_type(x509.IPAddress)
    assert ipaddress.ip_address("192.0.2.7") in names.get_values_for_type(x509.IPAddress)
    assert stat.S_IMODE((tmp_path / "c/key.pem").stat().st_mode) == 0o600


def test_certificate_that_exists_is_not_overwritten(call: Callable[..., Result], tmp_path: Path) -> None:
    call("cert", "self-signed", str(tmp_path))
    before = (tmp_path / "key.pem").read_bytes()

    assert call("cert", "self-signed", "--out", str(tmp_path)).code == 4
    assert (tmp_path / "key.pem").read_bytes() == before
    assert call("cert", "self-signed", str(tmp_path), "--force").code == 0
    assert (tmp_path / "key.pem").read_bytes() != before


@pytest.mark.parametrize("words", [(), ("a", "--out", "b"), ("a", "--name", "no/name"), ("a", "--days", "0")])
def test_certificate_for_nothing_is_a_mistake(
    call: Callable[..., Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)

    assert call("cert", "self-signed", *words).code == 2
    assert list(tmp_path.iterdir()) == []


def test_made_certificate_passes_the_check(cli: Cli, tmp_path: Path) -> None:
    cli("cert", "self-signed", str(tmp_path / "c"))

    flags = (
        "--set",
        "listeners.tls.port=8883",
        "--set",
        f"listeners.tls.cert_file={tmp_path}/c/cert.pem",
        "--set",
        f"listeners.tls.key_file={tmp_path}/c/key.pem",
    )
    assert cli("config", "check", *flags).err == "the configuration is valid\n"
    (tmp_path / "c/key.pem").chmod(0o644)
    assert "can be read by others" in cli("config", "check", *flags).err
    cli("cert", "self-signed", str(tmp_path / "d"))
    mixed = (*flags, "--set", f"listeners.tls.key_file={tmp_path}/d/key.pem")
    assert "do not match" in cli("config", "check", *mixed, code=2).err
    missing = (*flags, "--set", "listeners.tls.client_ca_file=/no/ca.pem")
    assert "listeners.tls.client_ca_file: /no/ca.pem: No such file" in cli("config", "check", *missing, code=2).err
    (tmp_path / "text.pem").write_text("no certificate")
    wrong = (*flags, "--set", f"listeners.tls.client_ca_file={tmp_path}/text.pem")
    assert "contains no certificate" in cli("config", "check", *wrong, code=2).err


# --- database, status


def test_database_is_current_after_init(cli: Cli) -> None:
    assert cli("db", "status", "-o", "json").json["state"] == "current"
    assert "nothing to do" in cli("db", "upgrade").err


def test_upgrade_beside_a_running_hub_is_refused(cli: Cli) -> None:
    lock = DataDir(cli.data_dir).lock("iothub serve")
    try:
        assert "is in use by process" in cli("db", "upgrade", code=4).err
    finally:
        lock.release()


def test_status_of_a_stopped_hub_is_unavailable(cli: Cli) -> None:
    assert cli("status", "-o", "json", code=7).json["state"] == "stopped"


# --- failures


def test_defect_is_one_line_with_a_hint(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """Never a traceback for a user, except with --debug."""

    def fail(*_arguments: object, **_options: object) -> None:
        raise KeyError("a\nb")

    monkeypatch.setattr("iothub_tenants.accounts.tenants.page", fail)

    result = cli("tenant", "list", code=1)
    assert result.err.count("\n") == 1
    assert "unexpected KeyError" in result.err
    assert "--debug" in result.err
    debug = cli.call("--debug", "--data-dir", str(cli.data_dir), "tenant", "list")
    assert "Traceback" in debug.err


def test_interruption_is_one_line(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_arguments: object, **_options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("iothub_tenants.accounts.tenants.page", interrupt)

    assert cli("tenant", "list", code=130).err.strip() == "iothub: interrupted; nothing more was changed"


def test_unavailable_database_is_seven(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_arguments: object, **_options: object) -> None:
        raise UnavailableError("the disk is gone; bring it back")

    monkeypatch.setattr("iothub_tenants.accounts.tenants.page", fail)

    assert cli("tenant", "list", code=7).err == "iothub: the disk is gone; bring it back\n"


def test_damaged_database_is_one_line(cli: Cli) -> None:
    (cli.data_dir / "accounts.db").write_bytes(b"not a database" * 1000)

    result = cli("tenant", "list", code=7)

    assert result.err.count("\n") == 1
