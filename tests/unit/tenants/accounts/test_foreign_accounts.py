"""The password file of Mosquitto and the users of EMQX become devices: all or none, with every bad line named."""

from __future__ import annotations

from functools import partial

import pytest

from iothub_services.auth.secrets import verify_password
from iothub_tenants.accounts import devices, imports, tenants
from iothub_tenants.accounts.csv_rows import BadLinesError
from iothub_tenants.accounts.foreign_accounts import emqx_salted, read_emqx, read_mosquitto
from iothub_tenants.accounts.registry import Registry
from iothub_tenants.accounts.store import AccountStore
from tests.support.foreign_hashes import EMQX, EMQX_SALT, PBKDF2, SHA512


@pytest.fixture(autouse=True)
def _tenant(store: AccountStore) -> None:
    tenants.create(store, "acme")


def stored(store: AccountStore, name: str) -> str:
    registry = Registry(store)
    tenant = registry.find_tenant("acme")
    assert tenant is not None
    found = registry.find_device(tenant.id, name)
    assert found is not None
    return found.credential


def test_password_file_becomes_devices_with_their_passwords(store: AccountStore) -> None:
    """Comments and blank lines are passed over."""
    lines = ["# made by hand\n", "\n", f"dev1:{PBKDF2}\r\n", f"dev2:{SHA512}\n"]

    names = imports.import_devices(store, "acme", lines, read=read_mosquitto)

    assert names == ["dev1", "dev2"]
    assert [device.credential.value for device in devices.list_all(store, "acme")] == ["password", "password"]
    assert verify_password("secret", stored(store, "dev1"))
    assert verify_password("p\u00e4ssword", stored(store, "dev2"))


def test_users_of_emqx_become_devices_with_their_passwords(store: AccountStore) -> None:
    """Optional columns may be missing or in another order."""
    lines = ["user_id,salt,password_hash\n", f"dev1,{EMQX_SALT},{EMQX}\n"]

    assert imports.import_devices(store, "acme", lines, read=partial(read_emqx, stored_form=emqx_salted("prefix"))) == [
        "dev1"
    ]
    assert verify_password("mypassword3", stored(store, "dev1"))


def test_bad_lines_of_a_password_file_are_named_and_nothing_is_written(store: AccountStore) -> None:
    """No hash and no password is in the message."""
    devices.create(store, "acme", "taken", password="x")
    lines = [
        f"good:{PBKDF2}",
        "nocolon",
        "bad name:$6$a$b",
        "plain:hunter2",
        f"taken:{SHA512}",
        f"good:{SHA512}",
        "broken:$6$x$y",
    ]

    with pytest.raises(BadLinesError) as refusal:
        imports.import_devices(store, "acme", lines, read=read_mosquitto)

    text = "\n".join(refusal.value.details)
    assert "line 2: no colon" in text
    assert "line 3: not a device name" in text
    assert "line 4: the password of plain: not a hash of mosquitto_passwd" in text
    assert "line 5: device taken exists already" in text
    assert "line 6: good stands in line 1 already" in text
    assert "line 7: the password of broken: the hash is damaged" in text
    assert "hunter2" not in text
    assert "$6$x" not in text
    assert [device.name for device in devices.list_all(store, "acme")] == ["taken"]


def test_superuser_of_emqx_is_a_bad_line(store: AccountStore) -> None:
    """It would lose or gain rights in silence."""
    lines = ["user_id,password_hash,salt,is_superuser", f"root,{EMQX},{EMQX_SALT},true", "short,abc,,false", "one,two"]

    with pytest.raises(BadLinesError) as refusal:
        imports.import_devices(store, "acme", lines, read=partial(read_emqx, stored_form=emqx_salted("prefix")))

    text = "\n".join(refusal.value.details)
    assert "line 2: root is a superuser" in text
    assert "line 3: the password of short: not a SHA-256 or SHA-512" in text
    assert "line 4: 2 columns, expected 4" in text


def test_wrong_header_of_emqx_is_the_only_fault(store: AccountStore) -> None:
    """The rest would be bad for the same reason."""
    with pytest.raises(BadLinesError, match="bad lines: 1"):
        imports.import_devices(
            store, "acme", ["name,password", "a,b"], read=partial(read_emqx, stored_form=emqx_salted("prefix"))
        )


def test_dry_run_checks_and_writes_nothing(store: AccountStore) -> None:
    """The names that would be created."""
    assert imports.import_devices(store, "acme", [f"dev1:{PBKDF2}"], read=read_mosquitto, is_dry_run=True) == ["dev1"]
    assert devices.list_all(store, "acme") == []
