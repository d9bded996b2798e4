"""CSV import: all rows or none, with every bad line named."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from iothub.base.errors import NotFoundError, UnavailableError
from iothub_services.streams.port import Direction
from iothub_tenants.accounts import devices, groups, imports, quotas, streams, tenants
from iothub_tenants.accounts.changes import ChangeWatcher
from iothub_tenants.accounts.csv_rows import BadLinesError
from iothub_tenants.accounts.store import AccountStore
from tests.support.servers.counted_statements import counted_statements


@pytest.fixture(autouse=True)
def _tenant(store: AccountStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "hash_password", lambda password: f"hash of {len(password)}")
    tenants.create(store, "acme")


def test_rows_become_devices(store: AccountStore) -> None:
    """In one change; quotes, blank lines and a byte order mark are CSV's business."""
    watcher = ChangeWatcher(store)
    progress: list[tuple[str, int, int]] = []
    rows = ["\ufeffname,password\r\n", "dev1,one\r\n", "\r\n", 'dev2,"a,""b"""\r\n']

    names = imports.import_devices(store, "acme", rows, on_progress=lambda *report: progress.append(report))

    assert names == ["dev1", "dev2"]
    assert [device.name for device in devices.list_all(store, "acme")] == ["dev1", "dev2"]
    assert [(change.kind.value, change.subject) for change in watcher.poll()] == [("device", "*")]
    assert progress == [("passwords hashed", 1, 2), ("passwords hashed", 2, 2), ("devices written", 2, 2)]


def test_progress_of_generated_secrets_is_reported_until_the_last_row_is_written(store: AccountStore) -> None:
    """They are the ordinary way for a fleet, and 100,000 of them take seconds."""
    progress: list[tuple[str, int, int]] = []
    rows = ["name", *(f"dev{number}" for number in range(6000))]
    there: dict[str, int] = {}

    def report(what: str, done: int, of: int) -> None:
        progress.append((what, done, of))
        there[what] = len(devices.list_all(store, "acme"))

    imports.import_devices(store, "acme", rows, keep=lambda _made: None, on_progress=report)

    made = [done for what, done, _ in progress if what == "secrets made"]
    assert (made[0], made[-1], len(made)) == (256, 6000, 24)
    assert progress[-1] == ("devices written", 6000, 6000)
    assert there == {"secrets made": 0, "devices written": 6000}


def test_bad_lines_are_named_and_nothing_is_written(store: AccountStore) -> None:
    """Exit code 4, what the rows say and what the store says together; no password is in the message."""
    devices.create(store, "acme", "taken", password="x")
    rows = ["name,password", "good,pw1", "taken,pw2", "bad name;pw3,x", "good,pw4", "three,pw5,pw6", "empty,"]

    with pytest.raises(BadLinesError) as refusal:
        imports.import_devices(store, "acme", rows)

    text = "\n".join((str(refusal.value), *refusal.value.details))
    assert "(bad lines: 5)" in text
    assert "line 3: device taken exists already" in text
    assert "line 4: not a device name" in text
    assert "line 5: good stands in line 2 already" in text
    assert "line 6: 3 columns, expected 2" in text
    assert "line 7: the password of empty is empty" in text
    assert "pw" not in text.replace("password", "")
    assert [device.name for device in devices.list_all(store, "acme")] == ["taken"]


def test_devices_without_a_password_get_secrets(store: AccountStore) -> None:
    """They are handed over before anything is written, in the order of the rows."""
    kept: list[tuple[str, str]] = []

    def keep(made: Sequence[tuple[str, str]]) -> None:
        assert devices.list_all(store, "acme") == []
        kept.extend(made)

    names = imports.import_devices(store, "acme", ["name,password", "dev2,", "own,pw", "dev1,"], keep=keep)

    assert names == ["dev2", "own", "dev1"]
    assert [name for name, _ in kept] == ["dev2", "dev1"]
    assert len({secret for _, secret in kept}) == 2
    forms = {device.name: device.credential.value for device in devices.list_all(store, "acme")}
    assert forms == {"dev1": "generated", "dev2": "generated", "own": "password"}


def test_secrets_that_cannot_be_kept_stop_the_import(store: AccountStore) -> None:
    """A device whose secret nobody has is worse than none."""

    def refuse(_made: object) -> None:
        raise UnavailableError("the disk is full")

    with pytest.raises(UnavailableError):
        imports.import_devices(store, "acme", ["name", "dev1"], keep=refuse)

    assert devices.list_all(store, "acme") == []


@pytest.mark.parametrize(("cores", "threads"), [(1, 2), (2, 2), (4, 3), (64, 63)])
def test_import_leaves_a_core_to_the_hub(monkeypatch: pytest.MonkeyPatch, cores: int, threads: int) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _pid: set(range(cores)))

    assert imports.hash_threads() == threads


def test_device_that_appears_meanwhile_stops_the_import(store: AccountStore) -> None:
    """Hashing takes long; the transaction looks again."""

    def meanwhile(what: str, _done: int, _of: int) -> None:
        if what == "passwords hashed" and not devices.list_all(store, "acme"):
            devices.create(store, "acme", "dev1", password="x")

    with pytest.raises(BadLinesError) as refusal:
        imports.import_devices(store, "acme", ["name,password", "dev1,a", "dev2,b"], on_progress=meanwhile)

    assert refusal.value.details == ("line 2: device dev1 exists already",)
    assert len(devices.list_all(store, "acme")) == 1


def test_header_alone_imports_nothing(store: AccountStore) -> None:
    """And is no change."""
    watcher = ChangeWatcher(store)

    assert imports.import_devices(store, "acme", ["name,password"]) == []
    assert watcher.poll() == []


def test_unknown_tenant_is_not_found(store: AccountStore) -> None:
    """Before any password is hashed."""
    with pytest.raises(NotFoundError):
        imports.import_devices(
            store, "nobody", ["name,password", "dev1,x"], on_progress=lambda *_report: pytest.fail("hashed")
        )


def test_groups_and_limits_come_with_the_devices(store: AccountStore) -> None:
    """One line of the change log, of a kind that concerns the whole tenant, tells a hub of all of it."""
    for group in ("hall-1", "sensors"):
        groups.create(store, "acme", group)
    watcher = ChangeWatcher(store)
    rows = ["name,password,groups,limits", "dev1,pw,sensors hall-1,packet_bytes=1KiB", "dev2,pw,sensors,", "dev3,pw,,"]

    imports.import_devices(store, "acme", rows)

    found = {device.name: device.groups for device in devices.list_all(store, "acme")}
    assert found == {"dev1": ("hall-1", "sensors"), "dev2": ("sensors",), "dev3": ()}
    own = [(override.device, override.limits) for override in quotas.list_all(store, "acme")]
    assert own == [("dev1", "packet_bytes=1KiB")]
    assert [(change.kind.value, change.subject) for change in watcher.poll()] == [("quota", "*")]


def test_group_that_is_not_there_stops_the_import(store: AccountStore) -> None:
    """Its name is not shown: it may be the rest of a password that has a comma."""
    groups.create(store, "acme", "hall-1")
    rows = ["name,password,groups", "dev1,pw,hall-1", "dev2,pw,hall-1 s!cret", "dev3,pw,s!cret"]

    with pytest.raises(BadLinesError) as refusal:
        imports.import_devices(store, "acme", rows)

    assert refusal.value.details == (
        "line 3: group 2 of dev2 does not exist: create it first",
        "line 4: group 1 of dev3 does not exist: create it first",
    )
    assert devices.list_all(store, "acme") == []


def test_name_of_a_streams_rules_is_a_bad_line(store: AccountStore) -> None:
    streams.create(store, "acme", streams.Wanted("tele", "a/#", Direction.OUT, 1, 60_000))

    with pytest.raises(BadLinesError) as refusal:
        imports.import_devices(store, "acme", ["name,password", "dev1,pw", f"{streams.SUBJECT}tele,pw"])

    assert refusal.value.details[0].startswith("line 3: a device cannot be named ")


def test_dry_run_checks_and_writes_nothing(store: AccountStore) -> None:
    """Nor does it hash or make a secret; bad lines are refused as ever."""
    watcher = ChangeWatcher(store)

    def unexpected(*_arguments: object) -> None:
        pytest.fail("a dry run")

    def check(*rows: str) -> list[str]:
        return imports.import_devices(
            store, "acme", rows, keep=unexpected, on_progress=unexpected, before_write=unexpected, is_dry_run=True
        )

    assert check("name,password", "dev1,", "dev2,pw") == ["dev1", "dev2"]
    with pytest.raises(BadLinesError):
        check("name,groups", "dev1,nowhere")

    assert devices.list_all(store, "acme") == []
    assert watcher.poll() == []


def test_statements_do_not_grow_with_the_devices(store: AccountStore) -> None:
    """A thousand devices with groups and limits: the time is the database's, not that of a thousand calls."""
    groups.create(store, "acme", "sensors")

    def statements_for(prefix: str, number: int) -> int:
        rows = (f"{prefix}{at},pw,sensors,packet_bytes=1KiB" for at in range(number))
        with counted_statements(store) as counted:
            imports.import_devices(store, "acme", ["name,password,groups,limits", *rows])
        assert counted.commits == 1
        return len(counted.statements)

    assert statements_for("a", 1000) <= statements_for("b", 1) + 6  # names are looked up 500 at a time


def test_many_devices_are_one_transaction(store: AccountStore) -> None:
    """More than one query's worth of names, twice over: the second import finds each of them."""
    rows = ["name,password", *(f"dev{number},pw" for number in range(1200))]

    assert len(imports.import_devices(store, "acme", rows)) == 1200
    with pytest.raises(BadLinesError, match="bad lines: 1200"):
        imports.import_devices(store, "acme", rows)


def test_interrupted_import_writes_nothing(store: AccountStore) -> None:
    """Ctrl-C while passwords are hashed."""

    def interrupt(_what: str, _done: int, _of: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        imports.import_devices(store, "acme", ["name,password", "dev1,a", "dev2,b"], on_progress=interrupt)

    assert devices.list_all(store, "acme") == []
