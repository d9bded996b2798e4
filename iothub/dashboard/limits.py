"""Limits as people write them (`100`, `unlimited`, `500/1s,10000/1d`) and as REST has them; and tables of those in force."""

from __future__ import annotations

from iothub.dashboard.api import Json
from iothub.dashboard.frame import View
from iothub.dashboard.sampler import Usage
from iothub.dashboard.table import Column
from iothub.dashboard.units import NOTHING, count, exact, seconds, size

Value = int | str | list[str]


def written(value: object) -> str:
    """Write a limit of REST.

    >>> written(1000), written("unlimited"), written(["500/1s", "9/1d"]), written(None)
    ('1000', 'unlimited', '500/1s,9/1d', '-')
    """
    if value is None:
        return NOTHING
    return ",".join(str(each) for each in value) if isinstance(value, list) else str(value)


def read(given: str) -> Value | None:
    """Read what somebody has written; None: nothing, so that the limit is inherited. REST checks it.

    >>> read(" 100 "), read("500/1s, 9/1d"), read("unlimited"), read("")
    (100, ['500/1s', '9/1d'], 'unlimited', None)
    """
    text = given.strip()
    if not text or text == NOTHING:
        return None
    if text.isascii() and text.isdecimal():
        return int(text)
    return [each.strip() for each in text.split(",") if each.strip()] if "/" in text else text


def shown(name: str, value: object) -> str:
    """Write a limit for reading: sizes and times with their units.

    >>> shown("packet_bytes", 1048576), shown("publish_bytes", ["1048576/1s"]), shown("session_expiry_s", 604800), shown("sessions", 2000)
    ('1 MiB', '1 MiB/1s', '7 d 0 h', '2,000')
    """
    if isinstance(value, list):
        rates = (str(rate).partition("/") for rate in value)
        return ", ".join(
            f"{shown(name, int(each))}/{window}" if each.isdecimal() else each for each, _, window in rates
        )
    if not isinstance(value, int):
        return written(value)
    return size(value) if is_of_bytes(name) else seconds(value) if name.endswith("_s") else exact(value)


def is_of_bytes(name: str) -> bool:
    return name.endswith("bytes")


def number(name: str, value: float | None) -> str:
    return size(value) if is_of_bytes(name) else count(value)


def per_second(value: object) -> float | None:
    """Return what a rate allows in a second, if it has such a window.

    >>> per_second(["500/1s", "9/1d"]), per_second(5), per_second(["9/1d"])
    (500.0, None, None)
    """
    if not isinstance(value, list):
        return None
    return next((float(rate.partition("/")[0]) for rate in value if rate.endswith("/1s")), None)


def limit_columns(*, with_usage: bool = True) -> list[Column]:
    """Return the columns of `limit_rows`."""
    usage = [
        Column("used", "Used", "number"),
        Column("share", "", "meter", lambda value: NOTHING if value is None else f"{value * 100:.0f} %"),
    ]
    return [
        Column("name", "Limit", "code"),
        Column("limit", "In force"),
        *(usage if with_usage else []),
        Column("origin", "From"),
    ]


async def limit_rows(view: View, path: str, usages: list[Usage] | None = None) -> list[Json]:
    """Return the limits in force with what is used of them. Raises RefusalError."""
    used = {usage.quota: usage for usage in usages or ()}
    rows = []
    for row in (await view.api.page(path)).items:
        name = str(row["name"])
        usage = used.get(name)
        origin = (
            f"plan {row['plan']}" if row.get("plan") else {"none": NOTHING}.get(str(row["origin"]), str(row["origin"]))
        )
        value = row["limits"].get(name)
        rows.append(
            {
                "name": name,
                "limit": shown(name, value),
                "value": value,
                "used": number(name, usage.used) if usage else None,
                "share": usage.used / value if usage and isinstance(value, int) and value else None,
                "origin": origin,
            }
        )
    return rows
