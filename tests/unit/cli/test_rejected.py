"""`iothub rejected`: what the running hub remembers of refused CONNECTs."""

from __future__ import annotations

from iothub.records.admin_commands import Json, Request, Verb
from tests.support.in_process.answering import AnsweringHub
from tests.support.in_process.command import Cli

NOON_MS = 1_800_000_000_000


def refused(client_id: str, **other: object) -> Json:
    return {
        "at_ms": NOON_MS,
        "tenant": "acme",
        "device": "dev1",
        "client_id": client_id,
        "address": "192.0.2.1:5",
        "listener": "tcp",
        "protocol_version": 4,
        "reason": "not_authorized",
        "rule": "client_id_of_another_device",
        **other,
    }


def hub(cli: Cli, *rows: Json) -> AnsweringHub:
    return AnsweringHub(cli.data_dir, lambda _request: (rows, {}))


def test_refused_connects_of_a_tenant_are_listed(acme: Cli) -> None:
    with hub(acme, refused("c1"), refused("c2")) as running:
        rows = acme.rows("rejected", "acme")

    assert running.requests == [Request(Verb.REJECTED_LIST, "acme", {"is_unknown": False})]
    assert [row["name"] for row in rows] == ["c1", "c2"]
    assert rows[0] == {
        "name": "c1",
        "time": "2027-01-15T08:00:00Z",
        "tenant": "acme",
        "device": "dev1",
        "client_id": "c1",
        "address": "192.0.2.1:5",
        "listener": "tcp",
        "version": "3.1.1",
        "reason": "not_authorized",
        "rule": "client_id_of_another_device",
    }


def test_limit_shows_the_newest(acme: Cli) -> None:
    with hub(acme, refused("c1"), refused("c2")):
        assert [row["name"] for row in acme.rows("rejected", "acme", "--limit", "1")] == ["c2"]


def test_refused_connects_of_no_known_tenant_are_listed_with_the_name_they_gave(acme: Cli) -> None:
    with hub(acme, refused("c1", tenant="nowhere")) as running:
        table = acme("rejected", "--unknown").out

    assert running.requests == [Request(Verb.REJECTED_LIST, "", {"is_unknown": True})]
    assert "nowhere" in table
    assert "TENANT" in table


def test_text_of_a_client_cannot_drive_the_terminal(acme: Cli) -> None:
    with hub(acme, refused("\x1b[2J\nforged line")):
        table = acme("rejected", "acme").out

    assert "\x1b" not in table
    assert len(table.splitlines()) == 2


def test_tenant_or_unknown_must_be_named(acme: Cli) -> None:
    for words in ((), ("acme", "--unknown")):
        failed = acme("rejected", *words, code=2)
        assert "name a tenant, or use --unknown" in failed.err


def test_without_a_hub_it_says_so(acme: Cli) -> None:
    failed = acme("rejected", "acme", code=7)

    assert "no hub runs" in failed.err
