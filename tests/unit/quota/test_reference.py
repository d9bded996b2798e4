"""The page of all limits is the one that the code would write."""

from __future__ import annotations

from pathlib import Path

import pytest

from iothub.base.reasons import Reason
from iothub.engine.buckets import Meter
from iothub_services.quota.names import Quota
from iothub_services.quota.reference import render_reference

ROOT = Path(__file__).resolve().parents[3]


def test_page_is_what_the_code_says() -> None:
    """Regenerate with `.venv/bin/python docs/reference/generate.py`."""
    assert (ROOT / "docs/reference/quotas.md").read_text(encoding="utf-8") == render_reference()


def test_page_names_every_limit() -> None:
    """With its value in the plan `standard`."""
    names, _ = render_reference().split("## How they are counted\n")

    for quota in Quota:
        (row,) = [line for line in names.splitlines() if line.startswith(f"| `{quota.value}` |")]
        assert quota.standard is None or f"| {quota.standard} |" in row


def test_each_limit_has_one_reaction() -> None:
    """No cell of the table is empty."""
    rows = _reactions()

    assert sorted(name for row in rows for name in row[0].split("`")[1::2] if name != "1h") == sorted(
        quota.value for quota in Quota
    )
    assert all(cell for row in rows for cell in row)


@pytest.mark.parametrize(
    ("limit", "reason"),
    [
        ("`connections`, `sessions`", Reason.QUOTA),
        ("`connects`", Reason.CONNECTION_RATE),
        ("overload", Reason.OVERLOAD),
        ("denied CONNECT (also Will, Client Identifier)", Reason.NOT_AUTHORIZED),
        ("denied CONNECT (also Will, Client Identifier)", Reason.BAD_CREDENTIALS),
    ],
)
def test_codes_are_those_of_the_reasons(limit: str, reason: Reason) -> None:
    """What the control plane sends by name is what the table says."""
    (row,) = [row for row in _reactions() if row[0] == limit]

    assert row[1:] == [f"CONNACK {reason.connack}, close", f"CONNACK 0x{reason.code:02X}, close"]


def _reactions() -> list[list[str]]:
    table = render_reference().split("## What a limit does\n")[1].split("## Notes\n")[0]
    return [[cell.strip() for cell in line[1:-1].split("|")] for line in table.split("\n")[3:-2]]


def test_page_says_how_much_a_rate_lets_pass_after_a_pause() -> None:
    """The figures of its example are those of the engine, asked without a pause."""
    meter = Meter([(50, 1.0)], 0.0)
    milliseconds = (range(10_000, 11_001), range(11_001, 12_001), range(12_001, 13_001))
    passed = [sum(meter.take(1, at / 1000) == 0.0 for at in second) for second in milliseconds]
    page = " ".join(render_reference().split())

    assert f"of `50/1s` at most {passed[0]} in that second, then {passed[1]} in each" in page
    assert passed[1] == passed[2]
