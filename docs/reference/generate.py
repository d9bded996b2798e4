"""Write the reference pages that are made from the code.

`cli.md` from the commands' help; `configuration.md`, `metrics.md` and `quotas.md` from declarations.
Run it after a change: `.venv/bin/python docs/reference/generate.py`. A test holds the pages equal to what it would write.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import click

from iothub.cli.main import NOUNS, command
from iothub.config.reference_page import render_reference as configuration_page
from iothub_services.metrics.metrics import DECLARED, Metric
from iothub_services.quota.reference import render_reference as quotas_page

HERE = Path(__file__).resolve().parent

_CLI = """\
# The iothub command

This page is generated from the commands' own help: `.venv/bin/python docs/reference/generate.py`.

Global options stand before the noun, options of a verb after it; `-o`, `--no-input` and `--debug` may stand in both places.
Tables and JSON go to standard output, everything else to standard error.
"""

_METRICS = """\
# Metrics

This page is generated from `services/iothub_services/metrics/metrics.py`: `.venv/bin/python docs/reference/generate.py`.

`/metrics` has those of the hub, `/metrics/tenants` those of the tenants; every tenant's series begins with the label `tenant`.
`/metrics/tenants` takes `tenant=NAME`, or `limit=N` and `after=NAME` for pages.
A tenant is there from its first use until it is deleted, and its counters rise until the hub ends; while it is idle and not in memory its
gauges are 0, and `iothub_tenant_quota_limit` and `iothub_tenant_quota_used` are missing.
A client id, a topic or a device is never a label.
The process itself is described by the usual `process_...` and `python_gc_...` metrics.

With several workers each page is of all of them, whichever answers.
The column "workers" says how: their figures are added up (sum), or the largest or smallest one holds.
What workers know alike (tenants in memory, queues, retained messages, alarms) is counted once.
`process_...`, `python_gc_...` and the counters of tenants have a series for each worker, with the label `worker`.
A worker that does not answer within two seconds is counted by `iothub_workers{state="silent"}`: its gauges and its tenants are missing, and its
counters on `/metrics` are those that it gave last.
"""


def cli_page() -> str:
    """Return `cli.md`."""
    lines = [_CLI, "```text", _help(command, ["iothub"]), "```", ""]
    for noun in NOUNS:
        found = command.get_command(click.Context(command), noun)
        if found is not None:
            lines.extend(_noun_lines(found, noun))
    return "\n".join(lines).rstrip() + "\n"


def metrics_page() -> str:
    """Return `metrics.md`."""
    platform = [metric for metric in DECLARED if not metric.name.startswith("iothub_tenant_")]
    tenants = [metric for metric in DECLARED if metric.name.startswith("iothub_tenant_")]
    lines = [_METRICS, "## The hub", "", *_table(platform), "", "## Tenants", "", *_table(tenants)]
    return "\n".join(lines) + "\n"


def _noun_lines(found: click.Command, noun: str) -> Iterator[str]:
    yield f"## {noun}\n"
    yield f"```text\n{_help(found, ['iothub', noun])}\n```\n"
    yield from _verb_lines(found, noun)


def _verb_lines(found: click.Command, words: str) -> Iterator[str]:
    if isinstance(found, click.Group):
        for name, verb in sorted(found.commands.items()):
            yield f"### {words} {name}\n"
            yield f"```text\n{_help(verb, ['iothub', *words.split(), name])}\n```\n"
            yield from _verb_lines(verb, f"{words} {name}")


def _help(found: click.Command, words: list[str]) -> str:
    """Render a command's help at the width of this page, whatever terminal runs this."""
    settings = {**found.context_settings, "terminal_width": 100, "max_content_width": 100}
    settings.setdefault("help_option_names", ["-h", "--help"])
    context = click.Context(found, info_name=" ".join(words), **settings)
    return found.get_help(context).rstrip()


def _table(metrics: list[Metric]) -> Iterator[str]:
    yield "| name | kind | labels | workers | meaning |"
    yield "| --- | --- | --- | --- | --- |"
    for metric in metrics:
        labels = ", ".join(metric.labels)
        yield f"| `{metric.name}` | {metric.kind.value} | {labels} | {metric.merge.value} | {metric.sentence} |"


def main() -> int:
    (HERE / "cli.md").write_text(cli_page(), encoding="utf-8")
    (HERE / "configuration.md").write_text(configuration_page(), encoding="utf-8")
    (HERE / "metrics.md").write_text(metrics_page(), encoding="utf-8")
    (HERE / "quotas.md").write_text(quotas_page(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
