"""Kinds of setting values: how each is read from TOML, from one line of text, and written back.

Knows no key and no section. Strict on purpose: `port = "1883"` in a file is an error, because the file has types of its
own; a flag or an environment variable has only text, so there "1883" is a number.
"""

from __future__ import annotations

import ipaddress
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from iothub.base.ids import TENANT_NAME, TENANT_RULE
from iothub.base.units import (
    OFF_WORDS,
    Endpoint,
    Network,
    QueueChoice,
    Rate,
    format_duration,
    format_size,
    format_time_of_day,
    parse_duration,
    parse_endpoint,
    parse_network,
    parse_rate,
    parse_size,
    parse_time_of_day,
)
from iothub.config.cpus import usable_cpus

T = TypeVar("T")

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_IDENTIFIER = re.compile(r"[A-Za-z0-9_]{1,64}")
_LOOPBACK = ("127.0.0.1", "[::1]", "localhost")
_WEB_ADDRESS = re.compile(r"(?P<scheme>https?)://(?P<host>[a-zA-Z0-9.-]+|\[[0-9a-fA-F:.]+\])(:[0-9]{1,5})?(/[!-~]*)?")
_GROUP_ROLE = re.compile(
    r"[ -~]*[!-~]=((platform-admin|operator|viewer)|(tenant-admin|tenant-viewer)(:" + TENANT_NAME.pattern + r")?)"
)
_PATH_LIMIT = 200
MOST_WORKERS = 64
_NONE_REMOVED: Mapping[str, str] = {}
_EXPIRES_WITHIN_REMOVED = (
    "expires_within was removed, because all queues of a tenant use one driver: choose by tenants, or remove the table"
)


class RemovedError(ValueError):
    """A value of an earlier version. The message names it, and what to use instead."""


class TableError(ValueError):
    """One table of a list is wrong. `number`: which, from 1; `key`: what in it, "" for all of it."""

    def __init__(self, number: int, what: str, key: str = "") -> None:
        super().__init__(f"in table {number}: {what}")
        self.number = number
        self.key = key


class WrongTablesError(ValueError):
    """Tables of a list are wrong."""

    def __init__(self, errors: Sequence[TableError]) -> None:
        super().__init__("; ".join(map(str, errors)))
        self.errors = errors


@dataclass(frozen=True, slots=True)
class Kind(Generic[T]):
    """One kind of value.

    Attributes:
        label: Words for the reference page, with unit and range.
        read: From a TOML value; raises ValueError with what was expected.
        from_text: From a flag or an environment variable to a TOML value.
        write: Back to TOML.
    """

    label: str
    read: Callable[[object], T]
    from_text: Callable[[str], object]
    write: Callable[[T], str]


def integer(least: int, most: int) -> Kind[int]:
    """Whole numbers in a range."""

    def read(raw: object) -> int:
        if isinstance(raw, bool) or not isinstance(raw, int) or not least <= raw <= most:
            raise ValueError(f"expected a whole number from {least} to {most}")
        return raw

    return Kind(f"number {least}..{most}", read, _number_from_text, str)


def _read_workers(raw: object) -> int:
    """`auto`: as many as this process may use CPUs."""
    if raw == "auto":
        return min(usable_cpus(), MOST_WORKERS)
    if isinstance(raw, bool) or not isinstance(raw, int) or not 1 <= raw <= MOST_WORKERS:
        raise ValueError(f'expected a whole number from 1 to {MOST_WORKERS}, or "auto"')
    return raw


def duration(least_s: float, most_s: float) -> Kind[float]:
    """Durations, in seconds inside the program."""
    bounds = f"{format_duration(least_s)}..{format_duration(most_s)}"

    def read(raw: object) -> float:
        if not isinstance(raw, str):
            raise ValueError('expected a duration with its unit, such as "10s"')
        seconds = parse_duration(raw)
        if not least_s <= seconds <= most_s:
            raise ValueError(f"expected a duration in {bounds}")
        return seconds

    return Kind(f"duration {bounds}", read, str, lambda seconds: _quote(format_duration(seconds)))


def size(least: int, most: int) -> Kind[int]:
    """Sizes in bytes, as number or with a unit."""
    bounds = f"{format_size(least)}..{format_size(most)}"

    def read(raw: object) -> int:
        if isinstance(raw, bool) or not isinstance(raw, int | str):
            raise ValueError('expected a size such as "64KiB" or a number of bytes')
        size_bytes = raw if isinstance(raw, int) else parse_size(raw)
        if not least <= size_bytes <= most:
            raise ValueError(f"expected a size in {bounds}")
        return size_bytes

    return Kind(f"size {bounds}", read, str, lambda value: _quote(format_size(value)))


def choice(*words: str, removed: Mapping[str, str] = _NONE_REMOVED) -> Kind[str]:
    """One word of a few. `removed`: words of earlier versions, with what to use instead."""

    def read(raw: object) -> str:
        if isinstance(raw, str) and raw in removed:
            raise RemovedError(f"{raw} was removed: {removed[raw]}")
        if not isinstance(raw, str) or raw not in words:
            raise ValueError(f"expected one of {', '.join(words)}")
        return raw

    return Kind(" | ".join(words), read, str, _quote)


def choices(*words: str) -> Kind[tuple[str, ...]]:
    """A list of words of a few, at least one."""

    def read(raw: object) -> tuple[str, ...]:
        chosen = _strings(raw)
        if not chosen or any(word not in words for word in chosen):
            raise ValueError(f"expected a list with one or more of {', '.join(words)}")
        return tuple(dict.fromkeys(chosen))

    return Kind(f"list of {' | '.join(words)}", read, _list_from_text, _quote_list)


def _read_port(raw: object) -> int | None:
    if isinstance(raw, str) and raw in OFF_WORDS:
        return None
    if isinstance(raw, bool) or not isinstance(raw, int) or not 0 <= raw <= 65535:
        raise ValueError('expected a port number from 0 to 65535, or "off"')
    return raw


def _read_name(raw: object) -> str:
    if not isinstance(raw, str) or _NAME.fullmatch(raw) is None:
        raise ValueError("expected a name of 1 to 64 letters, digits, dots, underscores and hyphens")
    return raw


def _read_identifier(raw: object) -> str:
    if not isinstance(raw, str) or _IDENTIFIER.fullmatch(raw) is None:
        raise ValueError("expected a name of 1 to 64 letters, digits and underscores")
    return raw


def _read_words(raw: object) -> tuple[str, ...]:
    return tuple(dict.fromkeys(_strings(raw)))


def _read_address(raw: object) -> str:
    if isinstance(raw, str):
        try:
            return str(ipaddress.ip_address(raw))
        except ValueError:
            pass
    raise ValueError('expected an IP address such as "127.0.0.1", "0.0.0.0" or "::"')


def _read_text(raw: object) -> str:
    if not isinstance(raw, str) or not raw.isprintable() or len(raw) > _PATH_LIMIT:
        raise ValueError(f"expected a text of at most {_PATH_LIMIT} printable characters")
    return raw


def _read_link_listen(raw: object) -> str:
    if isinstance(raw, str):
        if raw == "" or (raw.startswith("unix:/") and raw.isprintable() and len(raw) <= _PATH_LIMIT):
            return raw
        host, _, port = raw.rpartition(":")
        try:
            ipaddress.ip_address(host.strip("[]"))
        except ValueError:
            pass
        else:
            return str(parse_endpoint(f"{host}:{port}"))
    raise ValueError('expected an IP address with a port, such as "0.0.0.0:7883" or "[::]:7883", or "unix:/PATH"')


def _read_link_advertise(raw: object) -> str:
    if not isinstance(raw, str):
        raise ValueError('expected host:port, such as "hub-1.example.com:7883"')
    return str(parse_endpoint(raw)) if raw else raw


def _read_flag(raw: object) -> bool:
    if not isinstance(raw, bool):
        raise ValueError("expected true or false")
    return raw


def _read_networks(raw: object) -> tuple[Network, ...]:
    return tuple(parse_network(text) for text in _strings(raw))


def _read_endpoints(raw: object) -> tuple[Endpoint, ...]:
    return tuple(dict.fromkeys(parse_endpoint(text) for text in _strings(raw)))


def _read_path(raw: object) -> Path | None:
    if raw == "":
        return None
    if not isinstance(raw, str) or "\0" in raw:
        raise ValueError("expected the path of a file")
    return Path(raw)


def _read_url_path(raw: object) -> str:
    is_path = isinstance(raw, str) and raw.startswith("/") and raw.isascii() and raw.isprintable()
    if not isinstance(raw, str) or not is_path or len(raw) > _PATH_LIMIT or any(mark in raw for mark in ' ?#"'):
        raise ValueError('expected an absolute URL path such as "/mqtt"')
    return raw


def _read_web_address(raw: object) -> str:
    """In the clear only on this machine."""
    if raw == "":
        return ""
    found = _WEB_ADDRESS.fullmatch(raw) if isinstance(raw, str) and len(raw) <= _PATH_LIMIT else None
    if found is None or (found["scheme"] == "http" and found["host"] not in _LOOPBACK):
        raise ValueError(
            'expected an address such as "https://iothub.example.com" (http:// only with 127.0.0.1 or localhost)'
        )
    return str(raw)


def _read_group_roles(raw: object) -> tuple[str, ...]:
    lines = _read_words(raw)
    for line in lines:
        if _GROUP_ROLE.fullmatch(line) is None:
            raise ValueError(
                'expected texts such as "GROUP=operator" or "GROUP=tenant-admin:TENANT", with platform-admin, operator, viewer, tenant-admin or '
                "tenant-viewer"
            )
    return lines


def _read_rate(raw: object) -> Rate | None:
    if not isinstance(raw, str):
        raise ValueError('expected a rate such as "100/10s", or "off"')
    return parse_rate(raw)


def _read_time_of_day(raw: object) -> int | None:
    if not isinstance(raw, str):
        raise ValueError('expected a time of day such as "02:30", or "off"')
    return parse_time_of_day(raw)


def _read_percent(raw: object) -> int:
    digits = raw[:-1] if isinstance(raw, str) and raw.endswith("%") else ""
    if not digits.isascii() or not digits.isdecimal() or not 1 <= int(digits[:4]) <= 100:
        raise ValueError('expected a percentage from "1%" to "100%"')
    return int(digits)


def queue_choices(*drivers: str, removed: Mapping[str, str] = _NONE_REMOVED) -> Kind[tuple[QueueChoice, ...]]:
    """Tables that choose a driver for tenants; the first match applies, so each table must be able to match."""

    def read(raw: object) -> tuple[QueueChoice, ...]:
        if not isinstance(raw, list) or not all(isinstance(table, dict) for table in raw):
            raise ValueError('expected tables such as [[queues.choices]] with driver = "hbase" and tenants = ["acme"]')
        choices: list[QueueChoice] = []
        wrong: list[TableError] = []
        for number, table in enumerate(raw, 1):
            try:
                choices.append(_read_queue_choice(number, table, drivers, removed))
            except TableError as error:
                wrong.append(error)
        for number in range(1, 1 if wrong else len(choices) + 1):  # without the wrong ones the numbers would be others
            try:
                _require_reached(choices[:number])
            except TableError as error:
                wrong.append(error)
        if wrong:
            raise WrongTablesError(wrong)
        return tuple(choices)

    return Kind(
        f"tables with driver ({', '.join(drivers)}) and tenants; the last one may have driver only",
        read,
        _list_from_text,
        lambda choices: f"[{', '.join(map(_written_choice, choices))}]",
    )


def _read_queue_choice(
    number: int, table: dict[str, object], drivers: tuple[str, ...], removed: Mapping[str, str]
) -> QueueChoice:
    if "expires_within" in table:
        raise TableError(number, _EXPIRES_WITHIN_REMOVED, "expires_within")
    unknown = table.keys() - {"driver", "tenants"}
    if unknown:
        raise TableError(number, f"expected driver and tenants, not {min(unknown)!r}", min(unknown))
    driver = table.get("driver")
    if isinstance(driver, str) and driver in removed:
        raise TableError(number, f"{driver} was removed: {removed[driver]}", "driver")
    if driver not in drivers:
        found = "and it is missing" if driver is None else f"not {driver!r:.64}"
        what = f"expected driver to be one of {', '.join(drivers)}, {found}"
        raise TableError(number, what, "driver")
    tenants = _read_tenants(number, table["tenants"]) if "tenants" in table else ()
    return QueueChoice(str(driver), tenants)


def _read_tenants(number: int, raw: object) -> tuple[str, ...]:
    if not isinstance(raw, list) or not raw or not all(isinstance(name, str) for name in raw):
        what = f'expected tenants to be a list of names, such as ["acme", "beta"], or missing for all tenants; got {raw!r:.64}'
        raise TableError(number, what, "tenants")
    for name in raw:
        if TENANT_NAME.fullmatch(name) is None:
            raise TableError(number, f"no tenant can have the name {name!r:.64}: expected {TENANT_RULE}", "tenants")
    return tuple(raw)


def _require_reached(choices: Sequence[QueueChoice]) -> None:
    """Raise TableError when the choices before cover every tenant of the last one."""
    *before, choice = choices
    number = len(choices)
    takers = [_taker(before, tenant) for tenant in choice.tenants or ("",)]
    if all(takers):
        tables = [str(taker) for taker in sorted(set(takers))]
        by = f"table {tables[0]} matches" if len(tables) == 1 else f"tables {', '.join(tables)} match"
        raise TableError(number, f"it never applies: {by} all its tenants; move it up or remove it")


def _taker(before: Sequence[QueueChoice], tenant: str) -> int:
    """Return the number of the first choice that matches a tenant; 0: none."""
    return next((number for number, each in enumerate(before, 1) if each.fits(tenant)), 0)


def _written_choice(choice: QueueChoice) -> str:
    parts = [f"driver = {_quote(choice.driver)}"]
    if choice.tenants:
        parts.append(f"tenants = {_quote_list(choice.tenants)}")
    return f"{{{', '.join(parts)}}}"


def _number_from_text(text: str) -> object:
    digits = text.removeprefix("-")
    return int(text) if digits.isascii() and digits.isdecimal() and len(digits) < 20 else text


def _list_from_text(text: str) -> object:
    """Read `a,b` or a TOML list."""
    if not text.startswith("["):
        return [part.strip() for part in text.split(",") if part.strip()]
    try:
        value: object = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        raise ValueError('expected a list such as a,b or ["a", "b"]') from None
    return value


def _endpoints_from_text(text: str) -> object:
    """Read `a:1,[::1]:2`, whose bracket begins an address, or a TOML list, which has quotes."""
    if '"' in text:
        return _list_from_text(text)
    return [part.strip() for part in text.split(",") if part.strip()]


def _strings(raw: object) -> Iterable[str]:
    if not isinstance(raw, list) or not all(isinstance(part, str) for part in raw):
        raise ValueError('expected a list of texts, such as ["a", "b"]')
    return raw


def _quote(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _quote_list(parts: Iterable[object]) -> str:
    return "[" + ", ".join(_quote(str(part)) for part in parts) + "]"


name: Kind[str] = Kind("name", _read_name, str, _quote)
identifier: Kind[str] = Kind("letters, digits, underscores", _read_identifier, str, _quote)
workers: Kind[int] = Kind(
    f'number 1..{MOST_WORKERS} or "auto"', _read_workers, lambda text: _number_from_text(text), str
)
words: Kind[tuple[str, ...]] = Kind("list of words", _read_words, _list_from_text, _quote_list)
address: Kind[str] = Kind("IP address", _read_address, str, _quote)
port: Kind[int | None] = Kind(
    'port 0..65535 or "off"', _read_port, _number_from_text, lambda port: _quote("off") if port is None else str(port)
)
networks: Kind[tuple[Network, ...]] = Kind(
    "list of addresses or networks", _read_networks, _list_from_text, _quote_list
)
text: Kind[str] = Kind("text", _read_text, str, _quote)
endpoints: Kind[tuple[Endpoint, ...]] = Kind("list of host:port", _read_endpoints, _endpoints_from_text, _quote_list)
link_listen: Kind[str] = Kind("ADDRESS:PORT or unix:PATH", _read_link_listen, str, _quote)
link_advertise: Kind[str] = Kind("host:port", _read_link_advertise, str, _quote)
flag: Kind[bool] = Kind(
    "true | false",
    _read_flag,
    lambda text: {"true": True, "false": False}.get(text, text),
    lambda value: str(value).lower(),
)
path: Kind[Path | None] = Kind("file", _read_path, str, lambda path: _quote("" if path is None else str(path)))
url_path: Kind[str] = Kind("URL path", _read_url_path, str, _quote)
web_address: Kind[str] = Kind("http(s) address", _read_web_address, str, _quote)
group_roles: Kind[tuple[str, ...]] = Kind("list of GROUP=ROLE", _read_group_roles, _list_from_text, _quote_list)
rate: Kind[Rate | None] = Kind(
    'count/duration or "off"', _read_rate, str, lambda rate: _quote("off" if rate is None else str(rate))
)
percent: Kind[int] = Kind("percentage", _read_percent, str, lambda value: _quote(f"{value}%"))
time_of_day: Kind[int | None] = Kind(
    'hh:mm or "off"', _read_time_of_day, str, lambda minutes: _quote(format_time_of_day(minutes))
)
