"""What the running hub says of itself: whether it is ready, and each of its alarms with what to do.

Knows no way to the hub: `iothub status` asks it, and what it found is given here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from iothub.doctor.findings import Finding, State

NAME = "running hub"


def findings(facts: Mapping[str, object]) -> Iterator[Finding]:
    """`facts`: as `iothub status -o json` has them."""
    yield _readiness(facts)
    alarms = facts.get("alarms")
    for alarm in alarms if isinstance(alarms, list) else []:
        subject = f" ({alarm['subject']})" if alarm.get("subject") else ""
        state = State.FAIL if alarm.get("severity") == "critical" else State.WARN
        yield Finding(
            f"alarm {alarm.get('name')}", state, f"{alarm.get('detail')}{subject}", str(alarm.get("advice", ""))
        )


def _readiness(facts: Mapping[str, object]) -> Finding:
    reasons, state = facts.get("reasons"), facts["state"]
    why = "; ".join(map(str, reasons)) if isinstance(reasons, list) else ""
    if state == "starting":
        return Finding(NAME, State.WARN, f"starting: {why}", "it goes on by itself; the other lines say what is away")
    if facts.get("ready"):
        is_whole = state == "running"
        told = "ready" if is_whole else f"ready, but it takes no commands: {facts.get('problem')}"
        return Finding(NAME, State.OK if is_whole else State.WARN, told)
    if why:
        return Finding(NAME, State.FAIL, f"not ready: {why}", "see the alarms, and its log")
    return Finding(NAME, State.FAIL, f"does not answer: {facts.get('problem')}", "see its log")
