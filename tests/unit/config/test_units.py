"""Quantities: what people write is read exactly and written back the same."""

from __future__ import annotations

import pytest

from iothub.base import units


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("250ms", 0.25), ("10s", 10.0), ("5m", 300.0), ("18h", 64800.0), ("7d", 604800.0), ("0s", 0.0)],
)
def test_duration_is_read_and_written_back(text: str, seconds: float) -> None:
    assert units.parse_duration(text) == seconds
    assert units.format_duration(seconds) == text


@pytest.mark.parametrize("text", ["", "10", "s", "-1s", "1e3s", "10 s s", "10S", "٣s", "1" * 40 + "s"])
def test_duration_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected a duration"):
        units.parse_duration(text)


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [("0", 0), ("4097", 4097), ("64KiB", 65536), ("1MiB", 1 << 20), ("2GiB", 2 << 30), ("1TiB", 1 << 40)],
)
def test_size_is_read_and_written_back(text: str, size_bytes: int) -> None:
    assert units.parse_size(text) == size_bytes
    assert units.format_size(size_bytes) == text


@pytest.mark.parametrize("text", ["", "KiB", "1KB", "-5", "1kib", "0x10"])
def test_size_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected a size"):
        units.parse_size(text)


def test_rate_is_read_and_written_back() -> None:
    rate = units.parse_rate("100/10s")

    assert rate == units.Rate(100, 10.0)
    assert str(rate) == "100/10s"
    assert units.parse_rate("off") is None
    assert units.parse_rate("5/s") == units.Rate(5, 1.0)


@pytest.mark.parametrize("text", ["", "/", "5", "5/", "x/1s", "0/1s", "1/0s", "-1/1s"])
def test_rate_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected a "):
        units.parse_rate(text)


@pytest.mark.parametrize(("text", "minutes"), [("00:00", 0), ("02:30", 150), ("23:59", 1439), ("off", None)])
def test_time_of_day_is_read_and_written_back(text: str, minutes: int | None) -> None:
    assert units.parse_time_of_day(text) == minutes
    assert units.format_time_of_day(minutes) == text


@pytest.mark.parametrize("text", ["", "2:30", "24:00", "12:60", "02:30:00", "2.30", "٠٢:٣٠", "02:30 "])
def test_time_of_day_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected a time of day"):
        units.parse_time_of_day(text)
