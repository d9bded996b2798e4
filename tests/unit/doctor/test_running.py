"""The running hub's own words as lines of the doctor."""

from __future__ import annotations

import pytest

from iothub.doctor import running
from iothub.doctor.findings import State

FAILED = {
    "name": "store_failed",
    "severity": "critical",
    "subject": "state",
    "detail": "no answer",
    "advice": "Look at it.",
}
HIGH = {"name": "memory_high", "severity": "warning", "subject": "", "detail": "91%", "advice": "Look."}


@pytest.mark.parametrize(
    ("facts", "state", "text"),
    [
        ({"state": "running", "ready": True, "reasons": []}, State.OK, "ready"),
        (
            {"state": "running", "ready": False, "reasons": ["the disk is full"]},
            State.FAIL,
            "not ready: the disk is full",
        ),
        (
            {"state": "starting", "ready": False, "reasons": ["waiting for Kafka"]},
            State.WARN,
            "starting: waiting for Kafka",
        ),
        ({"state": "not answering", "problem": "no answer"}, State.FAIL, "does not answer: no answer"),
        (
            {"state": "answering over HTTP alone", "ready": True, "reasons": [], "problem": "no answer"},
            State.WARN,
            "ready, but does not answer commands: no answer",
        ),
    ],
)
def test_readiness_is_a_line(facts: dict[str, object], state: State, text: str) -> None:
    [found] = running.findings(facts)

    assert (found.name, found.state, found.text) == ("running hub", state, text)


def test_every_alarm_is_a_line_with_its_remedy() -> None:
    """A critical one is a failure."""
    _, failed, high = running.findings({"state": "running", "ready": True, "alarms": [FAILED, HIGH]})

    assert (failed.name, failed.state, failed.text, failed.advice) == (
        "alarm store_failed",
        State.FAIL,
        "no answer (state)",
        "Look at it.",
    )
    assert (high.state, high.text) == (State.WARN, "91%")


def test_what_does_not_cross_hubs_is_named() -> None:
    _, found = running.findings(
        {"state": "running", "ready": True, "other_hubs": [0, 2], "not_across_hubs": ["QoS 0 messages", "bans"]}
    )

    assert (found.name, found.state) == ("other hubs", State.OK)
    assert found.text == "the hubs with node.number 0, 2 share the stores; not across hubs: QoS 0 messages; bans"
    assert "the same hub" in found.advice


def test_hub_without_others_has_no_line_about_them() -> None:
    facts: dict[str, object] = {"state": "running", "ready": True, "other_hubs": [], "not_across_hubs": []}

    assert [found.name for found in running.findings(facts)] == ["running hub"]


@pytest.mark.parametrize(("mode", "state"), [("shared", State.OK), ("degraded", State.WARN)])
def test_ledger_of_workers_has_a_line(mode: str, state: State) -> None:
    facts = {"state": "running", "ready": True, "reasons": [], "worker_states": [{}, {}], "quota": mode}

    found = {finding.name: finding.state for finding in running.findings(facts)}

    assert found["quota of workers"] is state
