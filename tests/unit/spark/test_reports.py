"""Pages: findings by tenant, changes from day to day, plots that take the page's colours."""

from __future__ import annotations

import re

import pytest

from iothub_spark.reports.findings import Change, gathered
from iothub_spark.reports.page import page
from iothub_spark.reports.plots import lines, stacks

DAYS = ["2026-09-20", "2026-09-21", "2026-09-22"]
EMPTY: dict[str, list[dict[str, object]]] = {
    name: [] for name in ("churn", "disconnects", "refusals", "devices", "growth", "traffic")
}


def test_last_whole_day_is_compared_with_the_one_before() -> None:
    """The last day of all is not over: compared with a whole one it would always have fallen."""
    traffic = [
        {"tenant_id": 1, "day": day, "messages_in": count, "messages_out": 0}
        for day, count in zip(DAYS, (100, 150, 1), strict=True)
    ]
    found = gathered(DAYS, {1: "acme"}, **{**EMPTY, "traffic": traffic})

    changes = {change.name: change for change in found.changes(found.tenants[1])}

    assert (changes["messages in"].percent, changes["messages out"].percent) == (50.0, 0.0)
    assert found.changes(found.tenants[1])[0] == Change("messages in", 100, 150)
    assert gathered(DAYS[:2], {}, **EMPTY).changes(found.tenants[1]) == []


def test_connections_of_all_sessions_are_compared() -> None:
    """Of those that are kept and of those that end with their connection."""
    churn = [
        {"tenant_id": 1, "day": day, "happening": word, "times": times}
        for day, word, times in (
            (DAYS[0], "connected", 2),
            (DAYS[1], "connected", 3),
            (DAYS[1], "brief_connected", 4),
            (DAYS[1], "brief_taken_over", 9),
        )
    ]
    found = gathered(DAYS, {1: "acme"}, **{**EMPTY, "churn": churn})

    (connects,) = [change for change in found.changes(found.tenants[1]) if change.name == "connects"]
    assert connects == Change("connects", 2, 7)
    assert "brief" not in page(found, "now")


def test_change_is_told_in_words_where_there_is_none() -> None:
    """Two noughts are nothing new; what began is."""
    traffic = [
        {"tenant_id": 1, "day": day, "messages_in": count, "messages_out": 0}
        for day, count in zip(DAYS, (0, 5, 1), strict=True)
    ]
    text = page(gathered(DAYS, {1: "acme"}, **{**EMPTY, "traffic": traffic}), "now")

    assert "<td>messages in</td><td class=n>0</td><td class=n>5</td><td>new</td>" in text
    assert "<td>messages out</td><td class=n>0</td><td class=n>0</td><td>none</td>" in text


@pytest.mark.parametrize(
    ("day", "why"),
    [
        (DAYS[2], "the last whole day has no events; today is not over"),
        (DAYS[1], "the day before the last whole one has no events"),
    ],
)
def test_first_days_of_a_tenant_are_compared_with_nothing(day: str, why: str) -> None:
    """Noughts of days that were not would look like a fall, or a rise from nothing."""
    traffic = [{"tenant_id": 1, "day": day, "messages_in": 5, "messages_out": 0}]
    found = gathered(DAYS, {1: "acme"}, **{**EMPTY, "traffic": traffic})

    assert found.changes(found.tenants[1]) == []
    assert f"Nothing to compare: {why}." in page(found, "now")


def test_page_says_which_refusals_no_log_has() -> None:
    """A nought beside a device is no proof; logins without a tenant have no days to compare."""
    refused = [{"tenant_id": 0, "day": DAYS[1], "kind": "auth.failed", "reason": "unknown_tenant", "times": 3}]
    text = page(gathered(DAYS, {}, **{**EMPTY, "refusals": refused}), "now")

    assert "iothub_tenant_authorizations_denied_total" in text
    assert "Nothing to compare" not in text


def test_same_numbers_give_the_same_plot_in_the_colours_of_the_page() -> None:
    """No colour of ours for text and axes; dollar signs are no mathematics."""
    first = lines("a $ b $", DAYS, {"in": [1, 2, 3]})

    assert first == lines("a $ b $", DAYS, {"in": [1, 2, 3]})
    assert first.startswith("<svg")
    assert "currentColor" in first
    assert "#010203" not in first
    assert "a $ b $" in first
    assert "<svg" in stacks("x", DAYS, {"in": [0, 0, 0], "out": [1, 1, 1]})


def test_line_below_an_equal_one_is_seen() -> None:
    """As many messages go out as the fan-out says where nothing is dropped: the later line has gaps."""
    plot = lines("x", DAYS, {"in": [5, 5, 5], "out": [1, 2, 3], "fanout": [1, 2, 3]})
    dashes = re.findall(
        r'<path d="[^"]*" clip-path="[^"]*" style="fill: none; stroke(?:-dasharray: ([^;]*);[^"]*)?', plot
    )

    assert len(dashes) == 3
    assert dashes[0] == ""
    assert all(dashes[1:])


def test_page_fits_a_narrow_window() -> None:
    """A plot is as wide as the window, a wide table is moved by itself."""
    text = page(gathered(DAYS, {}, **EMPTY), "now")

    assert "minmax(min(26rem, 100%), 1fr)" in text
    assert ".tables > div { max-width: 100%; overflow-x: auto; }" in text


def test_page_says_of_which_sessions_a_figure_is() -> None:
    """Connections are of all sessions, the reasons why they ended of kept ones alone."""
    device = {"tenant_id": 1, "device": "pump", "connects": 9, "drops": 0, "refusals": 0, "failed_logins": 0, "rank": 1}
    gone = {"tenant_id": 1, "day": DAYS[0], "reason": "network", "times": 2}
    text = page(gathered(DAYS, {1: "acme"}, **{**EMPTY, "devices": [device], "disconnects": [gone]}), "now")

    assert "Connects count all sessions; reasons for closed connections are known for persistent sessions only" in text


def test_page_without_findings_says_so() -> None:
    assert "No events of these days" in page(gathered(DAYS, {}, **EMPTY), "now")
