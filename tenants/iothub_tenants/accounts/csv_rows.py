"""Reads the CSV rows of a device import, with the columns that its header names, and says of every bad line what is wrong with it.

Knows no store, no hash and no file. Passwords appear in no message, and no text that may be one: with a wrong separator, or columns
that are swapped, the first column holds the password; after a comma without quotes, the next column holds a part of it.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from iothub.base.errors import ConfigError, ConflictError
from iothub_services.quota.grammar import DRY_RUN, Limits, parse_limits
from iothub_services.quota.names import BY_NAME
from iothub_tenants.accounts import limits, quotas
from iothub_tenants.accounts.devices import check_password
from iothub_tenants.identity import DEVICE_NAME, shown

COLUMNS = ("name", "password", "groups", "limits")
MOST_LISTED = 20  # bad lines; the others most likely have the same faults
MAX_NAME = 128

_SEPARATORS = frozenset(" ,;|\t")
NOT_UTF_8 = "not UTF-8 text: save the file as UTF-8"
_INSTEAD = "give one, or have secrets generated with --secrets-to FILE"


class BadLinesError(ConflictError):
    """Nothing was imported, or whatever else was to be `done`; `details` names the bad lines."""

    def __init__(self, faults: dict[int, str], done: str = "imported") -> None:
        super().__init__(f"nothing was {done} (bad lines: {len(faults)}):")
        listed = [f"line {line}: {fault}" for line, fault in sorted(faults.items())[:MOST_LISTED]]
        rest = len(faults) - len(listed)
        self.details = (*listed, f"and {rest} more") if rest else tuple(listed)


@dataclass(frozen=True, slots=True)
class DeviceRow:
    """One device, and the line on which its row begins.

    `stored`: the hash of its password, made by another broker. Neither that nor a `password`: one is to be generated.
    """

    line: int
    password: str | None = field(default=None, repr=False)
    groups: tuple[str, ...] = ()
    limits: Limits = field(default_factory=dict)
    stored: str | None = field(default=None, repr=False)


@dataclass(slots=True)
class CsvRows:
    """The rows of a file by the device's name, and what is wrong by line."""

    devices: dict[str, DeviceRow] = field(default_factory=dict)
    faults: dict[int, str] = field(default_factory=dict)

    def refuse(self) -> None:
        """Raise BadLinesError if any line is bad."""
        if self.faults:
            raise BadLinesError(self.faults)


def read_csv_rows(lines: Iterable[str], *, is_generating: bool, first_line: int | None = None) -> CsvRows:
    """Read the whole text. `is_generating`: a device without a password gets a generated secret; else its line is bad.

    `first_line`: what follows the header is a part of a file, and begins with this line of it.
    """
    parsed = CsvRows()
    rows = csv_rows(lines, parsed.faults, first_line)
    line, columns = header_of(rows)
    fault = _header_fault(columns, is_generating=is_generating)
    if fault:  # the rest would be bad too, line by line, for this one reason
        parsed.faults = parsed.faults or {line: fault}
        return parsed
    for line, row in rows:
        if len(row) == len(columns):
            _add_row(parsed, line, dict(zip(columns, row, strict=True)), is_generating=is_generating)
        else:
            parsed.faults[line] = f"{len(row)} columns, expected {len(columns)}"
    return parsed


def header_lines(lines: Sequence[str]) -> int:
    """Return how many lines there are up to the header, and with it."""
    return next((number for number, line in enumerate(lines, 1) if line.strip()), 0)


def lines_from(lines: Sequence[str], first: int) -> list[str]:
    """Return the header, and what begins with this line. Raises ConfigError: the file has no such line behind its header."""
    header = header_lines(lines)
    if not header < first <= len(lines):
        raise ConfigError(
            f"--from-line {first}: expected a line from {header + 1} to {len(lines)}, where the file has its rows"
        )
    return [*lines[:header], *lines[first - 1 :]]


def header_of(rows: Iterator[tuple[int, list[str]]]) -> tuple[int, list[str]]:
    """Take the first row: its line, and the names of the columns."""
    line, header = next(rows, (1, []))
    return line, [column.strip().lstrip("\ufeff").lower() for column in header]


def csv_rows(
    lines: Iterable[str], faults: dict[int, str], second: int | None = None
) -> Iterator[tuple[int, list[str]]]:
    """Yield the rows that are not blank, each with the line on which it begins; a broken one is a fault, and the next is read.

    `second`: the number of the line behind the first row, if some were left out.
    """
    rows, left_out = csv.reader(lines, strict=True), 0
    while True:
        line = rows.line_num + 1 + left_out
        try:
            row = next(rows)
        except StopIteration:
            return
        except csv.Error as error:
            faults[line] = f"not CSV ({error})"
        except UnicodeError:
            faults[line] = NOT_UTF_8
            return
        else:
            if any(is_foreign(cell) for cell in row):
                faults[line] = NOT_UTF_8
            elif row:
                yield line, row
                if second is not None:
                    left_out, second = second - rows.line_num - 1, None


def is_foreign(cell: str) -> bool:
    """Does this hold octets that are no UTF-8, as `errors="surrogateescape"` writes them?"""
    return not cell.isascii() and any("\udc80" <= mark <= "\udcff" for mark in cell)


def is_new_name(parsed: CsvRows, line: int, name: str, beside: str) -> bool:
    """Can this be the name of one more device? If not, its line is bad. `beside`: the next column, perhaps swapped with it."""
    if not DEVICE_NAME.fullmatch(name):
        parsed.faults[line] = _name_fault(name, beside)
    elif name in parsed.devices:
        parsed.faults[line] = f"{name} stands in line {parsed.devices[name].line} already"
    else:
        return True
    return False


def _header_fault(columns: list[str], *, is_generating: bool) -> str:
    """Say what is wrong with the header, which is not shown: it may be the first password."""
    if "name" not in columns or len(set(columns)) < len(columns) or not set(columns) <= set(COLUMNS):
        return "not the header: expected name,password[,groups][,limits]"
    if "password" not in columns and not is_generating:
        return f"there is no column password: {_INSTEAD}"
    return ""


def _add_row(parsed: CsvRows, line: int, cells: dict[str, str], *, is_generating: bool) -> None:
    name, password = cells["name"], cells.get("password", "")
    if not is_new_name(parsed, line, name, password):
        return
    groups, own = tuple(dict.fromkeys(cells.get("groups", "").split())), cells.get("limits", "")
    parsed.devices[name] = DeviceRow(line, password or None, groups)
    try:
        _check_password(name, password, is_generating=is_generating)
        parsed.devices[name] = DeviceRow(line, password or None, groups, _read_limits(name, own))
    except ConfigError as error:
        parsed.faults[line] = str(error)


def _check_password(name: str, password: str, *, is_generating: bool) -> None:
    if not password and not is_generating:
        raise ConfigError(f"the password of {name} is empty: {_INSTEAD}")
    try:
        if password:
            check_password(password)
    except ConfigError:
        raise ConfigError(f"the password of {name} is too long or holds a NUL") from None


def _read_limits(name: str, text: str) -> Limits:
    for place, part in enumerate(text.split(), 1):
        if part.removeprefix(DRY_RUN).partition("=")[0] not in BY_NAME:
            raise ConfigError(
                f"limit {place} of {name}: expected the name of a limit and its value, for example connections=3 "
                "(`iothub quota set --help` has all names)"
            )
    parsed = parse_limits(text)
    quotas.refuse_wider(parsed)
    limits.merged({}, parsed)  # refuses what cannot be stored
    return parsed


def _name_fault(name: str, password: str) -> str:
    if not name:
        return "the name is empty"
    is_secret = bool(_SEPARATORS & set(name)) or DEVICE_NAME.fullmatch(password) is not None
    return f"not a device name{'' if is_secret else f' {shown(name)}'}: {_why(name)}"


def _why(name: str) -> str:
    if len(name) > MAX_NAME:
        return f"{len(name)} characters, expected at most {MAX_NAME}"
    at = next(at for at in range(1, len(name) + 1) if not DEVICE_NAME.fullmatch(name[:at]))
    if name[at - 1] in _SEPARATORS:
        return f"character {at} is {name[at - 1]!r}, which no name has; expected a comma between the columns"
    return f"character {at} is none of A-Z, a-z, 0-9 and . _ : @ -{' (it must begin with a letter or digit)' if at == 1 else ''}"
