"""Numbers, sizes, times and states as a person reads them. Pure functions."""

from __future__ import annotations

from datetime import UTC, datetime

NOTHING = "-"
_SIZES = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_COUNTS = ("", "k", "M", "G", "T")


def count(value: float | None) -> str:
    """Write a number, short.

    >>> count(0), count(999), count(12345), count(1.25), count(None)
    ('0', '999', '12.3k', '1.25', '-')
    """
    if value is None:
        return NOTHING
    return _scaled(float(value), 1000.0, _COUNTS, "")


def exact(value: float | None) -> str:
    """Write a number with all its digits.

    >>> exact(1234567)
    '1,234,567'
    """
    return NOTHING if value is None else f"{value:,}"


def size(value: float | None) -> str:
    """Write a number of bytes.

    >>> size(512), size(1536), size(5 << 20)
    ('512 B', '1.5 KiB', '5 MiB')
    """
    if value is None:
        return NOTHING
    return _scaled(float(value), 1024.0, _SIZES, " ")


def seconds(value: float | None) -> str:
    """Write a time that something takes.

    >>> seconds(0.00042), seconds(0.25), seconds(3.5), seconds(7265), seconds(200000)
    ('420 µs', '250 ms', '3.5 s', '2 h 1 min', '2 d 7 h')
    """
    if value is None:
        return NOTHING
    if value < 1:
        small, unit = (value * 1e6, "µs") if value < 0.001 else (value * 1e3, "ms")
        return f"{_digits(small)} {unit}"
    if value < 120:
        return f"{_digits(value)} s"
    whole = int(value)
    for unit_s, unit, lower_s, lower in ((86_400, "d", 3600, "h"), (3600, "h", 60, "min")):
        if whole >= unit_s:
            return f"{whole // unit_s} {unit} {whole % unit_s // lower_s} {lower}"
    return f"{whole // 60} min"


def share(value: float | None) -> str:
    """Write a part of a whole.

    >>> share(0.8123), share(None)
    ('81 %', '-')
    """
    return NOTHING if value is None else f"{value * 100:.0f} %"


def moment(value: object) -> str:
    """Write a time of REST (ISO 8601, or milliseconds) in UTC.

    >>> moment("2026-11-27T10:00:01.5+00:00"), moment(0), moment("soon")
    ('2026-11-27 10:00:01', '-', 'soon')
    """
    if value in (None, "", 0):
        return NOTHING
    if isinstance(value, int | float):
        found = datetime.fromtimestamp(value / 1000, UTC)
    else:
        try:
            found = datetime.fromisoformat(str(value))
        except ValueError:
            return str(value)
    return found.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S") if found.tzinfo else f"{found:%Y-%m-%d %H:%M:%S}"


def _scaled(value: float, step: float, names: tuple[str, ...], gap: str) -> str:
    index = 0
    while abs(value) >= step - step / 2000 and index < len(names) - 1:  # 999.96 would be written as 1000
        value /= step
        index += 1
    return f"{_digits(value)}{gap}{names[index]}".rstrip()


def _digits(value: float) -> str:
    """Write three significant digits, and no zeros behind the point."""
    size = abs(value)
    text = f"{value:.0f}" if size >= 100 else f"{value:.1f}" if size >= 10 else f"{value:.2f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
