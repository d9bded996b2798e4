"""Every refused CONNECT, every connect and disconnect has one line in the log with the rule that decided; the client learns no more than before."""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from contextlib import suppress
from typing import Any

import pytest
from structlog.testing import capture_logs

from iothub.base.reasons import Reason
from iothub.config.sections import Auth, Config, Mqtt
from iothub_services.auth.port import Action, Ban, BanKind, ClientIdPolicy, Effect, Rule, Scope, TenantRecord
from iothub_services.auth.port import TenantState as State
from iothub_services.connections.rejected import Rejected
from tests.support.in_process.control_harness import EVERYTHING, Harness, plugged

NO_WILLS = Rule(Scope.TENANT, "", Effect.DENY, Action.PUBLISH, "w/#")


def tenant(harness: Harness, **options: Any) -> None:
    harness.accounts.add(TenantRecord(7, "acme", **{"rules": (EVERYTHING,), **options}))


def lines_of(harness: Harness, act: Callable[[], object]) -> list[MutableMapping[str, Any]]:
    harness.connection_log.write()
    with capture_logs() as lines:
        act()
        harness.connection_log.write()
    return lines


def rule_of(harness: Harness, **options: Any) -> str:
    """The rule of the one line of a refused CONNECT, which is the rule in memory too."""
    (line,) = lines_of(harness, lambda: harness.ask(**options))
    assert line["event"] == "client refused"
    assert line["reason"]
    kept = [*harness.connection_log.rejected.of_tenant(7, "acme"), *harness.connection_log.rejected.without_tenant()]
    assert kept[-1].rule == line["rule"]
    return str(line["rule"])


@pytest.mark.parametrize(
    ("username", "password", "rule"),
    [
        ("acme/dev1", "wrong", "wrong_secret"),
        ("acme/nobody", "secret", "unknown_device"),
        ("nowhere/dev1", "secret", "unknown_tenant"),
        ("dev1", "secret", "malformed_username"),
    ],
)
def test_login_that_fails_names_its_rule(harness: Harness, username: str, password: str, rule: str) -> None:
    assert rule_of(harness, username=username, password=password) == rule


@pytest.mark.parametrize(
    ("options", "rule"),
    [
        ({"state": State.SUSPENDED}, "tenant_suspended"),
        ({"bans": (Ban(BanKind.DEVICE, "dev1"),)}, "banned"),
        ({"client_id_policy": ClientIdPolicy.EQUAL}, "client_id_policy_equal"),
        ({"rules": (NO_WILLS,)}, "will_topic_denied"),
    ],
)
def test_rule_of_the_tenant_is_named(harness: Harness, options: dict[str, Any], rule: str) -> None:
    tenant(harness, **options)

    assert rule_of(harness, will=("w/x", b"", 0, False)) == rule


def test_client_id_of_another_device_is_named(harness: Harness) -> None:
    harness.join("c")

    assert rule_of(harness, client_id="c", username="acme/dev2") == "client_id_of_another_device"


@pytest.mark.parametrize(
    ("limit", "rule"),
    [
        ("connections=0", "quota_connections"),
        ("connects=1/1h", "quota_connects"),
        ("packet_bytes=64", "quota_packet_bytes"),
    ],
)
def test_quota_is_named(harness: Harness, limit: str, rule: str) -> None:
    harness.limit(limit)
    if "connects=" in limit:
        harness.ask("first")

    assert rule_of(harness, client_id="c" * 50) == rule


def test_version_that_is_switched_off_is_named(make_harness: Callable[..., Harness]) -> None:
    harness = make_harness(settings=Config(mqtt=Mqtt(versions=("5",)), auth=Auth(failure_reply_ms=0)))

    assert rule_of(harness, version=4) == "mqtt.versions"


def test_plug_in_that_refuses_is_named(make_harness: Callable[..., Harness]) -> None:
    async def refuse(_attempt: object) -> bool:
        return False

    assert rule_of(make_harness(hooks=plugged(authenticate=refuse))) == "hook"


def test_connection_whose_first_packet_is_no_connect_has_a_line(harness: Harness) -> None:
    def speak_nonsense() -> None:
        client = harness.open_connection()
        client.send(b"\xc0\x00")
        client.expect_closed()

    (line,) = lines_of(harness, speak_nonsense)

    assert (line["event"], line["rule"], line["tenant"]) == ("client refused", "protocol_error", "")
    assert line["address"]


def test_connection_without_connect_has_a_line_when_its_time_is_over(harness: Harness) -> None:
    def wait() -> None:
        harness.open_connection()
        harness.pass_time(0.0)
        harness.pass_time(harness.hub.settings.mqtt.connect_timeout_s + 1)

    (line,) = lines_of(harness, wait)

    assert (line["event"], line["rule"]) == ("client refused", "connect_timeout")


def test_connect_while_memory_is_short_has_a_line(harness: Harness) -> None:
    harness.hub.is_short_of_memory = lambda: True

    assert rule_of(harness) == "overload"


def test_connection_that_leaves_without_a_word_is_no_refusal(harness: Harness) -> None:
    """A health check of a load balancer does nothing else."""
    assert lines_of(harness, lambda: harness.open_connection().drop()) == []


def test_connect_and_disconnect_have_a_line_each(harness: Harness) -> None:
    def come_and_go() -> None:
        harness.join("c").drop()
        harness.settle()

    come, go = lines_of(harness, come_and_go)

    who = {"tenant": "acme", "device": "dev1", "client_id": "c"}
    assert who.items() <= come.items()
    assert who.items() <= go.items()
    assert (come["event"], go["event"], go["reason"]) == ("client connected", "client disconnected", "network")


def test_client_that_is_taken_over_has_a_line_with_its_own_session(harness: Harness) -> None:
    harness.join("c")

    lines = lines_of(harness, lambda: harness.join("c"))

    assert sorted((line["event"], line.get("reason")) for line in lines) == [
        ("client connected", None),
        ("client disconnected", "taken_over"),
    ]
    assert {line["client_id"] for line in lines} == {"c"}


def test_refused_is_kept_with_its_tenant_only_if_that_exists(harness: Harness) -> None:
    for name in ("acme/nobody", "nowhere/dev1", "sesame"):
        harness.ask(username=name, password="hush")

    def shown(records: list[Rejected]) -> list[tuple[str, str]]:
        return [(each.client.tenant, each.client.device) for each in records]

    rejected = harness.connection_log.rejected
    assert shown(rejected.of_tenant(7, "acme")) == [("acme", "nobody")]
    assert shown(rejected.without_tenant()) == [("nowhere", "dev1"), ("", "")]


def test_password_and_misplaced_secret_are_nowhere(harness: Harness) -> None:
    lines = lines_of(
        harness, lambda: [harness.ask(username=name, password="hush-hush") for name in ("acme/dev1", "open-sesame")]
    )

    kept = harness.connection_log.rejected
    everything = repr((lines, kept.of_tenant(7, "acme"), kept.without_tenant()))
    assert "wrong_secret" in everything
    assert "hush" not in everything
    assert "sesame" not in everything


def test_no_connection_is_remembered_when_it_is_gone(harness: Harness) -> None:
    for name in ("acme/nobody", "acme/dev1"):
        with suppress(TimeoutError):
            harness.ask(username=name)
    harness.settle()

    assert harness.hub.answered == set()
    assert Reason.NETWORK.word not in {each.reason for each in harness.connection_log.rejected.of_tenant(7, "acme")}
