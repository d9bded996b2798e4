"""Many rules at once, from CSV and from an ACL file of Mosquitto: all or none, with every bad line named."""

from __future__ import annotations

import pytest

from iothub.base.errors import NotFoundError
from iothub_tenants.accounts import acl_import, acl_rules, devices, groups, imports, tenants
from iothub_tenants.accounts.acl_import import Imported
from iothub_tenants.accounts.changes import ChangeWatcher
from iothub_tenants.accounts.csv_rows import BadLinesError
from iothub_tenants.accounts.store import AccountStore

MOSQUITTO = """\
# a file as its manual has it
user dev1
topic read news/#
topic write data/dev1
topic deny news/secret
topic readwrite both of us
topic alone

user dev2
topic readwrite a/+/b
pattern write sensor/%u/data
pattern read clients/%c/#
"""


@pytest.fixture(autouse=True)
def _tenant(store: AccountStore) -> None:
    tenants.create(store, "acme", is_closed=True)
    devices.create(store, "acme", "dev1")
    devices.create(store, "acme", "dev2")
    groups.create(store, "acme", "meters")


def rules(store: AccountStore) -> list[tuple[str, str, str, str]]:
    found = acl_rules.list_all(store, "acme")
    return [(rule.subject, rule.effect.value, rule.action.value, rule.filter) for rule in found]


def test_csv_becomes_rules_in_one_change(store: AccountStore) -> None:
    """The columns in any order; what `acl list -o csv` writes can be read."""
    watcher = ChangeWatcher(store)
    lines = [
        "id,filter,subject,effect,action",
        "7,a/#,dev1,allow,publish",
        "8,'+/b,'@meters,deny,both",
        "9,c/{device},*,allow,both",
    ]

    result = acl_import.import_rules(store, "acme", acl_import.read_csv(lines))

    assert result == Imported(added=3, present=0)
    assert rules(store) == [
        ("dev1", "allow", "publish", "a/#"),
        ("@meters", "deny", "both", "+/b"),
        ("*", "allow", "both", "c/{device}"),
    ]
    assert [(change.kind.value, change.subject) for change in watcher.poll()] == [("acl", "*")]


def test_rules_that_are_there_stay_as_they_are(store: AccountStore) -> None:
    """The same file again adds nothing, and writes no change; a rule that a file has twice is one."""
    lines = ["subject,effect,action,filter", "dev1,allow,publish,a", "dev1,allow,publish,a", "dev2,allow,both,b"]
    acl_rules.allow(store, "acme", "dev1", "publish", "a")

    first = acl_import.import_rules(store, "acme", acl_import.read_csv(lines))
    watcher = ChangeWatcher(store)
    second = acl_import.import_rules(store, "acme", acl_import.read_csv(lines))

    assert (first, second) == (Imported(added=1, present=1), Imported(added=0, present=2))
    assert watcher.poll() == []


def test_bad_lines_are_named_and_nothing_is_written(store: AccountStore) -> None:
    """What the lines say and what the store says together."""
    lines = [
        "subject,effect,action,filter",
        "dev1,allow,publish,a",
        "dev9,allow,publish,a",
        "@no,allow,publish,a",
        "dev1,permit,publish,a",
        "dev1,allow,read,a",
        "dev1,allow,publish,a/#/b",
        "dev1,allow,publish",
    ]

    with pytest.raises(BadLinesError) as refusal:
        acl_import.import_rules(store, "acme", acl_import.read_csv(lines))

    text = "\n".join((str(refusal.value), *refusal.value.details))
    assert "(bad lines: 6)" in text
    assert "line 3: tenant acme has no device 'dev9'" in text
    assert "line 4: tenant acme has no device group 'no'" in text
    assert "line 5: 'permit' is not an effect" in text
    assert "line 6: 'read' is not an action" in text
    assert "line 7: topic filter 'a/#/b'" in text
    assert "line 8: 3 columns, expected 4" in text
    assert rules(store) == []


@pytest.mark.parametrize("header", ["", "subject,effect,action", "subject,effect,action,filter,more", "a,b,c,d"])
def test_wrong_header_is_the_only_fault(header: str) -> None:
    """The rest would be bad for the same reason."""
    assert list(acl_import.read_csv([header, "dev1,allow,publish,a"]).faults.values()) == [
        "not the header: expected subject,effect,action,filter"
    ]


def test_acl_file_of_mosquitto_becomes_rules(store: AccountStore) -> None:
    """Read is subscribe, write is publish; a topic without an access is for both; %u and %c are placeholders."""
    result = acl_import.import_rules(store, "acme", acl_import.read_mosquitto(MOSQUITTO.splitlines()))

    assert result == Imported(added=8, present=0)
    assert sorted(rules(store)) == [
        ("*", "allow", "publish", "sensor/{device}/data"),
        ("*", "allow", "subscribe", "clients/{clientid}/#"),
        ("dev1", "allow", "both", "alone"),
        ("dev1", "allow", "both", "both of us"),
        ("dev1", "allow", "publish", "data/dev1"),
        ("dev1", "allow", "subscribe", "news/#"),
        ("dev1", "deny", "both", "news/secret"),
        ("dev2", "allow", "both", "a/+/b"),
    ]


def test_lines_of_mosquitto_that_mean_nothing_here_are_named(store: AccountStore) -> None:
    """Nothing is dropped in silence: not a right, and not a denial."""
    lines = [
        "topic read open/#",
        "user",
        "user dev1",
        "topic",
        "topic some words",
        "pattern write a-%u/b",
        "topic {device}/a",
        "rule x",
        "user *",
        "topic read a/#",
        "user @meters",
        "topic read a/#",
    ]

    with pytest.raises(BadLinesError) as refusal:
        acl_import.import_rules(store, "acme", acl_import.read_mosquitto(lines))

    text = "\n".join(refusal.value.details)
    assert "line 1: a topic before the first user is for anonymous clients" in text
    assert "line 2: 'user': expected user, topic or pattern, and a value" in text
    assert "line 4: 'topic': expected user" in text
    assert "line 5: 'some' is not an access" in text
    assert "line 6: 'a-%u/b': %u and %c must be alone in their level" in text
    assert "line 7: '{device}/a': {device} and {clientid} are placeholders here" in text
    assert "line 8: 'rule': expected user" in text
    assert "line 9: '*' is not a device's name: here it would be a rule for many devices" in text
    assert "line 11: '@meters' is not a device's name: here it would be a rule for many devices" in text


def test_dry_run_checks_and_writes_nothing(store: AccountStore) -> None:
    """The same counts, the same errors."""
    good = acl_import.read_csv(["subject,effect,action,filter", "dev1,allow,publish,a"])
    bad = acl_import.read_csv(["subject,effect,action,filter", "dev9,allow,publish,a"])

    result = acl_import.import_rules(store, "acme", good, is_dry_run=True)

    assert result == Imported(added=1, present=0)
    assert rules(store) == []
    with pytest.raises(BadLinesError):
        acl_import.import_rules(store, "acme", bad, is_dry_run=True)


def test_unknown_tenant_is_refused(store: AccountStore) -> None:
    with pytest.raises(NotFoundError):
        acl_import.import_rules(store, "beta", acl_import.read_csv(["subject,effect,action,filter"]))


def test_a_thousand_rules_of_a_thousand_devices_are_one_insert(store: AccountStore) -> None:
    """One transaction, and one line in the change log."""
    names = [f"d{number}" for number in range(1000)]
    imports.import_devices(store, "acme", ["name", *names], keep=lambda made: None)
    watcher = ChangeWatcher(store)
    lines = ["subject,effect,action,filter", *(f"{name},allow,publish,data/{name}" for name in names)]

    result = acl_import.import_rules(store, "acme", acl_import.read_csv(lines))

    assert result == Imported(added=1000, present=0)
    assert len(watcher.poll()) == 1
