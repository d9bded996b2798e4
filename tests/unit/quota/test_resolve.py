"""Plan, tenant, device: the upper layer wins, name by name."""

from __future__ import annotations

import pytest

from iothub.base.errors import ConfigError
from iothub_services.quota.grammar import Window, parse_limits, standard_limits
from iothub_services.quota.names import Kind, Quota
from iothub_services.quota.resolve import NOTHING, EffectiveLimits, explain, resolve, resolve_texts


def test_absent_names_are_unlimited() -> None:
    """0 everywhere; the two figures of the wire are its maximum."""
    limits = resolve({})

    assert limits == EffectiveLimits()
    assert limits.connections == 0
    assert (limits.receive_maximum, limits.topic_aliases) == (65_535, 65_535)
    assert not limits.rates


def test_standard_plan_gives_the_documented_figures() -> None:
    """Each kind lands where the engine and the control plane read it."""
    limits = resolve(standard_limits())

    assert (limits.connections, limits.sessions, limits.session_subscriptions) == (1000, 2000, 100)
    assert (limits.packet_bytes, limits.topic_levels, limits.receive_maximum) == (1 << 20, 128, 64)
    assert limits.session_expiry_s == 7 * 86_400
    assert limits.rates[Quota.PUBLISH_MESSAGES] == (Window(1, 500), Window(86_400, 10_000_000))
    assert Quota.DEVICE_PUBLISH_MESSAGES not in limits.rates


def test_upper_layer_wins_name_by_name() -> None:
    """Windows of one name are replaced together."""
    limits = resolve_texts(
        "connections=10 sessions=10 publish_messages=5/1s,9/1d", "connections=20 publish_messages=7/1s", "sessions=30"
    )

    assert (limits.connections, limits.sessions) == (20, 30)
    assert limits.rates[Quota.PUBLISH_MESSAGES] == (Window(1, 7),)


def test_upper_layer_can_lift_a_limit() -> None:
    """`unlimited` is said, not left out."""
    limits = resolve_texts("connections=10 publish_messages=5/1s", "connections=unlimited publish_messages=unlimited")

    assert limits.connections == 0
    assert not limits.rates


def test_limit_of_zero_is_none_at_all() -> None:
    """A count of 0 must not be read as unlimited; 0 topic aliases are 0 on the wire."""
    limits = resolve_texts("connections=0 retained_messages=0 topic_aliases=0")

    assert (limits.connections, limits.retained_messages, limits.topic_aliases) == (NOTHING, NOTHING, 0)


def test_dry_run_leaves_the_enforced_limit_in_force() -> None:
    """And the enforced one of an upper layer leaves the trial below."""
    limits = resolve_texts("publish_messages=5/1s dry-run:connections=3", "dry-run:publish_messages=2/1s connections=9")

    assert limits.rates[Quota.PUBLISH_MESSAGES] == (Window(1, 5),)
    assert limits.dry_run[Quota.PUBLISH_MESSAGES] == (Window(1, 2, is_dry_run=True),)
    assert limits.dry_run[Quota.CONNECTIONS] == (Window(0, 3, is_dry_run=True),)
    assert limits.connections == 9


def test_explain_names_the_layer() -> None:
    """What `quota explain` prints."""
    plan, tenant = parse_limits("connections=10 sessions=5"), parse_limits("connections=unlimited dry-run:sessions=2")

    by_name = {one.quota: one for one in explain(plan, tenant)}

    assert (by_name[Quota.CONNECTIONS].text, by_name[Quota.CONNECTIONS].layer) == ("unlimited", "tenant")
    assert (by_name[Quota.SESSIONS].text, by_name[Quota.SESSIONS].layer) == ("5", "plan")
    assert (by_name[Quota.SESSIONS].dry_run_text, by_name[Quota.SESSIONS].dry_run_layer) == ("2", "tenant")
    assert (by_name[Quota.FANOUT].text, by_name[Quota.FANOUT].layer) == ("unlimited", None)
    assert len(by_name) == len(Quota)


def test_every_count_and_bound_has_an_attribute() -> None:
    """A name that nobody can read would be unlimited in silence."""
    for quota in Quota:
        if quota.kind is not Kind.RATE:
            value = max(quota.least, 7 if quota is not Quota.PACKET_BYTES else 64)
            assert resolve(parse_limits(f"{quota.value}={value}")).figure(quota) == value


def test_stored_text_that_is_not_understood_is_refused() -> None:
    """A limit of a future version is not dropped in silence."""
    with pytest.raises(ConfigError):
        resolve_texts("flux_capacity=5")
