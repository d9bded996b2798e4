"""An explanation says what a real client gets, names the rule that `rejected` names, and leaves no trace."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from iothub.base.errors import ConfigError
from iothub.records.admin_commands import Request, Verb, answer_with
from iothub_services.auth.port import (
    Action,
    Ban,
    BanKind,
    ClientIdPolicy,
    CredentialKind,
    DeviceRecord,
    Effect,
    Rule,
    Scope,
    TenantRecord,
    TenantState,
)
from iothub_services.quota.names import Quota
from iothub_tenants.background.admin_explain import AdminExplain
from iothub_tenants.control.explain import Explain, Outcome, Step, WouldConnect, WouldPublish, WouldSubscribe
from tests.support.clients import property_names as names
from tests.support.clients.packets import PUBACK
from tests.support.in_process.control_harness import EVERYTHING, Harness, device, now, plugged

FILTERS = ("#", "a/#", "a/b", "+/b", "{device}/#", "{clientid}/b", "$SYS/#")
TOPICS = ("a/b", "a/c", "dev1/x", "c/b", "$SYS/x", "a/b/c/d/e")
LIMITS = (
    "",
    "connections=0",
    "connections=1",
    "sessions=0",
    "connects=1/1h",
    "publish_bytes=200/1h",
    "packet_bytes=100",
    "topic_levels=3",
)
MANY = settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))

RULES = st.builds(
    Rule,
    st.just(Scope.TENANT),
    st.just(""),
    st.sampled_from(Effect),
    st.sampled_from(Action),
    st.sampled_from(FILTERS),
)
BANS = st.sampled_from(
    [
        Ban(BanKind.DEVICE, "dev1"),
        Ban(BanKind.CLIENT_ID, "c"),
        Ban(BanKind.ADDRESS, "192.0.2.0/24"),
        Ban(BanKind.DEVICE, "dev2"),
        Ban(BanKind.DEVICE, "dev1", until=1.0),
    ]
)
TENANTS = st.fixed_dictionaries(
    {
        "state": st.sampled_from([TenantState.ACTIVE] * 4 + [TenantState.SUSPENDED, TenantState.DELETING]),
        "client_id_policy": st.sampled_from(ClientIdPolicy),
        "limits": st.sampled_from(LIMITS),
        "bans": st.lists(BANS, max_size=1).map(tuple),
        "denied_networks": st.sampled_from([(), (), ("192.0.2.0/24",), ("198.51.100.0/24",)]),
    }
)


def connect_steps(
    harness: Harness, *, name: str = "dev1", client_id: str = "c", is_persistent: bool = False
) -> list[Step]:
    asked = WouldConnect("acme", name, client_id, "192.0.2.1", has_certificate=False, is_persistent=is_persistent)
    return list(now(Explain(harness.hub).connect(asked)))


def publish_steps(harness: Harness, topic: str, *, size: int = 0, is_retained: bool = False) -> list[Step]:
    return list(now(Explain(harness.hub).publish(WouldPublish("acme", "dev1", "c", topic, 1, is_retained, size))))


def subscribe_steps(harness: Harness, topic_filter: str) -> list[Step]:
    return list(now(Explain(harness.hub).subscribe(WouldSubscribe("acme", "dev1", "c", topic_filter, 1))))


def is_allowed(steps: list[Step]) -> bool:
    assert all(step.outcome is not Outcome.FAILED for step in steps[:-1]), "nothing is reached behind a failed step"
    return steps[-1].outcome is not Outcome.FAILED


def last_rejected(harness: Harness) -> str:
    rejected = harness.connection_log.rejected
    return [*rejected.of_tenant(7, "acme"), *rejected.without_tenant()][-1].rule


@given(
    options=TENANTS,
    name=st.sampled_from(["dev1", "dev1", "dev2", "nobody"]),
    is_enabled=st.booleans(),
    client_id=st.sampled_from(["c", "dev1", "dev1/x", "other"]),
    is_persistent=st.booleans(),
    others=st.sampled_from([(), (), ("other",), ("c",)]),
)
@MANY
def test_connect_is_explained_as_it_happens(
    options: dict[str, Any], name: str, is_enabled: bool, client_id: str, is_persistent: bool, others: tuple[str, ...]
) -> None:
    with TemporaryDirectory() as path:
        harness = Harness(Path(path))
        first = TenantRecord(7, "acme", rules=(EVERYTHING,), limits=options["limits"])
        harness.accounts.add(first, device("dev1"), device("dev2"))
        for other in others:
            harness.ask(other, username="acme/dev2")
        harness.accounts.add(
            TenantRecord(7, "acme", rules=(EVERYTHING,), **options),
            device("dev1", is_enabled=is_enabled),
            device("dev2"),
        )
        harness.hub.authenticator.invalidate_all()
        refusals = list(harness.recorder.refusals)

        steps = connect_steps(harness, name=name, client_id=client_id, is_persistent=is_persistent)

        assert harness.recorder.refusals == refusals, "nothing is counted"
        props = [(names.SESSION_EXPIRY, 100)] if is_persistent else []
        client = harness.ask(client_id, username=f"acme/{name}", props=props)
        assert is_allowed(steps) is (client.connack.code == 0), (steps, client.connack)
        if client.connack.code:
            assert steps[-1].rule == last_rejected(harness)
        harness.close()


@given(
    rules=st.lists(RULES, max_size=4),
    topic=st.sampled_from(TOPICS),
    limits=st.sampled_from((*LIMITS[5:], "")),
    size=st.sampled_from([0, 200]),
)
@MANY
def test_publish_is_explained_as_it_happens(rules: list[Rule], topic: str, limits: str, size: int) -> None:
    with TemporaryDirectory() as path:
        harness = Harness(Path(path))
        harness.accounts.add(TenantRecord(7, "acme", rules=tuple(rules), limits=limits), device("dev1"))
        client = harness.join("c")

        steps = publish_steps(harness, topic, size=size)

        client.send(client.publish_bytes(topic, b"x" * size, qos=1, packet_id=1))
        answer = client.next()
        is_acknowledged = answer.kind == PUBACK and (answer.code or 0) < 0x80
        assert is_allowed(steps) is is_acknowledged, (steps, answer)
        harness.close()


@given(
    rules=st.lists(RULES, max_size=4),
    topic_filter=st.sampled_from((*TOPICS, "#", "a/#", "$share/g/a/b", "+/+/+/+/+")),
    limits=st.sampled_from(
        ["", "subscriptions=0", "session_subscriptions=1", "shared_groups=0", "filter_levels=3", "subscribes=1/1h"]
    ),
    has_one=st.booleans(),
)
@MANY
def test_subscribe_is_explained_as_it_happens(rules: list[Rule], topic_filter: str, limits: str, has_one: bool) -> None:
    with TemporaryDirectory() as path:
        harness = Harness(Path(path))
        harness.accounts.add(TenantRecord(7, "acme", rules=tuple(rules), limits=limits), device("dev1"))
        client = harness.join("c")
        if has_one:
            client.subscribe(("a/b", 0))

        steps = subscribe_steps(harness, topic_filter)

        answer = client.subscribe((topic_filter, 1))
        assert is_allowed(steps) is (max(answer.body[-1:]) < 0x80), (steps, answer)
        harness.close()


def test_device_that_is_banned_after_failures_is_explained(harness: Harness) -> None:
    for _ in range(10):
        harness.ask(password="wrong")

    assert connect_steps(harness)[-1].rule == "failure_ban"


def test_explanation_counts_nothing(harness: Harness) -> None:
    """No failure, no unit of a quota, no refused client, no session."""
    harness.limit("connects=1/1h retained_messages=1")

    for _ in range(20):
        connect_steps(harness, is_persistent=True)
        connect_steps(harness, name="nobody")
        publish_steps(harness, "a/b", is_retained=True)
        subscribe_steps(harness, "a/b")

    assert harness.recorder.refusals == []
    assert harness.recorder.causes == []
    assert harness.connection_log.rejected.without_tenant() == []
    assert harness.used(Quota.CONNECTIONS) == harness.used(Quota.SESSIONS) == harness.used(Quota.SUBSCRIPTIONS) == 0
    harness.join()


def test_plug_in_that_decides_is_named(make_harness: Any) -> None:
    harness = make_harness(hooks=plugged(authorise=lambda _client, _action, topic: topic == "a/b"))

    assert is_allowed(publish_steps(harness, "a/b"))
    refused = publish_steps(harness, "a/c")
    assert (is_allowed(refused), "plug-in" in refused[-1].reason) == (False, True)


def test_rules_that_do_not_match_are_shown_before_the_deciding_one(harness: Harness) -> None:
    deny = Rule(Scope.DEVICE, "dev1", Effect.DENY, Action.PUBLISH, "x/#")
    harness.accounts.add(TenantRecord(7, "acme", rules=(EVERYTHING,)), device("dev1", rules=(deny,)))
    harness.hub.authenticator.invalidate_all()

    steps = [step for step in publish_steps(harness, "a/b") if step.name == "acl"]

    assert [step.outcome for step in steps] == [Outcome.NO_MATCH, Outcome.PASSED]
    assert steps[0].reason == "deny device dev1 to publish x/#"


def test_retained_message_beyond_its_quota_is_explained(harness: Harness) -> None:
    harness.limit("retained_messages=1")
    client = harness.join("c")
    client.publish("a/b", b"x", qos=1, packet_id=1, retain=True)

    assert is_allowed(publish_steps(harness, "a/b", size=1, is_retained=True))
    assert publish_steps(harness, "a/c", size=1, is_retained=True)[-1].rule == "quota_retained_messages"


@pytest.mark.parametrize(("has_certificate", "rule"), [(False, "wrong_certificate"), (True, "")])
def test_device_with_a_certificate_needs_tls(harness: Harness, has_certificate: bool, rule: str) -> None:
    harness.accounts.add(
        TenantRecord(7, "acme", rules=(EVERYTHING,)), DeviceRecord("dev1", "CN=x", CredentialKind.X509)
    )
    harness.hub.authenticator.invalidate_all()
    asked = WouldConnect("acme", "dev1", "c", "192.0.2.1", has_certificate=has_certificate, is_persistent=False)

    assert now(Explain(harness.hub).connect(asked))[-1].rule == rule


def test_hub_answers_with_each_step(harness: Harness) -> None:
    sent: list[Any] = []

    class Asker:
        async def rows(self, rows: Any) -> None:
            sent.extend(rows)

    async def nothing_to_apply() -> None:
        return None

    verbs = AdminExplain(harness.hub, nothing_to_apply, 5).verbs
    asked = Request(Verb.EXPLAIN_SUBSCRIBE, "acme", {"device": "dev1", "client_id": "c", "filter": "a/#", "qos": 1})

    assert now(answer_with(verbs, asked, Asker())) == {}
    assert {row["node"] for row in sent} == {5}
    assert [row["outcome"] for row in sent if row["step"] == "acl"] == ["pass"]
    with pytest.raises(ConfigError, match="qos"):
        now(answer_with(verbs, Request(asked.verb, "acme", {**asked.argument, "qos": 3}), Asker()))
