"""What `iothub doctor` says of a SQL server's own settings."""

from __future__ import annotations

from dataclasses import replace

import pytest

from iothub.doctor.findings import State
from iothub.doctor.sql import Facts, remarks

GOOD = Facts("mariadb", "10.11.6-MariaDB", "utf8mb4", 151, 12, 1000.0, is_durable=True)


@pytest.mark.parametrize(
    "facts",
    [GOOD, replace(GOOD, kind="postgresql", version="15.18 (Debian 15.18-0)", encoding="UTF8")],
    ids=["mariadb", "postgresql"],
)
def test_nothing_is_said_of_a_good_server(facts: Facts) -> None:
    """A line would be looked at for nothing."""
    assert list(remarks(facts, 1000.5, 8)) == []


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        (replace(GOOD, version="10.3.39-MariaDB"), "older than 10.5"),
        (replace(GOOD, kind="postgresql", version="9.6.24"), "older than 13.0"),
        (replace(GOOD, encoding="latin1"), "character set is latin1"),
        (replace(GOOD, used_connections=118), "118 of 151 connections"),
        (replace(GOOD, clock_s=900.0), "differs from the local one by 100 s"),
        (replace(GOOD, is_durable=False), "may lose commits"),
    ],
)
def test_what_speaks_against_a_server_is_a_warning_with_advice(facts: Facts, words: str) -> None:
    """The hub works; it needs attention."""
    (finding,) = remarks(facts, 1000.0, 8)

    assert finding.state is State.WARN
    assert words in finding.text
    assert finding.advice
