"""The one grammar of limits: `name=value[/window][,value/window]...`, as typed by people and stored in plans.

Knows no layers and no figures in use: text to limits and back. Strict: what is not understood is refused, with the
nearest valid form.

    connections=100 publish_messages=500/1s,10000000/1d publish_bytes=1MiB/1s session_expiry_s=7d
    topic_aliases=unlimited               this layer lifts the limit of the layers below
    dry-run:publish_messages=100/1s       is only reported; may stand beside an enforced limit of the same name
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches

from iothub.base.errors import ConfigError
from iothub_services.quota.names import BY_NAME, Kind, Quota, Unit

DRY_RUN = "dry-run:"
HOUR_S = 3600
DAY_S = 86_400
DURABLE_WINDOWS_S = (*(hours * HOUR_S for hours in (1, 2, 3, 4, 6, 8, 12)), DAY_S, 7 * DAY_S, 30 * DAY_S)
"""From an hour on, windows follow the calendar, so only lengths that fill a day, a week or a month make sense."""

_SIZES = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
_TIMES = {"s": 1, "m": 60, "h": HOUR_S, "d": DAY_S}
_NEXT_NAME = re.compile(r",(?=[^,=]*=)")
_LARGEST = (1 << 63) - 1  # what SQL and the engine can hold
_LARGEST_DIGITS = len(str(_LARGEST))


@dataclass(frozen=True, slots=True, order=True)
class Window:
    """`limit` units in `seconds`, which is 0 for counts and bounds.

    `limit` None: explicitly unlimited. `is_dry_run`: the limit is only reported.
    """

    seconds: int
    limit: int | None
    is_dry_run: bool = False

    @property
    def is_durable(self) -> bool:
        """Kept on disk and aligned with the calendar in UTC."""
        return self.seconds >= HOUR_S


Limits = dict[Quota, tuple[Window, ...]]
"""What one layer (plan, tenant, device) says. A name that is absent is inherited from the layer below."""


def parse_limits(text: str | Iterable[str]) -> Limits:
    """Read limits from one text or several arguments; blanks separate names.

    Raises:
        ConfigError: naming the part that is wrong, what was expected and, for a misspelt name, the nearest one.
    """
    parts = text.split() if isinstance(text, str) else [part for item in text for part in item.split()]
    limits: Limits = {}
    for part in parts:
        quota, windows = _parse_part(part)
        limits[quota] = _merge(quota, limits.get(quota, ()), windows)
    return limits


def parse_name(text: str) -> Quota:
    """Return the quota of this name.

    Raises:
        ConfigError: unknown; names the nearest.
    """
    quota = BY_NAME.get(text)
    if quota is None:
        raise ConfigError(f"unknown quota {text!r}{_nearest(text, list(BY_NAME))}")
    return quota


def format_limits(limits: Mapping[Quota, tuple[Window, ...]]) -> str:
    """Write limits in the grammar's canonical form: `parse_limits(format_limits(x)) == x`."""
    parts = []
    for quota in Quota:
        windows = limits.get(quota, ())
        for is_dry_run in (False, True):
            group = [format_window(quota, window) for window in windows if window.is_dry_run is is_dry_run]
            if group:
                parts.append(f"{DRY_RUN if is_dry_run else ''}{quota.value}={','.join(group)}")
    return " ".join(parts)


def format_window(quota: Quota, window: Window) -> str:
    """Write one value: `500/1s`, `64MiB`, `7d`, `unlimited`."""
    if window.limit is None:
        return "unlimited"
    value = _format_seconds(window.limit) if quota.unit is Unit.SECONDS else _format_count(quota, window.limit)
    return f"{value}/{_format_seconds(window.seconds)}" if window.seconds else value


def standard_limits() -> Limits:
    """The plan `standard`."""
    return parse_limits(f"{quota.value}={quota.standard}" for quota in Quota if quota.standard is not None)


def _parse_part(part: str) -> tuple[Quota, tuple[Window, ...]]:
    is_dry_run = part.startswith(DRY_RUN)
    name, equals, values = part.removeprefix(DRY_RUN).partition("=")
    if not equals or not values:
        raise ConfigError(
            f"limit {part!r}: expected name=value or name=value/window, for example publish_messages=50/1s"
        )
    if _NEXT_NAME.search(part):
        raise ConfigError(f"limit {part!r}: blanks separate limits, expected {_NEXT_NAME.sub(' ', part)}")
    quota = parse_name(name)
    if values == "unlimited":
        return quota, (Window(0, None, is_dry_run),)
    windows = sorted(_parse_value(quota, value, part, is_dry_run) for value in values.split(","))
    if len({window.seconds for window in windows}) != len(windows):
        raise ConfigError(f"limit {part!r}: the same window is given twice")
    return quota, tuple(windows)


def _merge(quota: Quota, known: tuple[Window, ...], added: tuple[Window, ...]) -> tuple[Window, ...]:
    if any(window.is_dry_run is added[0].is_dry_run for window in known):
        form = f"write several windows as {quota.value}=A/1s,B/1d" if quota.kind is Kind.RATE else "expected it once"
        raise ConfigError(f"limit {quota.value!r} is given twice; {form}")
    return tuple(sorted((*known, *added), key=lambda window: (window.is_dry_run, window.seconds)))


def _parse_value(quota: Quota, text: str, part: str, is_dry_run: bool) -> Window:
    value, slash, window = text.partition("/")
    if quota.kind is Kind.RATE:
        if not slash:
            raise ConfigError(
                f"limit {part!r}: {quota.value} is a rate, expected value/window, for example {value or 50}/1s"
            )
        seconds = _parse_window(window, part)
    elif slash:
        raise ConfigError(f"limit {part!r}: {quota.value} takes no window, expected {quota.value}={value}")
    else:
        seconds = 0
    return Window(seconds, _parse_limit(quota, value, part), is_dry_run)


def _parse_limit(quota: Quota, text: str, part: str) -> int:
    suffixes = {Unit.BYTES: _SIZES, Unit.SECONDS: _TIMES}.get(quota.unit, {})
    limit = _parse_number(text, suffixes, part)
    most = quota.most or _LARGEST
    if not quota.least <= limit <= most:
        bounds = f"{quota.least} to {quota.most}" if quota.most else f"{quota.least} or more"
        raise ConfigError(f"limit {part!r}: {quota.value} must be {bounds}, or 'unlimited'; got {text}")
    return limit


def _parse_window(text: str, part: str) -> int:
    if text.isascii() and text.isdigit():
        raise ConfigError(f"limit {part!r}: window {text!r} has no unit, expected for example {text}s, 1m, 1h or 1d")
    seconds = _parse_number(text, _TIMES, part)
    if seconds < 1:
        raise ConfigError(f"limit {part!r}: a window lasts at least 1s")
    if seconds >= HOUR_S and seconds not in DURABLE_WINDOWS_S:
        known = " ".join(_format_seconds(window) for window in DURABLE_WINDOWS_S)
        raise ConfigError(f"limit {part!r}: windows of an hour and more follow the calendar, expected one of {known}")
    return seconds


def _parse_number(text: str, suffixes: Mapping[str, int], part: str) -> int:
    digits = text.rstrip("".join(map(chr, range(ord("A"), ord("z") + 1))))
    suffix = text[len(digits) :]
    if not (digits.isascii() and digits.isdigit()):
        raise ConfigError(f"limit {part!r}: expected a whole number, got {text!r}")
    if suffix and suffix not in suffixes:
        known = " ".join(suffixes) or "none"
        raise ConfigError(
            f"limit {part!r}: unknown unit {suffix!r}{_nearest(suffix, list(suffixes))}; units here: {known}"
        )
    significant = digits.lstrip("0") or "0"
    number = int(significant[: _LARGEST_DIGITS + 1]) * (suffixes[suffix] if suffix else 1)
    if number > _LARGEST:
        raise ConfigError(f"limit {part!r}: {text} is too large, expected at most {_LARGEST}, or 'unlimited'")
    return number


def _nearest(text: str, known: list[str]) -> str:
    folded = {name.lower(): name for name in known}
    matches = get_close_matches(text.lower(), folded, n=1, cutoff=0.5)
    return f"; did you mean {folded[matches[0]]!r}?" if matches else ""


def _format_count(quota: Quota, number: int) -> str:
    if quota.unit is Unit.BYTES and number:
        for suffix in reversed(_SIZES):
            if number % _SIZES[suffix] == 0:
                return f"{number // _SIZES[suffix]}{suffix}"
    return str(number)


def _format_seconds(seconds: int) -> str:
    for suffix in reversed(_TIMES):
        if seconds % _TIMES[suffix] == 0:
            return f"{seconds // _TIMES[suffix]}{suffix}"
    return f"{seconds}s"
