"""Limits of many devices from lines of text: all of them or none, with every bad line named."""

from __future__ import annotations

import pytest

from iothub.base.errors import NotFoundError
from iothub_tenants.accounts import devices, imports, quotas, tenants
from iothub_tenants.accounts.changes import ChangeWatcher
from iothub_tenants.accounts.csv_rows import BadLinesError
from iothub_tenants.accounts.limit_lines import set_limits_of_lines
from iothub_tenants.accounts.store import AccountStore
from tests.support.servers.counted_statements import counted_statements


@pytest.fixture(autouse=True)
def _tenant(store: AccountStore) -> None:
    tenants.create(store, "acme")
    for name in ("dev1", "dev2"):
        devices.create(store, "acme", name)


def own_limits(store: AccountStore) -> list[tuple[str, str]]:
    return [(override.device, override.limits) for override in quotas.list_all(store, "acme")]


def faults(store: AccountStore, *lines: str) -> tuple[str, ...]:
    with pytest.raises(BadLinesError, match=r"nothing was set \(bad lines: \d+\)") as refusal:
        set_limits_of_lines(store, "acme", lines)
    return refusal.value.details


def test_lines_set_limits_of_the_tenant_and_of_devices(store: AccountStore) -> None:
    """Comments, blank lines and a byte order mark mean nothing; several lines may name one device; other limits stay."""
    quotas.set_limits(store, "acme", "packet_bytes=1KiB sessions=7", device=None)
    quotas.set_limits(store, "acme", "packet_bytes=2KiB", device="dev2")

    changed = set_limits_of_lines(
        store,
        "acme",
        [
            "\ufeffconnections=5 packet_bytes=3KiB\n",
            "\n",
            "# halls\n",
            "dev1 packet_bytes=4KiB\n",
            "dev1\tdevice_publish_messages=5/1s,9/1d\r\n",
        ],
    )

    assert own_limits(store) == [
        ("", "connections=5"),
        ("", "packet_bytes=3KiB"),
        ("", "sessions=7"),
        ("dev1", "device_publish_messages=5/1s,9/1d"),
        ("dev1", "packet_bytes=4KiB"),
        ("dev2", "packet_bytes=2KiB"),
    ]
    assert {(override.device, override.name) for override in changed} == {
        ("", "connections"),
        ("", "packet_bytes"),
        ("dev1", "device_publish_messages"),
        ("dev1", "packet_bytes"),
    }


def test_dry_run_limit_on_another_line_stands_beside_the_enforced_one(store: AccountStore) -> None:
    """As `quota set` has it, and beside what was stored before."""
    quotas.set_limits(store, "acme", "publish_messages=50/1s")

    set_limits_of_lines(store, "acme", ["dry-run:publish_messages=9/1s", "connections=5", "dry-run:connections=3"])

    assert own_limits(store) == [
        ("", "connections=5 dry-run:connections=3"),
        ("", "publish_messages=50/1s dry-run:publish_messages=9/1s"),
    ]


def test_every_bad_line_is_named_and_nothing_is_set(store: AccountStore) -> None:
    found = faults(
        store,
        "connections=5",
        "conections=5",
        "dev1 packet_bytes=x",
        "dev1 packet_bytes=1KiB",
        "dev1 packet_bytes=2KiB",
        "dev1 connections=3",
        "dev9 packet_bytes=1KiB",
        "dev1",
        "d\xe9v packet_bytes=1KiB",
        "dev2 \udcff=1",
        "dev2 dry-run:packet_bytes=1KiB",
        "dev2 packet_bytes=1KiB",
        "connections=6",
    )

    assert [detail.split(": ", 1) for detail in found] == [
        ["line 2", "unknown quota 'conections'; did you mean 'connections'?"],
        ["line 3", "limit 'packet_bytes=x': expected a whole number, got 'x'"],
        ["line 5", "packet_bytes of dev1 stands in line 4 already"],
        ["line 6", "connections is counted for a whole tenant: it cannot be set for one device"],
        ["line 7", "tenant acme has no device 'dev9'"],
        ["line 8", "no limit after dev1: expected DEVICE name=value, for example dev1 connections=3"],
        ["line 9", "'d\xe9v' is neither name=value nor the name of a device"],
        ["line 10", "not UTF-8 text: save the file as UTF-8"],
        ["line 11", "packet_bytes has no dry run: only counts and rates report what they would have rejected"],
        ["line 13", "connections of the tenant stands in line 1 already"],
    ]
    assert own_limits(store) == []


def test_dry_run_checks_and_sets_nothing(store: AccountStore) -> None:
    """It says what the limits would be."""
    watcher = ChangeWatcher(store)
    quotas.set_limits(store, "acme", "publish_messages=50/1s")
    watcher.poll()

    (would,) = set_limits_of_lines(store, "acme", ["dry-run:publish_messages=9/1s"], is_dry_run=True)
    with pytest.raises(BadLinesError):
        set_limits_of_lines(store, "acme", ["dev9 packet_bytes=1KiB"], is_dry_run=True)

    assert would.limits == "publish_messages=50/1s dry-run:publish_messages=9/1s"
    assert own_limits(store) == [("", "publish_messages=50/1s")]
    assert watcher.poll() == []


def test_no_limits_are_no_change(store: AccountStore) -> None:
    watcher = ChangeWatcher(store)

    assert set_limits_of_lines(store, "acme", ["# nothing"]) == []
    assert watcher.poll() == []


def test_unknown_tenant_is_not_found(store: AccountStore) -> None:
    with pytest.raises(NotFoundError):
        set_limits_of_lines(store, "nobody", ["connections=5"])


def test_a_thousand_limits_are_one_transaction_and_one_line_of_the_log(store: AccountStore) -> None:
    """And as many statements as for one, but for the names that are looked up 500 at a time."""
    imports.import_devices(store, "acme", ["name", *(f"many{at}" for at in range(1000))], keep=lambda _made: None)
    watcher = ChangeWatcher(store)

    def statements_for(names: list[str]) -> int:
        with counted_statements(store) as counted:
            set_limits_of_lines(store, "acme", [f"{name} packet_bytes=1KiB" for name in names])
        assert counted.commits == 1
        return len(counted.statements)

    many, one = statements_for([f"many{at}" for at in range(1000)]), statements_for(["dev1"])

    assert len(own_limits(store)) == 1001
    assert many <= one + 1
    assert [(change.kind.value, change.subject) for change in watcher.poll()] == [("quota", "*")] * 2
