"""Commands beside a running hub: who answers, who acts, and what happens when nobody does."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from iothub.base.errors import UnavailableError
from iothub.cli.app import App
from iothub.cli.status import ACCOUNTS_TIMEOUT_S
from iothub.config.datadir import DataDir
from iothub.records.admin_commands import Json, Verb
from iothub_tenants.accounts import tenants
from iothub_tenants.accounts.database import sqlite_url
from iothub_tenants.accounts.store import AccountStore
from tests.support.in_process.answering import AnsweringHub, silent_hub
from tests.support.in_process.command import Cli, Result


def test_status_of_a_running_hub_tells_who_and_where(cli: Cli) -> None:
    alarm = {"name": "disk_low", "severity": "warning", "since": 1_800_000_001.0}
    answer = {"version": "1", "ready": False, "reasons": ["it starts"], "tenants": 2, "alarms": [alarm]}
    with AnsweringHub(cli.data_dir, lambda _request: ([], answer)) as hub:
        hub.data_dir.write_hub({"pid": 1, "version": "1", "started": 1_800_000_000.5, "tcp": "127.0.0.1:1883"})
        shown = cli("status", "-o", "json").json

    assert shown["state"] == "running"
    assert (shown["tcp"], shown["started"]) == ("127.0.0.1:1883", "2027-01-15T08:00:00Z")
    assert (shown["ready"], shown["reasons"]) == (False, ["it starts"])
    assert shown["alarms"] == [{**alarm, "since": "2027-01-15T08:00:01Z"}]
    assert not {"answer", "health"} & set(shown), "every fact once"


def test_status_counts_all_tenants_and_those_that_are_loaded(cli: Cli) -> None:
    """A tenant is loaded while something of it is in use: after a start there may seem to be none."""
    for name in ("acme", "beta", "gamma"):
        cli("tenant", "create", name)
    with AnsweringHub(cli.data_dir, lambda _request: ([], {"tenants": 2})):
        shown = cli("status", "-o", "json").json
        output = cli("status").out
    with AnsweringHub(cli.data_dir):
        silent = cli("status", code=7).out

    assert (shown["tenants"], shown["loaded_tenants"]) == (3, 2)
    assert "3, 2 of them loaded" in output
    assert "loaded" not in silent
    assert "tenants" in silent


def test_status_of_a_hub_that_does_not_answer_is_unavailable(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("iothub.cli.status.PING_TIMEOUT_S", 0.05)
    with silent_hub(cli.data_dir):
        shown = cli("status", "-o", "json", code=7).json

    assert (shown["state"], shown["ready"], shown["alarms"]) == ("not answering", None, None)
    assert shown["problem"].startswith("no answer within")


def test_status_tells_a_person_of_every_alarm(cli: Cli) -> None:
    alarm = {
        "name": "disk_low",
        "severity": "warning",
        "subject": "",
        "detail": "1MiB left",
        "advice": "Free some space.",
    }
    answer = {"version": "1", "ready": False, "reasons": ["a store refuses writes"], "tenants": 2, "alarms": [alarm]}
    with AnsweringHub(cli.data_dir, lambda _request: ([], {**answer, "other_hubs": [0, 2]})) as hub:
        hub.data_dir.write_hub({"started": 1_800_000_000.5})
        shown = cli("status").out

    words = " ".join(shown.split())
    assert "node 0, node 2" in words
    assert "not across hubs 1 " in words
    assert "quotas and rates: each hub counts by itself" in words

    assert "warning: disk_low: 1MiB left - Free some space." in shown
    assert "a store refuses writes" in shown
    assert "2027-01-15T08:00:00Z" in shown


def test_status_of_a_hub_without_others_has_nothing_of_them(cli: Cli) -> None:
    with AnsweringHub(cli.data_dir, lambda _request: ([], {"ready": True, "reasons": [], "other_hubs": []})):
        shown = cli("status", "-o", "json").json

    assert shown["not_across_hubs"] == []


def test_status_names_what_hubs_do_not_share(cli: Cli) -> None:
    """Quotas are shared where the ledger is on Redis."""
    with (cli.data_dir / "iothub.toml").open("a") as file:
        file.write('\n[redis]\naddresses = ["127.0.0.1:1"]\n[quota]\nledger = "redis"\n')
    with AnsweringHub(cli.data_dir, lambda _request: ([], {"ready": True, "reasons": [], "other_hubs": [2]})):
        shown = cli("status", "-o", "json").json

    assert any(text.startswith("$SYS topics") for text in shown["not_across_hubs"])
    assert not any("quotas" in text for text in shown["not_across_hubs"])


def test_status_of_a_hub_with_links_counts_them_and_commands_cross(cli: Cli) -> None:
    answer = {"ready": True, "reasons": [], "other_hubs": [2, 3], "links": {"up": 1, "hubs": 2}}
    with AnsweringHub(cli.data_dir, lambda _request: ([], answer)):
        shown, table = cli("status", "-o", "json").json, cli("status").out

    assert shown["links"] == {"up": 1, "hubs": 2}
    assert "1 of 2 up" in table


def test_status_reads_the_alarms_over_http_when_the_socket_fails(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    alarm = {"name": "disk_full", "severity": "critical", "subject": "queues", "detail": "full", "advice": "Free some."}
    monkeypatch.setattr("iothub.cli.status._over_http", lambda _address: ({"ready": False}, {"alarms": [alarm]}))
    with AnsweringHub(cli.data_dir) as hub:
        hub.data_dir.write_hub({"http": "127.0.0.1:1"})
        shown = cli("status", code=7).out

    assert "answering over HTTP alone" in shown
    assert "critical: disk_full (queues): full - Free some." in shown


def test_status_says_when_http_is_gone(cli: Cli) -> None:
    with AnsweringHub(cli.data_dir, lambda _request: ([], {})) as hub:
        hub.data_dir.write_hub({"http": "127.0.0.1:1"})
        shown = cli("status", "-o", "json").json

    assert shown["ready"] is False
    assert "does not answer" in shown["reasons"][0]


def test_accounts_are_changed_beside_a_running_hub(cli: Cli) -> None:
    """Accounts, rules, quotas and plans work on the store directly, whether or not the hub runs."""
    with AnsweringHub(cli.data_dir):
        cli("tenant", "create", "acme")
        cli("device", "create", "acme", "dev1")
        cli("quota", "set", "acme", "connections=1")
        cli("tenant", "suspend", "acme")


@pytest.mark.parametrize("words", [("show", "acme"), ("explain", "acme", "connections"), ("list", "acme")])
def test_limits_that_do_not_hold_over_all_hubs_say_so(
    acme: Cli, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    """On standard error: what a script reads stays as it is."""
    monkeypatch.setenv("IOTHUB_QUOTA__LEDGER", "redis")
    monkeypatch.setenv("IOTHUB_REDIS__ADDRESSES", '["127.0.0.1:1"]')
    alone = acme("quota", *words, "-o", "json")
    with AnsweringHub(acme.data_dir, lambda _request: ([], {"quota": "shared"})):
        shared = acme("quota", *words, "-o", "json")
    with AnsweringHub(acme.data_dir, lambda _request: ([], {"quota": "degraded"})):
        degraded = acme("quota", *words, "-o", "json")
    with AnsweringHub(acme.data_dir, lambda _request: ([], {"quota": "initialising"})):
        initialising = acme("quota", *words, "-o", "json")

    assert "degraded: the quota ledger is unavailable; each hub or worker keeps its last share" in degraded.err
    assert "iothub --data-dir" in degraded.err
    assert "initialising" in initialising.err
    assert alone.err == shared.err == ""
    assert alone.out == shared.out == degraded.out == initialising.out


def test_limits_beside_a_hub_that_does_not_answer(acme: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are shown all the same; whose limits are its own is not asked at all."""
    with AnsweringHub(acme.data_dir, lambda _request: ([], {})) as hub:
        assert acme("quota", "show", "acme").err == ""
    with AnsweringHub(acme.data_dir):
        monkeypatch.setenv("IOTHUB_QUOTA__LEDGER", "redis")
        monkeypatch.setenv("IOTHUB_REDIS__ADDRESSES", '["127.0.0.1:1"]')

        output = acme("quota", "show", "acme").err

    assert "whether they hold over all hubs is unknown" in output
    assert hub.requests == []


def test_deletion_waits_for_the_running_hub(acme: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """The hub empties queues and retained messages, which it holds open; the command sees the name become free."""
    is_deleting = threading.Event()
    pause = monkeypatch.setattr

    def finish() -> None:
        store = AccountStore(sqlite_url(DataDir(acme.data_dir).accounts))
        is_deleting.wait(10)
        for deletion in tenants.pending_deletions(store):
            tenants.finish_deletion(store, deletion.tenant_id)
        store.close()

    pause("iothub.cli.deletion.time.sleep", lambda _seconds: is_deleting.set())
    hub = threading.Thread(target=finish)
    with AnsweringHub(acme.data_dir):
        hub.start()
        result = acme("tenant", "delete", "acme", "--confirm", "acme", "-o", "json")
        hub.join()

    assert result.json["is_deleted"] is True
    acme("tenant", "show", "acme", code=3)


def test_deletion_that_takes_long_says_so(acme: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("iothub.cli.deletion.COMMAND_TIMEOUT_S", 0.0)
    with AnsweringHub(acme.data_dir):
        result = acme("tenant", "delete", "acme", "--confirm", "acme")

    assert "is being deleted" in result.err
    assert acme("tenant", "show", "acme", "-o", "json").json["state"] == "deleting"


def test_interrupted_deletion_goes_on_in_the_hub(acme: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exit code 130, and no word of nothing having been changed."""

    def interrupt(_seconds: float) -> None:
        raise KeyboardInterrupt

    own = SimpleNamespace(monotonic=time.monotonic, sleep=interrupt)  # other threads go on sleeping as they do
    monkeypatch.setattr("iothub.cli.deletion.time", own)
    with AnsweringHub(acme.data_dir):
        result = acme("tenant", "delete", "acme", "--confirm", "acme", code=130)

    assert result.err.startswith("iothub: interrupted: tenant acme is being deleted; the hub continues")


def test_second_init_beside_a_hub_is_a_conflict(cli: Cli, call: Callable[..., Result]) -> None:
    with AnsweringHub(cli.data_dir):
        assert call("--data-dir", str(cli.data_dir), "init").code == 4


def test_status_of_workers_that_start_is_that_of_readyz(cli: Cli) -> None:
    """One that serves answers for all: the hub is ready, though its supervisor still waits for the others."""
    answer = {"ready": True, "reasons": [], "connections": 0, "tenants": 0, "alarms": []}
    with AnsweringHub(cli.data_dir, lambda _request: ((), answer)) as hub:
        hub.data_dir.write_hub({"started": 1_800_000_000.5, "starting": "its workers are starting"})
        shown = cli("status", "-o", "json").json

    assert (shown["state"], shown["ready"], shown["reasons"]) == ("running", True, [])


def test_status_of_a_hub_that_starts_says_what_it_waits_for(cli: Cli) -> None:
    """It takes no command yet, and has perhaps no HTTP: what it waits for is in its notes."""
    with AnsweringHub(cli.data_dir) as hub:
        hub.data_dir.write_hub({"started": 1_800_000_000.5, "starting": "waiting for HBase: it is down"})
        shown = cli("status", "-o", "json", code=7).json
        output = cli("status", code=7).out

    assert (shown["state"], shown["ready"], shown["reasons"]) == ("starting", False, ["waiting for HBase: it is down"])
    assert "problem" not in shown
    assert "waiting for HBase: it is down" in output


def test_status_waits_once_for_accounts_that_do_not_answer(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """And says what it could not read; the hub itself answers, so the exit code is 0."""
    asked: list[float] = []

    def store(app: App) -> AccountStore:
        asked.append(app.patience_s)
        raise UnavailableError("the accounts database does not answer")

    monkeypatch.setattr(App, "store", store)
    with AnsweringHub(cli.data_dir, lambda _request: ([], {"ready": True, "reasons": [], "connections": 3})):
        shown = cli("status", "-o", "json").json

    assert asked == [ACCOUNTS_TIMEOUT_S]
    assert shown["problem"] == "the accounts database does not answer; not read: tenants"
    assert (shown["state"], shown["ready"], shown["connections"], shown["tenants"]) == ("running", True, 3, None)


def test_status_names_both_the_hub_and_the_accounts_that_do_not_answer(cli: Cli) -> None:
    DataDir(cli.data_dir).accounts.unlink()
    with AnsweringHub(cli.data_dir):
        shown = cli("status", "-o", "json", code=7).json

    assert "which does not answer on admin.sock" in shown["problem"]
    assert shown["problem"].endswith("not read: tenants")


def test_a_change_of_the_accounts_makes_the_hub_read_it_at_once(cli: Cli) -> None:
    """What only reads, or changes nothing, says nothing."""
    cli("tenant", "create", "acme")
    asked = threading.Event()

    def answer(_request: object) -> tuple[list[Json], Json]:
        asked.set()
        return [], {}

    with AnsweringHub(cli.data_dir, answer) as hub:
        cli("tenant", "list")
        cli("tenant", "create", "acme", code=4)
        assert not asked.is_set()
        cli("tenant", "suspend", "acme")
        assert asked.wait(10.0)
    assert [request.verb for request in hub.requests] == [Verb.ACCOUNTS_APPLY]


def test_a_change_of_the_accounts_waits_for_no_hub(cli: Cli) -> None:
    """One that takes requests and answers none looks by itself when it goes on."""
    cli("tenant", "create", "acme")

    with silent_hub(cli.data_dir):
        began = time.monotonic()
        cli("tenant", "suspend", "acme")

    assert time.monotonic() - began < 2.0
