"""The contract suite of the retained port, as functions that take a fresh store.

Knows no driver: `tests/contract` runs `CASES` over all of them.
"""

# ruff: noqa: S101 - assertions are what a contract is made of

from __future__ import annotations

from collections.abc import Callable

from iothub_services.retained.port import RetainedBody, RetainedStore, RetainedTopic, RetainedUsage, RetainedWrite

Case = Callable[[RetainedStore], None]


def put_replaces_and_versions_rise(store: RetainedStore) -> None:
    """One message per topic; bodies and expiry come back as given."""
    assert store.put([RetainedWrite(1, b"a/b", b"one", 5), RetainedWrite(1, b"c", b"two")]) == [1, 2]
    assert store.put([RetainedWrite(1, b"a/b", b"three", 9)]) == [3]

    assert store.fetch(1, [b"c", b"a/b", b"x"]) == [
        RetainedBody(b"c", 2, 0, b"two"),
        RetainedBody(b"a/b", 3, 9, b"three"),
    ]


def load_lists_the_topics_in_order(store: RetainedStore) -> None:
    """More of them than fit a page of the driver; bytes, not text."""
    topics = sorted(b"t/%d/\xc3\xa9" % number for number in range(1_201))
    store.put([RetainedWrite(1, topic, b"12") for topic in topics])

    loaded = list(store.load(1))

    assert [line.topic for line in loaded] == topics
    assert loaded[0] == RetainedTopic(topics[0], 1, 0, 2)


def load_goes_on_after_a_topic(store: RetainedStore) -> None:
    """Whether that topic has a message or not."""
    store.put([RetainedWrite(tenant, topic, b"x") for tenant in (1, 2) for topic in (b"a", b"a/b", b"b")])

    for after, topics in ((b"a", [b"a/b", b"b"]), (b"a/a", [b"a/b", b"b"]), (b"b", [])):
        assert [line.topic for line in store.load(1, after)] == topics


def versions_go_on_after_deletion(store: RetainedStore) -> None:
    """The counter outlives every message: caches compare versions, so a version that restarts would leave an old message in them."""
    store.put([RetainedWrite(1, b"a", b"x")])
    assert store.put([RetainedWrite(1, b"a", None)]) == [2]
    assert store.fetch(1, [b"a"]) == []
    assert store.put([RetainedWrite(1, b"a", b"y")]) == [3]
    assert store.delete(1, [b"a", b"unknown"]) == 1
    assert store.put([RetainedWrite(1, b"a", b"z")]) == [5]


def deleting_what_is_not_there_takes_a_version_and_does_no_harm(store: RetainedStore) -> None:
    """An empty retained PUBLISH for a topic without one."""
    assert store.put([RetainedWrite(1, b"a", None)]) == [1]
    assert store.usage(1) == RetainedUsage(0, 0)


def tenants_share_nothing(store: RetainedStore) -> None:
    """The same topic in two tenants: contents, versions, usage and deletion are apart."""
    assert store.put([RetainedWrite(1, b"a", b"one"), RetainedWrite(2, b"a", b"other")]) == [1, 1]

    assert store.drop_tenant(1) == 1
    assert store.drop_tenant(1) == 0
    assert (list(store.load(1)), store.fetch(1, [b"a"])) == ([], [])
    assert store.fetch(2, [b"a"]) == [RetainedBody(b"a", 1, 0, b"other")]


def usage_counts_messages_and_bytes(store: RetainedStore) -> None:
    """Replaced and deleted ones leave it."""
    store.put([RetainedWrite(1, b"a", b"123"), RetainedWrite(1, b"b", b"12"), RetainedWrite(1, b"a", b"1")])
    assert store.usage(1) == RetainedUsage(2, 3)
    store.delete(1, [b"b"])
    assert store.usage(1) == RetainedUsage(1, 1)
    assert store.usage(9) == RetainedUsage(0, 0)


def expire_deletes_what_is_due(store: RetainedStore) -> None:
    """At most `count`, of all tenants; 0 means never."""
    store.put([RetainedWrite(1, b"a", b"x", 10), RetainedWrite(2, b"b", b"x", 20), RetainedWrite(1, b"c", b"x")])

    assert store.expire(9, 10) == []
    assert store.expire(10, 10) == [(1, b"a")]
    store.put([RetainedWrite(1, b"a", b"x", 10)])
    assert len(store.expire(99, 1)) == 1
    assert len(store.expire(99, 9)) == 1
    assert store.usage(1) == RetainedUsage(1, 1)


def group_is_one_commit(store: RetainedStore) -> None:
    """Everything inside is there after it."""
    with store.group():
        store.put([RetainedWrite(1, b"a", b"x")])
        store.put([RetainedWrite(1, b"b", b"x")])

    assert store.usage(1) == RetainedUsage(2, 2)


def damaged_body_is_kept_until_it_is_replaced_or_deleted(store: RetainedStore) -> None:
    """A store takes bodies for bytes: it lists, fetches and deletes what nobody can decode like any other."""
    store.put([RetainedWrite(1, topic, b"\xffdamaged") for topic in (b"a", b"b")])

    assert list(store.load(1)) == [RetainedTopic(b"a", 1, 0, 8), RetainedTopic(b"b", 2, 0, 8)]
    assert store.fetch(1, [b"a"]) == [RetainedBody(b"a", 1, 0, b"\xffdamaged")]
    store.put([RetainedWrite(1, b"a", b"new")])
    assert store.delete(1, [b"b"]) == 1
    assert store.fetch(1, [b"a", b"b"]) == [RetainedBody(b"a", 3, 0, b"new")]


CASES: tuple[Case, ...] = (
    put_replaces_and_versions_rise,
    load_lists_the_topics_in_order,
    load_goes_on_after_a_topic,
    versions_go_on_after_deletion,
    deleting_what_is_not_there_takes_a_version_and_does_no_harm,
    tenants_share_nothing,
    usage_counts_messages_and_bytes,
    expire_deletes_what_is_due,
    group_is_one_commit,
    damaged_body_is_kept_until_it_is_replaced_or_deleted,
)
