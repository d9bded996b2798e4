"""Writes the Grafana boards beside it: `python ops/monitoring/boards.py`.

A board is rows of panels; a panel is a title, a unit of Grafana and its queries. A test holds the files to this, and the queries to the metrics of
the hub.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).parent
_SOURCE = {"type": "prometheus", "uid": "${source}"}
_COLUMNS = 24
_HEIGHT = 8


class Panel(NamedTuple):
    """One graph. `queries`: expression and legend."""

    title: str
    unit: str
    queries: tuple[tuple[str, str], ...]


class Row(NamedTuple):
    """Panels side by side, under a heading."""

    title: str
    panels: tuple[Panel, ...]


def _rate(metric: str, *labels: str) -> str:
    return f'sum by ({", ".join(labels)}) (rate({metric}{{instance=~"$instance"}}[$__rate_interval]))'


def _sum(metric: str, *labels: str) -> str:
    return f'sum by ({", ".join(labels)}) ({metric}{{instance=~"$instance"}})'


def _p99(metric: str, *labels: str) -> str:
    return f"histogram_quantile(0.99, {_rate(metric + '_bucket', *labels, 'le')})"


def _tenant_rate(metric: str, *labels: str) -> str:
    return f'sum by ({", ".join(labels)}) (rate({metric}{{tenant=~"$tenant"}}[$__rate_interval]))'


def _tenant_sum(metric: str, *labels: str) -> str:
    return f'sum by ({", ".join(labels)}) ({metric}{{tenant=~"$tenant"}})'


_I = "instance"
_T = "tenant"

HUBS = (
    Row(
        "At a glance",
        (
            Panel("Hubs that answer", "short", (('sum(up{job="iothub"})', "up"),)),
            Panel("Alarms", "short", ((_sum("iothub_alarms_active", _I, "severity"), "{{instance}} {{severity}}"),)),
            Panel("Overload level", "short", ((_sum("iothub_overload_level", _I), "{{instance}}"),)),
        ),
    ),
    Row(
        "Clients",
        (
            Panel("Connections", "short", ((_sum("iothub_connections", _I, "listener"), "{{instance}} {{listener}}"),)),
            Panel("CONNECT packets", "cps", ((_rate("iothub_connects_total", "result"), "{{result}}"),)),
            Panel("Closed connections", "cps", ((_rate("iothub_disconnects_total", "reason"), "{{reason}}"),)),
        ),
    ),
    Row(
        "Messages",
        (
            Panel(
                "Received", "cps", ((_rate("iothub_messages_received_total", _I, "qos"), "{{instance}} QoS {{qos}}"),)
            ),
            Panel(
                "Delivered", "cps", ((_rate("iothub_messages_delivered_total", _I, "qos"), "{{instance}} QoS {{qos}}"),)
            ),
            Panel("Dropped", "cps", ((_rate("iothub_messages_dropped_total", "reason"), "{{reason}}"),)),
        ),
    ),
    Row(
        "Queues and stores",
        (
            Panel("Queued messages", "short", ((_sum("iothub_queued_messages", _I), "{{instance}}"),)),
            Panel("Commits", "cps", ((_rate("iothub_store_commits_total", _I, "store"), "{{instance}} {{store}}"),)),
            Panel(
                "Duration of a commit, p99",
                "s",
                ((_p99("iothub_store_commit_duration_seconds", _I, "store"), "{{instance}} {{store}}"),),
            ),
        ),
    ),
    Row(
        "Process",
        (
            Panel(
                "Delay of the reactor, p99", "s", ((_p99("iothub_reactor_tick_duration_seconds", _I), "{{instance}}"),)
            ),
            Panel("Bytes in buffers", "bytes", ((_sum("iothub_buffered_bytes", _I), "{{instance}}"),)),
            Panel("Open file descriptors", "short", ((_sum("iothub_file_descriptors", _I), "{{instance}}"),)),
        ),
    ),
    Row(
        "Other hubs",
        (
            Panel("Links up", "short", ((_sum("iothub_cluster_peers", _I), "{{instance}}"),)),
            Panel(
                "Round trip of a link",
                "s",
                ((_sum("iothub_link_round_trip_seconds", _I, "peer"), "{{instance}} to {{peer}}"),),
            ),
            Panel(
                "Bytes not acknowledged",
                "bytes",
                ((_sum("iothub_link_unacknowledged_bytes", _I, "peer"), "{{instance}} to {{peer}}"),),
            ),
        ),
    ),
    Row(
        "Jobs",
        (
            Panel(
                "Time since the last success",
                "s",
                (("time() - max by (job) (iothub_job_last_success_timestamp_seconds)", "{{job}}"),),
            ),
            Panel("Duration of the last run", "s", (("max by (job) (iothub_job_duration_seconds)", "{{job}}"),)),
            Panel("Last run failed", "short", (("1 - min by (job) (iothub_job_last_result)", "{{job}}"),)),
        ),
    ),
)

TENANTS = (
    Row(
        "Clients",
        (
            Panel("Connections", "short", ((_tenant_sum("iothub_tenant_connections", _T), "{{tenant}}"),)),
            Panel("Sessions", "short", ((_tenant_sum("iothub_tenant_sessions", _T), "{{tenant}}"),)),
            Panel(
                "Authentications",
                "cps",
                ((_tenant_rate("iothub_tenant_authentications_total", _T, "result"), "{{tenant}} {{result}}"),),
            ),
        ),
    ),
    Row(
        "Messages",
        (
            Panel("Received", "cps", ((_tenant_rate("iothub_tenant_messages_received_total", _T), "{{tenant}}"),)),
            Panel("Delivered", "cps", ((_tenant_rate("iothub_tenant_messages_delivered_total", _T), "{{tenant}}"),)),
            Panel(
                "Dropped",
                "cps",
                ((_tenant_rate("iothub_tenant_messages_dropped_total", _T, "reason"), "{{tenant}} {{reason}}"),),
            ),
        ),
    ),
    Row(
        "Stored",
        (
            Panel("Queued messages", "short", ((_tenant_sum("iothub_tenant_queued_messages", _T), "{{tenant}}"),)),
            Panel("Queued bytes", "bytes", ((_tenant_sum("iothub_tenant_queued_bytes", _T), "{{tenant}}"),)),
            Panel("Retained bytes", "bytes", ((_tenant_sum("iothub_tenant_retained_bytes", _T), "{{tenant}}"),)),
        ),
    ),
    Row(
        "Limits",
        (
            Panel(
                "Part of a limit in use",
                "percentunit",
                (
                    (
                        'max by (tenant, quota) (iothub_tenant_quota_used{tenant=~"$tenant"})'
                        ' / (max by (tenant, quota) (iothub_tenant_quota_limit{tenant=~"$tenant"}) > 0)',
                        "{{tenant}} {{quota}}",
                    ),
                ),
            ),
            Panel(
                "Rejected by limits",
                "cps",
                ((_tenant_rate("iothub_tenant_quota_rejections_total", _T, "quota"), "{{tenant}} {{quota}}"),),
            ),
            Panel(
                "Denied by access rules",
                "cps",
                ((_tenant_rate("iothub_tenant_authorizations_denied_total", _T, "action"), "{{tenant}} {{action}}"),),
            ),
        ),
    ),
)


def board(title: str, uid: str, variable: tuple[str, str], rows: tuple[Row, ...]) -> dict[str, Any]:
    """Return a board of Grafana. `variable`: its name, and the query of its values."""
    return {
        "uid": uid,
        "title": title,
        "tags": ["iothub"],
        "timezone": "browser",
        "schemaVersion": 39,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "templating": {"list": [_sources(), _values(*variable)]},
        "panels": list(_panels(rows)),
    }


def _sources() -> dict[str, Any]:
    return {"name": "source", "label": "Prometheus", "type": "datasource", "query": "prometheus"}


def _values(name: str, query: str) -> dict[str, Any]:
    return {
        "name": name,
        "label": name.capitalize(),
        "type": "query",
        "datasource": _SOURCE,
        "query": {"query": query, "refId": "values"},
        "refresh": 2,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "sort": 1,
    }


def _panels(rows: tuple[Row, ...]) -> Iterator[dict[str, Any]]:
    number, top = 0, 0
    for row in rows:
        number += 1
        yield {
            "id": number,
            "type": "row",
            "title": row.title,
            "collapsed": False,
            "panels": [],
            "gridPos": {"h": 1, "w": _COLUMNS, "x": 0, "y": top},
        }
        width = _COLUMNS // len(row.panels)
        for place, panel in enumerate(row.panels):
            number += 1
            yield {
                "id": number,
                "type": "timeseries",
                "title": panel.title,
                "datasource": _SOURCE,
                "gridPos": {"h": _HEIGHT, "w": width, "x": place * width, "y": top + 1},
                "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
                "options": {
                    "legend": {"displayMode": "list", "placement": "bottom"},
                    "tooltip": {"mode": "multi", "sort": "desc"},
                },
                "targets": [
                    {"refId": chr(ord("A") + index), "datasource": _SOURCE, "expr": expression, "legendFormat": legend}
                    for index, (expression, legend) in enumerate(panel.queries)
                ],
            }
        top += 1 + _HEIGHT


def files() -> dict[Path, str]:
    """Return each board's file and its content."""
    boards = {
        "iothub-hubs.json": board(
            "iothub: hubs", "iothub-hubs", ("instance", "label_values(iothub_build_info, instance)"), HUBS
        ),
        "iothub-tenants.json": board(
            "iothub: tenants", "iothub-tenants", ("tenant", "label_values(iothub_tenant_connections, tenant)"), TENANTS
        ),
    }
    return {HERE / name: json.dumps(content, indent=1) + "\n" for name, content in boards.items()}


if __name__ == "__main__":
    for path, text in files().items():
        path.write_text(text, encoding="utf-8")
