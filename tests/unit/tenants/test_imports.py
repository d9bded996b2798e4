"""CSV import: all rows or none, with every bad line named."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from iothub.errors import ConfigError, ConflictError, NotFoundError
from iothub_tenants import devices, imports, tenants
from iothub_tenants.changes import ChangeWatcher
from iothub_tenants.store import AccountStore


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


def test_all_bad_lines_are_named_and_nothing_is_written(store: AccountStore) -> None:
    """Exit code 4; no password is in the message."""
    devices.create(store, "acme", "taken", password="x")
    rows = [
        "name,password",
        "good,pw1",
        "taken,pw2",
        "bad name;pw3,x",
        "good,pw4",
        "three,pw5,pw6",
        "empty,",
        "x" * 129 + ",pw7",
    ]

    with pytest.raises(ConflictError) as refusal:
        imports.import_devices(store, "acme", rows)

    text = str(refusal.value)
    assert "(bad lines: 6)" in text
    assert "line 3: device taken exists already" in text
    assert "line 4: not a device name" in text
    assert "line 5: good stands in line 2 already" in text
    assert "line 6: 3 columns, expected 2" in text
    assert "line 7: the password" in text
    assert "line 8: not a device name" in text
    assert "pw" not in text.replace("password", "")
    assert [device.name for device in devices.list_all(store, "acme")] == ["taken"]


@pytest.mark.parametrize("rows", [[], ["dev1,x"], ["name;password", "a;b"], ["name,password", 'dev1,"x']])
def test_what_is_no_such_file_is_refused(store: AccountStore, rows: list[str]) -> None:
    """Exit code 2: the form of the whole is wrong."""
    with pytest.raises(ConfigError, match="expected"):
        imports.import_devices(store, "acme", rows)


def test_text_in_another_encoding_is_refused(store: AccountStore) -> None:
    """The reader of the file raises while it is read."""

    def rows() -> Iterator[str]:
        yield "name,password"
        raise UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte")

    with pytest.raises(ConfigError, match="UTF-8"):
        imports.import_devices(store, "acme", rows())


def test_device_that_appears_meanwhile_stops_the_import(store: AccountStore) -> None:
    """Hashing takes long; the transaction looks again."""

    def meanwhile(_done: int, _of: int) -> None:
        if not devices.list_all(store, "acme"):
            devices.create(store, "acme", "dev1", password="x")

    with pytest.raises(ConflictError, match="line 2: device dev1 exists already"):
        imports.import_devices(store, "acme", ["name,password", "dev1,a", "dev2,b"], on_progress=meanwhile)

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
    with pytest.raises(ConflictError, match="bad lines: 1200"):
        imports.import_devices(store, "acme", rows)


def test_interrupted_import_writes_nothing(store: AccountStore) -> None:
    """Ctrl-C while passwords are hashed."""

    def interrupt(_done: int, _of: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        imports.import_devices(store, "acme", ["name,password", "dev1,a", "dev2,b"], on_progress=interrupt)

    assert devices.list_all(store, "acme") == []
