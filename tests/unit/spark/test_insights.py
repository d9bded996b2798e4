"""`insights`: what the events say by tenant and day, and a page that a person can read."""

from __future__ import annotations

import io
import json
import re
import time
from collections.abc import Iterable
from datetime import UTC, datetime
from html.parser import HTMLParser
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from iothub.records import analytics, events
from iothub.records.analytics import Metered, Period, Sample
from iothub.records.events import Event, Subject
from iothub_spark.jobs import archive
from iothub_spark.jobs import insights as job
from iothub_spark.report import Report
from iothub_spark.schemas.events import EVENTS
from iothub_spark.stores.log_sqlite import trim
from iothub_spark.transforms import insights
from tests.support.jobs.event_log import append
from tests.support.jobs.spark import Quiet
from tests.support.jobs.statistics import harness, log, spec_of

DAY_MS = 86_400_000
MONDAY_MS = 1_790_000_000_000 // DAY_MS * DAY_MS  # 2026-09-21


def frame(spark: SparkSession, made: Iterable[Event]) -> DataFrame:
    rows = [
        (0, offset, e.tenant_id, e.client_id, e.type.word, e.epoch, e.at_ms, json.dumps(dict(e.facts)), None)
        for offset, e in enumerate(made, 1)
    ]
    return spark.createDataFrame(rows, EVENTS)


def connected(tenant_id: int, device: str, at_ms: int, epoch: int = 0) -> Event:
    return events.session_connected(
        Subject(tenant_id, device, epoch, at_ms),
        device=device,
        protocol_version=5,
        session_expiry_s=0,
        peer="192.0.2.1:5",
        keep_alive_s=60,
    )


def gone(tenant_id: int, device: str, at_ms: int, reason: str) -> Event:
    return events.session_disconnected(Subject(tenant_id, device, 1, at_ms), reason=reason)


def period(sequence: int, from_ms: int) -> Period:
    return Period("hub-1/1/1", sequence, from_ms, from_ms + 60_000)


def rows(found: DataFrame) -> list[tuple[object, ...]]:
    return sorted(tuple(row) for row in found.collect())


def test_comings_and_goings_are_counted_by_day(spark: SparkSession) -> None:
    """Days are UTC's; subscriptions are no churn; sessions of which the log has no end are apart."""
    made = [
        connected(1, "a", MONDAY_MS, 1),
        connected(1, "a", MONDAY_MS + DAY_MS - 1, 2),
        connected(1, "a", MONDAY_MS + DAY_MS, 3),
        connected(1, "brief", MONDAY_MS),
        events.session_discarded(Subject(1, "a", 3, MONDAY_MS + DAY_MS), reason="clean_start"),
    ]
    made += [gone(1, "a", MONDAY_MS, "network"), gone(2, "b", MONDAY_MS, "keepalive_timeout")]
    made.append(events.session_unsubscribed(Subject(1, "a", 1, MONDAY_MS), topic_filter="x", group=None))
    sessions = frame(spark, made)

    assert rows(insights.churn(sessions)) == [
        (1, "2026-09-21", "brief_connected", 1),
        (1, "2026-09-21", "connected", 2),
        (1, "2026-09-21", "disconnected", 1),
        (1, "2026-09-22", "connected", 1),
        (1, "2026-09-22", "discarded", 1),
        (2, "2026-09-21", "disconnected", 1),
    ]
    assert rows(insights.disconnects(sessions)) == [
        (1, "2026-09-21", "network", 1),
        (2, "2026-09-21", "keepalive_timeout", 1),
    ]


def test_devices_that_stand_out_come_first(spark: SparkSession) -> None:
    """By everything they did, no more than asked for; counts that are nobody's name no device."""
    sessions = frame(spark, [connected(1, name, MONDAY_MS) for name in ("calm", "busy", "busy", "busy")])
    statistics_rows = [
        analytics.message_dropped(1, period(1, MONDAY_MS), reason="queue_full", count=9, device="full"),
        analytics.quota_refused(1, period(2, MONDAY_MS), quota="connections", count=50),
        analytics.auth_failed(1, period(3, MONDAY_MS), cause="wrong_secret", count=2, device="busy"),
    ]
    statistics = frame(spark, statistics_rows)

    found = rows(insights.noisy_devices(sessions, statistics, 2))

    assert found == [(1, "busy", 3, 0, 0, 2, 2), (1, "full", 0, 9, 0, 0, 1)]
    assert rows(insights.refusals(statistics)) == [
        (1, "2026-09-21", "auth.failed", "wrong_secret", 2),
        (1, "2026-09-21", "message.dropped", "queue_full", 9),
        (1, "2026-09-21", "quota.refused", "connections", 50),
    ]


def test_growth_is_the_last_sample_of_each_day(spark: SparkSession) -> None:
    made = [
        analytics.tenant_sampled(1, period(1, MONDAY_MS), Sample(sessions=5, queued_bytes=50)),
        analytics.tenant_sampled(1, period(2, MONDAY_MS + 3_600_000), Sample(sessions=3, queued_bytes=30)),
        analytics.usage_counted(1, period(3, MONDAY_MS), Metered(messages_in=4, bytes_out=7)),
        analytics.usage_counted(1, period(3, MONDAY_MS), Metered(messages_in=4, bytes_out=7)),
    ]
    statistics = frame(spark, made)

    assert rows(insights.growth(statistics)) == [(1, "2026-09-21", 3, 0, 0, 30, 0)]
    assert rows(insights.traffic(statistics)) == [(1, "2026-09-21", 4, 0, 0, 7, 0)]


class Reader(HTMLParser):
    """Sees to it that what is opened is closed, and keeps the text."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def test_report_is_one_file_about_every_tenant(spark: SparkSession, tmp_path: Path) -> None:
    """From the archive and from what came after it; nothing is fetched from elsewhere, and a device's name is no markup."""
    acme = harness(tmp_path, "acme")["acme"]
    now_ms = int(time.time() * 1000)
    append(
        tmp_path / "events.db", [connected(acme, "<b>pump</b>", now_ms - DAY_MS), gone(acme, "d", now_ms, "network")]
    )
    log(
        tmp_path,
        analytics.usage_counted(acme, period(1, now_ms - DAY_MS), Metered(messages_in=40)),
        analytics.tenant_sampled(acme, period(2, now_ms - 2 * DAY_MS), Sample(sessions=4)),
        analytics.auth_failed(0, period(3, now_ms), cause="unknown_tenant", count=3),
    )
    archive.run(spark, spec_of(tmp_path, "archive"), Report(io.StringIO()))
    append(tmp_path / "events.db", [connected(acme, "late", now_ms), connected(77, "nobody's", now_ms)])

    figures = job.run(spark, spec_of(tmp_path, "insights"), Report(io.StringIO()))

    file = Path(str(figures["report"]))
    page = file.read_text(encoding="utf-8")
    reader = Reader()
    reader.feed(page)
    assert figures["tenants"] == 3
    assert 0 < int(str(figures["days"])) < job.DAYS
    assert f"There are events of {figures['days']} of these 8 days." in page
    assert reader.open == []
    for word in ("acme", "<b>pump</b>", "late", "deleted tenant 77", "logins without a tenant", "unknown_tenant"):
        assert word in reader.text
    assert f'data-tenant="{acme}"' in page
    assert page.count("<svg") >= 3
    assert "currentColor" in page
    assert "prefers-color-scheme: dark" in page
    links = re.findall(r'(?:href|src)="([^"#]+)"', page)
    assert links == []
    assert [path.name for path in file.parent.iterdir()] == [file.name]


def test_report_says_which_session_events_nobody_has_copied(spark: SparkSession, tmp_path: Path) -> None:
    """Compaction trimmed them before `archive` ever ran: a count without them would look like a quiet day."""
    acme = harness(tmp_path, "acme")["acme"]
    hour_ms = int(time.time() * 1000) // 3_600_000 * 3_600_000
    append(tmp_path / "events.db", [connected(acme, f"d{number}", hour_ms - DAY_MS, 1) for number in range(27)])
    append(tmp_path / "events.db", [connected(acme, "late", hour_ms, 1)])
    trim(tmp_path / "events.db", 27)
    moment = datetime.fromtimestamp(hour_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M UTC")
    text = f"session events before {moment} were trimmed before they were archived"

    runs: list[tuple[str, Quiet, dict[str, object]]] = []
    for module, name in ((job, "insights"), (archive, "archive"), (job, "insights")):
        report = Quiet()
        runs.append((name, report, dict(module.run(spark, spec_of(tmp_path, name), report))))
        if name == "insights":
            assert text in Path(str(runs[-1][2]["report"])).read_text(encoding="utf-8")

    for name, report, figures in runs:
        assert any(note.startswith(text) for note in report.notes), name
        assert figures["sessions_missing_before"] == moment
