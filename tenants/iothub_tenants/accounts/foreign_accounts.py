"""Reads the accounts of other brokers: the password file of Mosquitto, the users that EMQX exports as CSV.

Knows no store and no path. Hashes appear in no message.
"""

from __future__ import annotations

from collections.abc import Iterable

from iothub.base.errors import ConfigError
from iothub_services.auth.foreign_hashes import emqx_hash, mosquitto_hash
from iothub_tenants.accounts.csv_rows import NOT_UTF_8, CsvRows, DeviceRow, csv_rows, header_of, is_foreign, is_new_name

EMQX_COLUMNS = ("user_id", "password_hash", "salt", "is_superuser")


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


def read_emqx(lines: Iterable[str], salt_place: str) -> CsvRows:
    """Read CSV with the columns of EMQX's built-in database. `salt_place`: prefix or suffix, as its authenticator is configured."""
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
            _add_emqx(parsed, number, dict(zip(columns, row, strict=True)), salt_place)
    return parsed


def _add_emqx(parsed: CsvRows, line: int, cells: dict[str, str], salt_place: str) -> None:
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
        stored = emqx_hash(cells["password_hash"].strip(), cells.get("salt", "").strip(), salt_place)
        parsed.devices[name] = DeviceRow(line, stored=stored)
    except ConfigError as error:
        parsed.faults[line] = f"the password of {name}: {error}"
