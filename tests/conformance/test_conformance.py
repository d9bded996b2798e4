"""The conformance table stays honest: every statement is proved or waived, and what code claims a test proves."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conformance import table


@pytest.fixture(scope="module")
def citations() -> table.Citations:
    return table.find_citations()


def test_catalogue_holds_every_statement_once() -> None:
    """247 of chapters 1 to 4 and 4 of chapter 6 in MQTT 5.0, 141 in MQTT 3.1.1."""
    ids = [statement.id for statement in table.read_catalogue()]

    assert len(ids) == len(set(ids))
    assert sum(each.startswith("MQTT-") for each in ids) == 247 + 4
    assert sum(each.startswith("MQTT3-") for each in ids) == 141


def test_citations_name_statements_that_exist(citations: table.Citations) -> None:
    """A mistyped id, or a range of them, proves nothing."""
    known = {statement.id for statement in table.read_catalogue()}
    unknown = {
        each: [*citations.code.get(each, []), *citations.tests.get(each, [])] for each in _cited(citations) - known
    }

    assert unknown == {}


def test_statement_that_code_cites_is_proved_by_a_test(citations: table.Citations) -> None:
    """Whoever writes that a line obeys a statement also writes the test that shows it."""
    unproved = {each: files for each, files in citations.code.items() if each not in citations.tests}

    assert unproved == {}


def test_statement_is_cited_or_waived(citations: table.Citations) -> None:
    """Nothing of the specification is forgotten."""
    _, waivers = table.read_waivers()
    forgotten = [
        each.id for each in table.read_catalogue() if each.id not in waivers and each.id not in _cited(citations)
    ]

    assert forgotten == []


def test_waivers_are_for_statements_that_exist_and_have_a_reason() -> None:
    """The reason "client" is only for what binds clients alone."""
    _, waivers = table.read_waivers()
    binds = {statement.id: statement.binds for statement in table.read_catalogue()}

    assert [each for each, reason in waivers.items() if each not in binds or not reason.strip()] == []
    assert [each for each, reason in waivers.items() if reason == table.CLIENT and binds[each] != "client"] == []


def test_not_yet_does_not_grow(citations: table.Citations) -> None:
    """The number in waivers.toml is an upper bound that may only be lowered."""
    maximum, waivers = table.read_waivers()

    assert len(table.open_not_yet(waivers, citations)) <= maximum


def test_page_lists_the_whole_catalogue() -> None:
    """docs/conformance.md is written from the same catalogue."""
    rows = [
        line.split(" | ")[0].removeprefix("| ")
        for line in table.TABLE.read_text().splitlines()
        if line.startswith("| MQTT")
    ]

    assert rows == [statement.id for statement in table.read_catalogue()]


def test_shrinking_takes_off_what_is_proved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A statement with a test leaves the waivers, and the maximum falls with it; other reasons stay."""
    monkeypatch.setattr(table, "WAIVERS", tmp_path / "waivers.toml")
    cited = table.Citations({}, {"MQTT-1.5.4-1": ["tests/x.py"], "MQTT-3.2.2-9": ["tests/x.py"]})
    monkeypatch.setattr(table, "find_citations", lambda: cited)
    waivers = {"MQTT-1.5.4-1": "not yet", "MQTT-1.5.4-2": "not yet", "MQTT-3.2.2-9": "QoS 2 is supported"}
    table.write_waivers(waivers, 2)

    table.shrink()

    assert table.read_waivers() == (1, {"MQTT-1.5.4-2": "not yet", "MQTT-3.2.2-9": "QoS 2 is supported"})


def _cited(citations: table.Citations) -> set[str]:
    return set(citations.code) | set(citations.tests)
