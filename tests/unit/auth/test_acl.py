"""Precedence, templates, coverage and the `$` rule of access lists."""

from __future__ import annotations

import pytest

from iothub_services.auth.acl import CompiledPolicy, compile_policy, explain
from iothub_services.auth.port import Action, Effect, Rule, Scope

RULE_WORDS = {"allow": Effect.ALLOW, "deny": Effect.DENY}


def rules(*lines: str) -> tuple[Rule, ...]:
    """`device:dev1 deny publish a/b` ..."""
    made = []
    for line in lines:
        who, effect, action, filter = line.split(" ", 3)
        scope, _, subject = who.partition(":")
        made.append(Rule(Scope(scope), subject, RULE_WORDS[effect], Action(action), filter))
    return tuple(made)


def policy(*lines: str, client_id: str = "c1", groups: tuple[str, ...] = ("g1",)) -> CompiledPolicy:
    return compile_policy(rules(*lines), device="dev1", groups=groups, client_id=client_id, version=7)


def test_nothing_is_allowed_without_a_rule() -> None:
    """Default deny."""
    nobody = policy()

    assert not nobody.may_publish(b"a")
    assert not nobody.may_receive(b"a")
    assert not nobody.may_subscribe(b"a")
    assert not nobody.publishes_everything
    assert nobody.version == 7


def test_tenant_rule_for_everything_sets_the_fast_flags() -> None:
    """What a new tenant gets: all topics of the tenant, none of the hub's."""
    open_policy = policy("tenant allow both #")

    assert open_policy.publishes_everything
    assert open_policy.receives_everything
    assert open_policy.may_publish(b"a/b")
    assert open_policy.may_subscribe(b"#")
    assert not open_policy.may_subscribe(b"$SYS/#")
    assert not open_policy.may_receive(b"$SYS/tenant/connections")


def test_deny_comes_before_allow_within_a_scope() -> None:
    """The order of the lines does not matter."""
    mixed = policy("tenant allow both #", "tenant deny publish a/+")

    assert not mixed.may_publish(b"a/b")
    assert mixed.may_publish(b"a/b/c")
    assert mixed.may_receive(b"a/b")
    assert not mixed.publishes_everything
    assert mixed.receives_everything


def test_device_scope_decides_before_group_and_tenant() -> None:
    """The first scope with a match decides, whatever the others say."""
    layered = policy("tenant deny both #", "group:g1 allow publish a/#", "device:dev1 deny publish a/b")

    assert not layered.may_publish(b"a/b")
    assert layered.may_publish(b"a/c")
    assert not layered.may_publish(b"x")


def test_device_allow_overrules_a_denial_of_the_tenant() -> None:
    """Exceptions for one device are possible."""
    assert policy("tenant deny both a/#", "device:dev1 allow both a/b").may_publish(b"a/b")


def test_rules_of_others_do_not_concern_a_device() -> None:
    """Neither another device's nor a foreign group's."""
    others = policy("device:dev2 allow both #", "group:g2 allow both #")

    assert not others.may_publish(b"a")
    assert not others.may_subscribe(b"a")


def test_subscribe_needs_one_allow_filter_that_covers_it() -> None:
    """A wider request than any single rule is refused; narrower ones pass."""
    some = policy("tenant allow subscribe a/+/c", "tenant allow subscribe b/#")

    assert some.may_subscribe(b"a/+/c")
    assert some.may_subscribe(b"a/x/c")
    assert some.may_subscribe(b"b")
    assert some.may_subscribe(b"b/+/x/#")
    assert not some.may_subscribe(b"a/#")
    assert not some.may_subscribe(b"#")
    assert not some.may_subscribe(b"+/x")
    assert not some.may_publish(b"b/x")


def test_denial_inside_a_broad_subscription_acts_at_delivery() -> None:
    """The broad SUBSCRIBE is granted, the denied topic never received."""
    broad = policy("tenant allow subscribe #", "tenant deny subscribe secret/#")

    assert broad.may_subscribe(b"#")
    assert broad.may_receive(b"open")
    assert not broad.may_receive(b"secret")
    assert not broad.may_receive(b"secret/x")
    assert not broad.may_subscribe(b"secret/+")


def test_templates_stand_for_the_callers_names() -> None:
    """Whole levels, in any place."""
    own = policy("tenant allow both {device}/#", "tenant allow both by-id/{clientid}", client_id="c 1")

    assert own.may_publish(b"dev1/a")
    assert not own.may_publish(b"dev2/a")
    assert own.may_publish(b"by-id/c 1")
    assert not own.may_publish(b"by-id/{clientid}")


@pytest.mark.parametrize("client_id", ["+", "#", "a/b", "a/#", "+/+", "x\0", "/", "a/../b"])
def test_names_with_special_characters_match_nothing(client_id: str) -> None:
    """A Client Identifier never becomes a wildcard or a path (CVE-2017-7650)."""
    own = policy("tenant allow both up/{clientid}", client_id=client_id)

    for topic in (b"up/a", b"up/+", b"up/#", b"up", b"up/a/b", b"up/" + client_id.encode()):
        assert not own.may_publish(topic)
        assert not own.may_subscribe(topic)


def test_template_never_reaches_the_hubs_own_topics() -> None:
    """`{clientid}/#` is not a way to `$SYS` for a client that calls itself so; a denial still denies."""
    assert not policy("tenant allow both {clientid}/#", client_id="$SYS").may_subscribe(b"$SYS/#")
    assert not policy(
        "tenant allow subscribe $SYS/tenant/#", "tenant deny both {clientid}/#", client_id="$SYS"
    ).may_subscribe(b"$SYS/tenant/#")


def test_dollar_topics_are_never_publishable_and_receivable_only_by_name() -> None:
    """[MQTT-4.7.2-1]: wildcards in the first level do not match `$`; `$SYS` needs a rule that names it."""
    named = policy("tenant allow both #", "tenant allow both $SYS/tenant/#")

    assert named.may_subscribe(b"$SYS/tenant/+")
    assert named.may_receive(b"$SYS/tenant/sessions")
    assert not named.may_publish(b"$SYS/tenant/sessions")
    assert not named.may_publish(b"$control/x")
    assert not named.may_subscribe(b"$events/#")


def test_damaged_stored_rule_never_opens_a_door() -> None:
    """An unreadable denial denies everything, an unreadable permission nothing."""
    assert not policy("tenant allow both a/#/b").may_publish(b"a/x/b")
    assert not policy("tenant allow both #", "tenant deny both a/#/b").may_publish(b"z")


def test_rule_may_be_as_long_as_a_topic_filter() -> None:
    """65,535 bytes, which may all be `/`; a longer one is damage."""
    longest = "/" * 65_535

    assert not policy("tenant allow both #", f"tenant deny both {longest}").may_publish(longest.encode())
    assert policy("tenant allow both #", f"tenant deny both {longest}").may_publish(b"z")
    assert not policy("tenant allow both #", f"tenant deny both {longest}/").may_publish(b"z")


def test_empty_name_in_a_template_matches_nothing() -> None:
    """An empty Client Identifier does not turn a denial of its own topic into a denial of everything."""
    assert policy("tenant allow both #", "tenant deny both {clientid}", client_id="").may_publish(b"a")


def test_explain_names_the_deciding_rule() -> None:
    """What `acl test` prints."""
    known = rules("tenant allow both #", "group:g1 deny publish a/#", "device:dev1 allow publish a/b")

    def asked(action: Action, topic: str) -> tuple[bool, Rule | None]:
        decision = explain(known, device="dev1", groups=("g1",), client_id="c", action=action, topic=topic)
        return decision.is_allowed, decision.rule

    assert asked(Action.PUBLISH, "a/b") == (True, known[2])
    assert asked(Action.PUBLISH, "a/c") == (False, known[1])
    assert asked(Action.SUBSCRIBE, "a/#") == (True, known[0])
    assert asked(Action.PUBLISH, "$SYS/x") == (False, None)
    assert asked(Action.SUBSCRIBE, "$SYS/x") == (False, None)


def test_explain_knows_that_no_rule_lets_a_client_publish_for_the_hub() -> None:
    """A rule that names `$...` is one for receiving: the explanation says the same as the decision."""
    known = rules("tenant allow both $SYS/#")

    def asked(action: Action) -> tuple[bool, Rule | None]:
        decision = explain(known, device="dev1", groups=(), client_id="c", action=action, topic="$SYS/x")
        return decision.is_allowed, decision.rule

    assert asked(Action.PUBLISH) == (False, None)
    assert asked(Action.SUBSCRIBE) == (True, known[0])
