"""CSV import: all rows or none, with every bad line named."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from iothub.base.errors import NotFoundError, UnavailableError
from iothub_tenants.accounts import devices, imports, tenants
from iothub_tenants.accounts.changes import ChangeWatcher
from iothub_tenants.accounts.csv_rows import BadLinesError
from iothub_tenants.accounts.store import AccountStore


@pytest.fixture(autouse=True)
def _tenant(store: AccountStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "hash_password", lambda password: f"hash of {len(password)}")
    tenants.create(store, "acme")


def test_rows_become_devices(store: AccountStore) -> None:
    """In one change; quotes, blank lines and a byte order mark are CSV's business."""
    watcher = ChangeWatcher(store)
    progress: list[tuple[int, int]] = []
    rows = ["\ufeffname,password\r\n", "dev1,one\r\n", "\r\n", 'dev2,"a,""b"""\r\n']

    names = imports.import_devices(store, "acme", rows, on_progress=lambda done, of: progress.append((done, of)))

    assert names == ["dev1", "dev2"]
    assert [device.name for device in devices.list_all(store, "acme")] == ["dev1", "dev2"]
    assert [(change.kind.value, change.subject) for change in watcher.poll()] == [("device", "*")]
    assert progress == [(1, 2), (2, 2)]


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

    def meanwhile(_done: int, _of: int) -> None:
        if not devices.list_all(store, "acme"):
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
            store, "nobody", ["name,password", "dev1,x"], on_progress=lambda done, of: pytest.fail("hashed")
        )


def test_many_devices_are_one_transaction(store: AccountStore) -> None:
    """More than one query's worth of names, twice over: the second import finds each of them."""
    rows = ["name,password", *(f"dev{number},pw" for number in range(1200))]

    assert len(imports.import_devices(store, "acme", rows)) == 1200
    with pytest.raises(BadLinesError, match="bad lines: 1200"):
        imports.import_devices(store, "acme", rows)


def test_interrupted_import_writes_nothing(store: AccountStore) -> None:
    """Ctrl-C while passwords are hashed."""

    def interrupt(_done: int, _of: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        imports.import_devices(store, "acme", ["name,password", "dev1,a", "dev2,b"], on_progress=interrupt)

    assert devices.list_all(store, "acme") == []
