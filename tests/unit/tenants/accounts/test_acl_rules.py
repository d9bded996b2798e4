"""Access rules as they are written down: subjects, filters, order of precedence."""

from __future__ import annotations

import pytest

from iothub.base.errors import ConfigError, NotFoundError
from iothub_services.streams.port import Direction
from iothub_tenants.accounts import acl_rules, devices, groups, streams, tenants
from iothub_tenants.accounts.changes import ChangeWatcher
from iothub_tenants.accounts.store import AccountStore
from iothub_tenants.accounts.streams import Wanted


@pytest.fixture(autouse=True)
def _tenant(store: AccountStore) -> None:
    tenants.create(store, "acme", is_closed=True)
    devices.create(store, "acme", "dev1")
    groups.create(store, "acme", "sensors")


def test_rules_are_listed_in_order_of_precedence(store: AccountStore) -> None:
    """Device, group, tenant; deny before allow; the order of creation does not matter."""
    acl_rules.allow(store, "acme", "*", "both", "#")
    acl_rules.allow(store, "acme", "dev1", "publish", "a/{device}/+")
    acl_rules.deny(store, "acme", "@sensors", "subscribe", "b/#")
    acl_rules.deny(store, "acme", "dev1", "both", "c")

    listed = [
        (rule.subject, rule.effect.value, rule.action.value, rule.filter) for rule in acl_rules.list_all(store, "acme")
    ]

    assert listed == [
        ("dev1", "deny", "both", "c"),
        ("dev1", "allow", "publish", "a/{device}/+"),
        ("@sensors", "deny", "subscribe", "b/#"),
        ("*", "allow", "both", "#"),
    ]


def test_rules_that_apply_to_a_subject_are_those_it_is_judged_by(store: AccountStore) -> None:
    """A device: its own, its groups' and those of all; a group: its own and those of all; a stream: its own alone."""
    devices.create(store, "acme", "dev2")
    groups.create(store, "acme", "others")
    groups.join(store, "acme", "sensors", "dev1")
    streams.create(store, "acme", Wanted("feed", "#", Direction.IN))
    for subject in ("*", "@others", "@sensors", "dev1", "dev2", "stream:feed"):
        acl_rules.allow(store, "acme", subject, "publish", "a")

    found = {
        subject: [rule.subject for rule in acl_rules.list_applying(store, "acme", subject)]
        for subject in ("*", "@sensors", "dev1", "stream:feed")
    }

    assert found == {
        "*": ["*"],
        "@sensors": ["@sensors", "*"],
        "dev1": ["dev1", "@sensors", "*"],
        "stream:feed": ["stream:feed"],
    }


@pytest.mark.parametrize("subject", ["dev9", "@nobody", "stream:none"])
def test_rules_of_nobody_are_not_found(store: AccountStore, subject: str) -> None:
    """An empty list would look as if nothing were allowed."""
    with pytest.raises(NotFoundError):
        acl_rules.list_applying(store, "acme", subject)


def test_same_rule_twice_is_one_rule(store: AccountStore) -> None:
    """A script may be run again; the second time is no change."""
    first = acl_rules.allow(store, "acme", "dev1", "publish", "a/#")
    watcher = ChangeWatcher(store)

    assert acl_rules.allow(store, "acme", "dev1", "publish", "a/#") == first
    assert watcher.poll() == []


def test_allow_and_deny_of_the_same_are_two_rules(store: AccountStore) -> None:
    """Deny wins by precedence, not by replacing."""
    acl_rules.allow(store, "acme", "dev1", "publish", "a")
    acl_rules.deny(store, "acme", "dev1", "publish", "a")

    assert [rule.effect.value for rule in acl_rules.list_all(store, "acme")] == ["deny", "allow"]


@pytest.mark.parametrize(
    "text", ["#", "+", "/", "a", "a/b", "+/a/#", "//", "a//b", " ", "$SYS/#", "{device}", "a/{clientid}/#", "{device}/{clientid}", "a{b}", "\u00e9/+"]
)  # fmt: skip
def test_topic_filter_is_accepted(store: AccountStore, text: str) -> None:
    """[MQTT-4.7.1-1] [MQTT-4.7.1-2] [MQTT-4.7.3-1], and placeholders as whole levels."""
    assert acl_rules.allow(store, "acme", "*", "both", text).filter == text


@pytest.mark.parametrize(
    "text",
    ["", "a#", "#/a", "a/#/b", "a+", "+a/b", "a/b+/c", "a\0b", "x" * 65_536, "\ud800", "$share/g/a", "{client}",
     "a/x{device}", "a/{device}x", "{device}{clientid}"],
)  # fmt: skip
def test_malformed_topic_filter_is_refused(store: AccountStore, text: str) -> None:
    """[MQTT-4.7.1-1] [MQTT-4.7.1-2] [MQTT-4.7.3-2]: exit code 2, one printable line, nothing written."""
    with pytest.raises(ConfigError) as refusal:
        acl_rules.allow(store, "acme", "*", "both", text)

    assert str(refusal.value).isprintable()
    assert acl_rules.list_all(store, "acme") == []


def test_unknown_action_is_refused(store: AccountStore) -> None:
    """With the words that are known."""
    with pytest.raises(ConfigError, match="publish, subscribe or both"):
        acl_rules.allow(store, "acme", "*", "read", "#")


def test_subject_must_exist(store: AccountStore) -> None:
    """A rule for a misspelt device would protect nothing."""
    for subject in ("dev2", "@none"):
        with pytest.raises(NotFoundError):
            acl_rules.deny(store, "acme", subject, "publish", "a")


def test_rule_is_removed_by_number(store: AccountStore) -> None:
    """Of this tenant only."""
    tenants.create(store, "other")
    foreign = acl_rules.list_all(store, "other")[0]
    rule = acl_rules.allow(store, "acme", "*", "both", "#")

    with pytest.raises(NotFoundError, match="acl list acme"):
        acl_rules.remove(store, "acme", foreign.id)
    assert acl_rules.remove(store, "acme", rule.id) == rule
    assert acl_rules.list_all(store, "acme") == []


def test_rules_are_removed_by_what_they_say(store: AccountStore) -> None:
    """Allow and deny alike; nothing that says so is an error."""
    acl_rules.allow(store, "acme", "dev1", "publish", "a")
    acl_rules.deny(store, "acme", "dev1", "publish", "a")
    acl_rules.deny(store, "acme", "dev1", "publish", "b")

    assert len(acl_rules.remove_matching(store, "acme", "dev1", "publish", "a")) == 2
    assert [rule.filter for rule in acl_rules.list_all(store, "acme")] == ["b"]
    with pytest.raises(NotFoundError, match="no such rule"):
        acl_rules.remove_matching(store, "acme", "dev1", "publish", "a")


def test_number_of_a_removed_rule_is_not_given_again(store: AccountStore) -> None:
    """A script that removes by number never hits a newer rule."""
    first = acl_rules.allow(store, "acme", "*", "both", "a")
    acl_rules.remove(store, "acme", first.id)

    assert acl_rules.allow(store, "acme", "*", "both", "b").id > first.id
