"""Pages: findings by tenant, changes from day to day, plots that take the page's colours."""

from __future__ import annotations

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

    assert (changes["messages in"].percent, changes["messages out"].percent) == (50.0, None)
    assert found.changes(found.tenants[1])[0] == Change("messages in", 100, 150)
    assert gathered(DAYS[:2], {}, **EMPTY).changes(found.tenants[1]) == []


def test_same_numbers_give_the_same_plot_in_the_colours_of_the_page() -> None:
    """No colour of ours for text and axes; dollar signs are no mathematics."""
    first = lines("a $ b $", DAYS, {"in": [1, 2, 3]})

    assert first == lines("a $ b $", DAYS, {"in": [1, 2, 3]})
    assert first.startswith("<svg")
    assert "currentColor" in first
    assert "#010203" not in first
    assert "a $ b $" in first
    assert "<svg" in stacks("x", DAYS, {"in": [0, 0, 0], "out": [1, 1, 1]})


def test_page_without_findings_says_so() -> None:
    assert "No events of these days" in page(gathered(DAYS, {}, **EMPTY), "now")
