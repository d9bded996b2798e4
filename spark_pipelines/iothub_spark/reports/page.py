"""The page of `insights`: one HTML file that needs nothing else, for light and dark.

Knows findings and plots. What clients have named (devices, reasons) is text, never markup.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from html import escape

from iothub_spark.reports.findings import Findings, TenantFindings
from iothub_spark.reports.plots import lines, stacks
from iothub_spark.transforms.insights import CHURN

_STYLE = """
:root { color-scheme: light dark; --paper: #fff; --ink: #1c2530; --soft: #5b6673; --line: #d5dbe2; }
@media (prefers-color-scheme: dark) { :root { --paper: #14181d; --ink: #e4e9ef; --soft: #9aa6b3; --line: #333c46; } }
body { background: var(--paper); color: var(--ink); font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 72rem; padding: 0 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.2rem; margin-top: 2.5rem; border-top: 1px solid var(--line); padding-top: 1rem; }
h3 { font-size: 1rem; margin-bottom: .3rem; } p, td.none { color: var(--soft); }
.plots { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(26rem, 100%), 1fr)); gap: 1rem; }
.plots svg { width: 100%; height: auto; } .tables { display: flex; flex-wrap: wrap; gap: 0 2.5rem; }
.tables > div { max-width: 100%; overflow-x: auto; } code, h2, nav { overflow-wrap: anywhere; }
table { border-collapse: collapse; } th, td { text-align: left; padding: .15rem .9rem .15rem 0; border-bottom: 1px solid var(--line); }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; } nav a { color: inherit; margin-right: 1rem; }
"""

_OF_WHOM = "<p>Connects count all sessions; reasons for closed connections are known for persistent sessions only, so the numbers differ.</p>"
_LACKING = (
    "<p>Not in the log: a SUBSCRIBE denied by access rules (metric <code>iothub_tenant_authorizations_denied_total</code>), "
    "and the device behind a refusal by a limit of the whole tenant.</p>"
)


def page(findings: Findings, made_at: str, lacking: Sequence[str] = ()) -> str:
    """Return the whole page; tenants by name, those with the most messages not first, so that a reader finds his.

    `lacking`: what events of these days nobody has.
    """
    tenants = sorted(findings.tenants.values(), key=lambda tenant: (tenant.tenant_id == 0, tenant.name))
    first, last = (findings.days[0], findings.days[-1]) if findings.days else ("", "")
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en"><head><meta charset="utf-8"><title>iothub insights</title>',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<style>{_STYLE}</style></head><body>",
            "<h1>Insights</h1>",
            f"<p>{first} to {last} (UTC), made {escape(made_at)}. The last day is not over.{_days_without_events(findings)}</p>",
            *[
                f"<p><strong>Missing: {escape(text)}; the counts of these days are too low.</strong></p>"
                for text in lacking
            ],
            "<nav>" + "".join(f'<a href="#t{t.tenant_id}">{escape(t.name)}</a>' for t in tenants) + "</nav>",
            *[part for tenant in tenants for part in _tenant(findings, tenant)],
            "" if tenants else "<p>No events of these days are in the archive or in the log.</p>",
            "</body></html>",
            "",
        ]
    )


def _days_without_events(findings: Findings) -> str:
    """Say of how many days there is nothing: a hub may be younger than these days."""
    count, all_days = len(findings.days_with_events), len(findings.days)
    return "" if count in (0, all_days) else f" There are events of {count} of these {all_days} days."


def _tenant(findings: Findings, tenant: TenantFindings) -> Iterator[str]:
    days = findings.days
    yield f'<section data-tenant="{tenant.tenant_id}" id="t{tenant.tenant_id}"><h2>{escape(tenant.name)}</h2>'
    yield '<div class="plots">'
    yield from _plots(days, tenant)
    yield '</div><div class="tables">'
    yield from _tables(findings, tenant)
    yield "</div></section>"


def _plots(days: Sequence[str], tenant: TenantFindings) -> Iterator[str]:
    if tenant.traffic:
        names = ("messages_in", "messages_out", "fanout")
        by_name = {name: [tenant.traffic.get(day, {}).get(name, 0) for day in days] for name in names}
        yield lines("Messages", days, by_name)
    if tenant.churn:
        words = [word.rpartition(".")[2] for word in CHURN]
        happened = {word: [tenant.churn[day][word] if day in tenant.churn else 0 for day in days] for word in words}
        yield stacks(
            "Persistent sessions: created and ended",
            days,
            {word: counts for word, counts in happened.items() if any(counts)},
        )
    if tenant.growth:
        sessions = {
            name: [tenant.growth.get(day, {}).get(name, 0) for day in days] for name in ("sessions", "connected")
        }
        yield lines("Sessions", days, sessions)
        stored = ("queued_bytes", "retained_bytes")
        kib = {name: [tenant.growth.get(day, {}).get(name, 0) / 1024 for day in days] for name in stored}
        yield lines("Stored, KiB", days, {name.removesuffix("_bytes"): values for name, values in kib.items()})


def _tables(findings: Findings, tenant: TenantFindings) -> Iterator[str]:
    yield _day_over_day(findings, tenant)
    yield _table(
        "Persistent sessions: reasons for closed connections", ("reason", "times"), tenant.disconnects.most_common(12)
    )
    refused = [(kind, reason, times) for (kind, reason), times in tenant.refusals.most_common(16)]
    yield _table("Drops, refusals, failed logins", ("what", "reason", "times"), refused)
    names = ("device", "connects", "drops", "refusals", "failed_logins")
    rows = [tuple(device[name] for name in names) for device in tenant.devices]
    yield _table("Devices with the most activity", tuple(name.replace("_", " ") for name in names), rows)
    if tenant.disconnects or rows:
        yield _OF_WHOM
    if refused or rows:
        yield _LACKING


def _day_over_day(findings: Findings, tenant: TenantFindings) -> str:
    changes = [(c.name, c.before, c.now, _percent(c.percent)) for c in findings.changes(tenant)]
    if changes:
        return _table("Day over day", ("", "the day before", "last whole day", "change"), changes)
    if not (tenant.churn or tenant.growth or tenant.traffic):
        return ""  # logins without a tenant
    if len(findings.days) < 3 or not tenant.has(findings.days[-2]):
        why = "Nothing to compare: the last whole day has no events; today is not over."
    else:
        why = "Nothing to compare: the day before the last whole one has no events."
    return f"<div><h3>Day over day</h3><p>{why}</p></div>"


def _percent(percent: float | None) -> str:
    if percent is None:
        return "new"
    return f"{percent:+.0f} %" if percent else "none"


def _table(title: str, heads: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a table whose heads stand over their cells: numbers to the right."""
    shown = list(rows)
    if not shown:
        return ""
    head = "".join(f"<th{_class(cell)}>{escape(word)}</th>" for word, cell in zip(heads, shown[0], strict=True))
    cells = "".join(map(_row, shown))
    return f"<div><h3>{escape(title)}</h3><table><tr>{head}</tr>{cells}</table></div>"


def _row(row: Sequence[object]) -> str:
    return "<tr>" + "".join(f"<td{_class(cell)}>{escape(_shown(cell))}</td>" for cell in row) + "</tr>"


def _class(cell: object) -> str:
    return " class=n" if isinstance(cell, int) else ""


def _shown(cell: object) -> str:
    return f"{cell:,}" if isinstance(cell, int) else str(cell)
