"""What is declared is used: every setting is read, every metric fed, every name of a refusal, drop and alarm given by somebody."""

from __future__ import annotations

import re
from enum import Enum
from functools import cache

import pytest

from iothub.base import reasons
from iothub.config.loader import sections
from iothub_services.metrics import metrics
from iothub_services.metrics.alarms import AlarmName
from tests.architecture.tree import ROOT, modules

# What nobody reads, feeds or gives yet. The lists may only shrink: what is used must leave them.
UNREAD_SETTINGS: frozenset[str] = frozenset(())
UNFED_METRICS: frozenset[str] = frozenset(())
UNUSED_NAMES: frozenset[str] = frozenset(())

_DECLARING = frozenset(
    ("iothub.config.sections", "iothub.config.loader", "iothub.config.value_types", "iothub.config.reference_page")
)


@cache
def _sources(without: frozenset[str]) -> str:
    """Every module's text, doubles and the given modules left out; compiled-only sources too."""
    texts = [
        path.read_text(encoding="utf-8")
        for name, path in modules().items()
        if name not in without and not name.startswith("iothub.testing")
    ]
    texts += [path.read_text(encoding="utf-8") for path in (ROOT / "iothub/engine").glob("*.pyx")]
    return "\n".join(texts)


def test_every_setting_is_read() -> None:
    """A setting that does nothing is a lie in the reference page."""
    source = _sources(_DECLARING)
    names = [setting.name for section in sections() for setting in section.settings]
    words = set(re.findall(r"""[."'](\w+)""", source))
    unread = {name for name in names if words.isdisjoint((leaf := name.rpartition(".")[2], f"{leaf}_s"))}

    assert unread - UNREAD_SETTINGS == set()
    assert UNREAD_SETTINGS - unread == set(), "these are read now: take them off the list"


def test_every_metric_is_fed() -> None:
    """A metric that nobody feeds is never shown."""
    source = _sources(frozenset(("iothub_services.metrics.metrics",)))
    declared = {name: value.name for name, value in vars(metrics).items() if isinstance(value, metrics.Metric)}
    fed = set(re.findall(r"\bmetrics\.(\w+)", source))
    unfed = {metric for name, metric in declared.items() if name not in fed}

    assert unfed - UNFED_METRICS == set()
    assert UNFED_METRICS - unfed == set(), "these are fed now: take them off the list"


@pytest.mark.parametrize("names", [reasons.Reason, reasons.Drop, AlarmName], ids=lambda names: names.__name__)
def test_every_name_is_given_by_somebody(names: type[Enum]) -> None:
    """The one list of names has no dead ones."""
    source = _sources(frozenset(("iothub.base.reasons", "iothub_services.metrics.alarms")))
    word = names.__name__
    given = set(re.findall(rf"\b{word}\.(\w+)", source))
    unused = {f"{word}.{each.name}" for each in names if each.name not in given}
    known = {name for name in UNUSED_NAMES if name.startswith(f"{word}.")}

    assert unused - known == set()
    assert known - unused == set(), "these are used now: take them off the list"
