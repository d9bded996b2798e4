"""The running hub: whether it is ready, and each of its alarms with the remedy.

Does not ask the hub itself: gets the facts of `iothub status`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from iothub.doctor.findings import Finding, State

NAME = "running hub"


def findings(facts: Mapping[str, object]) -> Iterator[Finding]:
    """`facts`: as `iothub status -o json` has them."""
    yield _readiness(facts)
    yield from _other_hubs(facts)
    yield from _quota(facts)
    alarms = facts.get("alarms")
    for alarm in alarms if isinstance(alarms, list) else []:
        subject = f" ({alarm['subject']})" if alarm.get("subject") else ""
        state = State.FAIL if alarm.get("severity") == "critical" else State.WARN
        yield Finding(
            f"alarm {alarm.get('name')}", state, f"{alarm.get('detail')}{subject}", str(alarm.get("advice", ""))
        )


def _other_hubs(facts: Mapping[str, object]) -> Iterator[Finding]:
    """What works at one hub only, for clients that rely on it. No warning: it is so wherever there are several hubs."""
    others, missing = facts.get("other_hubs"), facts.get("not_across_hubs")
    if not isinstance(others, list) or not isinstance(missing, list) or not missing:
        return
    numbers = ", ".join(map(str, others))
    who = (
        f"the hubs with node.number {numbers} share the stores"
        if others
        else "the workers of this hub share the stores"
    )
    text = f"{who}; not across hubs: {'; '.join(map(str, missing))}"
    yield Finding("other hubs", State.OK, text, "connect clients that need one of these to the same hub")


def _quota(facts: Mapping[str, object]) -> Iterator[Finding]:
    """The ledger of workers answers: their store process has it, or Redis."""
    workers, mode = facts.get("worker_states"), facts.get("quota")
    if not isinstance(workers, list) or not isinstance(mode, str):
        return
    if mode == "shared":
        yield Finding("quota of workers", State.OK, f"limits hold for {len(workers)} workers together")
    else:
        advice = "wait some seconds; if it lasts, see the alarms and the log of the store process"
        yield Finding("quota of workers", State.WARN, f"{mode}: each worker keeps its last share of the limits", advice)


def _readiness(facts: Mapping[str, object]) -> Finding:
    reasons, state = facts.get("reasons"), facts["state"]
    why = "; ".join(map(str, reasons)) if isinstance(reasons, list) else ""
    if state == "starting":
        return Finding(
            NAME,
            State.WARN,
            f"starting: {why}",
            "the hub continues by itself; the other lines show what does not answer",
        )
    if facts.get("ready"):
        is_whole = state == "running"
        text = "ready" if is_whole else f"ready, but does not answer commands: {facts.get('problem')}"
        return Finding(NAME, State.OK if is_whole else State.WARN, text)
    if why:
        return Finding(NAME, State.FAIL, f"not ready: {why}", "check the alarms and its log")
    return Finding(NAME, State.FAIL, f"does not answer: {facts.get('problem')}", "check its log")
