"""`ops/monitoring`: the alert rules and boards speak PromQL, of metrics and commands that the hub has."""

from __future__ import annotations

import re
import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import promql_parser
import pytest
import yaml

from iothub.cli.main import run
from iothub_services.metrics import metrics

MONITORING = Path(__file__).parents[3] / "ops/monitoring"
BOARDS = runpy.run_path(str(MONITORING / "boards.py"))["files"]()
ALERTS = [
    rule
    for group in yaml.safe_load((MONITORING / "iothub-alerts.yaml").read_text(encoding="utf-8"))["groups"]
    for rule in group["rules"]
]
METRICS = {metric.name: metric for metric in vars(metrics).values() if isinstance(metric, metrics.Metric)}
_ADDED = ("instance", "job", "tenant", "le")  # by Prometheus, by /metrics/tenants, in a histogram


def expressions() -> Iterator[tuple[str, str]]:
    for rule in ALERTS:
        yield rule["alert"], rule["expr"]
    for path, text in BOARDS.items():
        for panel in _panels(text):
            for target in panel["targets"]:
                yield f"{path.name}: {panel['title']}", target["expr"].replace("$__rate_interval", "1m")


def _panels(text: str) -> list[dict[str, Any]]:
    return [panel for panel in yaml.safe_load(text)["panels"] if panel["type"] != "row"]


@pytest.mark.parametrize(("name", "expression"), list(expressions()))
def test_an_expression_is_promql_of_metrics_that_there_are(name: str, expression: str) -> None:
    """With the labels that they have: a query of anything else shows nothing, and no one notices."""
    promql_parser.parse(expression)

    for found in re.finditer(r"\b(iothub_\w+)(?:\{([^}]*)\})?", expression):
        labels = re.findall(r"(\w+)\s*(?:=~|!=|=)", found[2] or "")
        assert set(labels) <= {*_metric(found[1]).labels, *_ADDED}, name
    for grouped in re.findall(r"by \(([^)]*)\)", expression):
        known = {label for word in re.findall(r"\biothub_\w+", expression) for label in _metric(word).labels}
        assert set(re.split(r",\s*", grouped)) <= {*known, *_ADDED}, name


def _metric(word: str) -> metrics.Metric:
    return METRICS.get(word) or METRICS[word.removesuffix("_bucket")]


@pytest.mark.parametrize("path", BOARDS, ids=lambda path: path.name)
def test_a_board_is_as_its_program_writes_it(path: Path) -> None:
    assert path.read_text(encoding="utf-8") == BOARDS[path]


@pytest.mark.parametrize("rule", ALERTS, ids=lambda rule: rule["alert"])
def test_an_alert_says_what_happened_and_what_to_do(rule: dict[str, Any]) -> None:
    assert rule["labels"]["severity"] in ("warning", "critical")
    assert set(rule["annotations"]) == {"summary", "action"}


@pytest.mark.parametrize(
    "command",
    sorted({word for rule in ALERTS for word in re.findall(r"`iothub ([a-z ]+)`", rule["annotations"]["action"])}),
)
def test_a_command_that_an_alert_names_is_there(command: str) -> None:
    assert run([*command.split(), "--help"]) == 0
