"""Reads the accounts of other brokers: the password file of Mosquitto, the users that EMQX exports as CSV.

Knows no store and no path. Hashes appear in no message.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import partial

from iothub.base.errors import ConfigError
from iothub_services.auth.foreign_hashes import emqx_hash, emqx_pbkdf2_hash, mosquitto_hash
from iothub_tenants.accounts.csv_rows import NOT_UTF_8, CsvRows, DeviceRow, csv_rows, header_of, is_foreign, is_new_name

_PBKDF2 = re.compile(r"(sha256|sha512):([1-9]\d{0,8})", re.ASCII)
EMQX_COLUMNS = ("user_id", "password_hash", "salt", "is_superuser")

StoredForm = Callable[[str, str], str]
"""Returns what is stored for `password_hash` and `salt`. Raises ConfigError."""


def read_mosquitto(lines: Iterable[str]) -> CsvRows:
    """Read `NAME:HASH` lines as mosquitto_passwd writes them; lines that begin with # and blank ones are passed over."""
    parsed = CsvRows()
    for number, raw in enumerate(lines, 1):
        text = raw.rstrip("\r\n").removeprefix("\ufeff")
        if not text.strip() or text.startswith("#"):
            continue
        name, colon, stored = text.partition(":")
        if is_foreign(text):
            parsed.faults[number] = NOT_UTF_8
        elif not colon:
            parsed.faults[number] = "no colon: expected NAME:HASH, as mosquitto_passwd writes it"
        elif is_new_name(parsed, number, name, ""):
            parsed.devices[name] = DeviceRow(number)
            try:
                parsed.devices[name] = DeviceRow(number, stored=mosquitto_hash(stored))
            except ConfigError as error:
                parsed.faults[number] = f"the password of {name}: {error}"
    return parsed


def read_emqx(lines: Iterable[str], stored_form: StoredForm) -> CsvRows:
    """Read CSV with the columns of EMQX's built-in database. `stored_form`: by the hash algorithm that its authenticator has."""
    parsed = CsvRows()
    rows = csv_rows(lines, parsed.faults)
    line, columns = header_of(rows)
    if not {"user_id", "password_hash"} <= set(columns) <= set(EMQX_COLUMNS):
        parsed.faults[line] = f"not the header: expected {','.join(EMQX_COLUMNS)}"
        return parsed
    for number, row in rows:
        if len(row) != len(columns):
            parsed.faults[number] = f"{len(row)} columns, expected {len(columns)}"
        else:
            _add_emqx(parsed, number, dict(zip(columns, row, strict=True)), stored_form)
    return parsed


def emqx_salted(salt_place: str) -> StoredForm:
    """Its algorithm is sha256 or sha512, with the salt at this place: prefix or suffix."""
    return partial(emqx_hash, salt_place=salt_place)


def emqx_pbkdf2(settings: str) -> StoredForm:
    """Its algorithm is pbkdf2, with these settings: `MAC_FUN:ITERATIONS`. Raises ConfigError."""
    found = _PBKDF2.fullmatch(settings)
    if found is None:
        raise ConfigError(f"pbkdf2: expected sha256:ITERATIONS or sha512:ITERATIONS, got {settings!r}")
    return partial(emqx_pbkdf2_hash, mac=found[1], iterations=int(found[2]))


def _add_emqx(parsed: CsvRows, line: int, cells: dict[str, str], stored_form: StoredForm) -> None:
    name = cells["user_id"]
    if not is_new_name(parsed, line, name, cells["password_hash"]):
        return
    parsed.devices[name] = DeviceRow(line)
    if cells.get("is_superuser", "").strip().lower() == "true":
        parsed.faults[line] = (
            f"{name} is a superuser, which is not here: set false, and give it a rule after the import"
        )
        return
    try:
        stored = stored_form(cells["password_hash"].strip(), cells.get("salt", "").strip())
        parsed.devices[name] = DeviceRow(line, stored=stored)
    except ConfigError as error:
        parsed.faults[line] = f"the password of {name}: {error}"
