"""`iothub acl test`: what would be decided, and by which rule."""

from __future__ import annotations

import pytest

from tests.support.in_process.command import Cli


def test_deciding_rule_is_shown(acme: Cli) -> None:
    acme("acl", "deny", "acme", "dev1", "publish", "config/#")
    denied = acme("acl", "test", "acme", "dev1", "publish", "config/x", "-o", "json", code=5).json
    allowed = acme("acl", "test", "acme", "dev1", "publish", "rooms/1", "-o", "json").json

    assert (denied["is_allowed"], denied["rule"]["effect"], denied["rule"]["filter"]) == (False, "deny", "config/#")
    assert (allowed["is_allowed"], allowed["rule"]["subject"], allowed["rule"]["filter"]) == (True, "*", "#")


def test_table_tells_the_rule_in_words(acme: Cli) -> None:
    assert "allow * to both #" in acme("acl", "test", "acme", "dev1", "publish", "rooms/1").out


def test_rule_of_a_group_is_found_by_its_number(acme: Cli) -> None:
    acme("group", "create", "acme", "workers")
    acme("group", "join", "acme", "workers", "dev1")
    rule = acme("acl", "deny", "acme", "@workers", "subscribe", "jobs/#", "-o", "json").json
    shown = acme("acl", "test", "acme", "dev1", "subscribe", "$share/g/jobs/#", "-o", "json", code=5).json

    assert shown["rule"]["number"] == rule["number"]


def test_nothing_that_matches_is_denied(cli: Cli) -> None:
    cli("tenant", "create", "shut", "--closed")
    cli("device", "create", "shut", "dev1")
    shown = cli("acl", "test", "shut", "dev1", "publish", "a", "-o", "json", code=5).json

    assert (shown["rule"], shown["reason"]) == (None, "no rule matches, and what is not allowed is denied")


def test_template_stands_for_the_client_id(cli: Cli) -> None:
    cli("tenant", "create", "shut", "--closed")
    cli("device", "create", "shut", "dev1")
    cli("acl", "allow", "shut", "*", "publish", "c/{clientid}")

    cli("acl", "test", "shut", "dev1", "publish", "c/dev1")
    cli("acl", "test", "shut", "dev1", "publish", "c/other", code=5)
    cli("acl", "test", "shut", "dev1", "publish", "c/other", "--client-id", "other")


def test_hubs_own_topics_open_by_a_rule_that_names_them(acme: Cli) -> None:
    acme("acl", "test", "acme", "dev1", "subscribe", "$SYS/tenant/#", code=5)
    acme("acl", "allow", "acme", "*", "both", "$SYS/#")

    acme("acl", "test", "acme", "dev1", "subscribe", "$SYS/tenant/#")
    acme("acl", "test", "acme", "dev1", "publish", "$SYS/tenant/x", code=5)


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("acme", "dev1", "publish", "a/#"), 2),
        (("acme", "dev1", "publish", ""), 2),
        (("acme", "dev1", "subscribe", "a/#/b"), 2),
        (("acme", "dev1", "listen", "a"), 2),
        (("acme", "dev9", "publish", "a"), 3),
        (("nobody", "dev1", "publish", "a"), 3),
    ],
)
def test_wrong_question_has_its_exit_code(acme: Cli, words: tuple[str, ...], code: int) -> None:
    assert acme("acl", "test", *words, code=code).out == ""
