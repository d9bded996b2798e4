"""The index of retained topics: matching, versions, loading beside live news, slices."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from iothub.engine.message import Message
from iothub_services.retained.index import RetainedEntry, RetainedIndex, remembered
from iothub_services.retained.port import RetainedTopic

ALL = 1 << 30


def line(topic: bytes, version: int = 1, expires_at_ms: int = 0, size: int = 10) -> RetainedTopic:
    return RetainedTopic(topic, version, expires_at_ms, size)


def filled(*topics: bytes) -> RetainedIndex:
    index = RetainedIndex()
    index.load(line(topic) for topic in topics)
    return index


def found(index: RetainedIndex, topic_filter: bytes, now_ms: int = 0) -> set[bytes]:
    return {entry.topic for entry in index.match(topic_filter).next_entries(now_ms, ALL, ALL, ALL)}


def reference(topic_filter: bytes, topic: bytes) -> bool:
    """MQTT §4.7, word by word."""
    wanted, levels = topic_filter.split(b"/"), topic.split(b"/")
    if levels[0].startswith(b"$") and wanted[0] in (b"+", b"#"):
        return False
    for position, level in enumerate(wanted):
        if level == b"#":
            return True
        if position >= len(levels) or level not in (b"+", levels[position]):
            return False
    return len(wanted) == len(levels)


@pytest.mark.parametrize(
    ("topic_filter", "expected"),
    [
        (b"sport", {b"sport"}),
        (b"sport/#", {b"sport", b"sport/a", b"sport/a/b"}),
        (b"sport/+", {b"sport/a"}),
        (b"+/a/#", {b"sport/a", b"sport/a/b"}),
        (b"#", {b"sport", b"sport/a", b"sport/a/b", b"/x"}),
        (b"+", {b"sport"}),
        (b"/+", {b"/x"}),
        (b"+/+", {b"sport/a", b"/x"}),
        (b"$SYS/#", {b"$SYS/x"}),
        (b"$SYS/+", {b"$SYS/x"}),
        (b"none/#", set()),
    ],
)
def test_index_matches_as_the_specification_says(topic_filter: bytes, expected: set[bytes]) -> None:
    """Wildcards at the first level match no topic that begins with "$" [MQTT-4.7.2-1]; "#" matches the parent too."""
    index = filled(b"sport", b"sport/a", b"sport/a/b", b"/x", b"$SYS/x")

    assert found(index, topic_filter) == expected


levels = st.sampled_from([b"", b"a", b"b", b"$s", b"$"])
topics = st.lists(levels, min_size=1, max_size=4).map(b"/".join)
filters = st.tuples(
    st.lists(levels | st.just(b"+"), min_size=0, max_size=4), st.sampled_from([[], [b"#"], [b"+"]])
).map(lambda parts: b"/".join([*parts[0], *parts[1]]) or b"+")


@settings(max_examples=200, deadline=None)
@given(st.lists(topics, max_size=12), filters)
def test_index_agrees_with_the_reference_matcher(stored: list[bytes], topic_filter: bytes) -> None:
    """Any topics, any filter."""
    assert found(filled(*stored), topic_filter) == {topic for topic in stored if reference(topic_filter, topic)}


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(topics, st.booleans(), st.integers(0, 9)), max_size=25))
def test_index_counts_what_it_holds(changes: list[tuple[bytes, bool, int]]) -> None:
    """Additions and deletions in any order; an index that is emptied is empty."""
    index, model = filled(), {}
    for version, (topic, is_put, size) in enumerate(changes, 1):
        if is_put:
            index.put(*line(topic, version, size=size))
            model[topic] = size
        else:
            index.remove(topic, version)
            model.pop(topic, None)
        assert (index.messages, index.bytes) == (len(model), sum(model.values()))
    for topic in model:
        index.remove(topic, ALL)
    assert (index.messages, index.bytes, index.root.children) == (0, 0, None)


def test_index_ignores_news_that_are_older_than_what_it_has() -> None:
    """Versions decide, never the order of arrival."""
    index = filled()
    index.put(*line(b"a", 5, size=1))
    index.put(*line(b"a", 4, size=9))
    index.remove(b"a", 4)

    entry = index.get(b"a")
    assert entry is not None
    assert (entry.topic, entry.version, entry.expires_at_ms, entry.size) == line(b"a", 5, size=1)
    index.remove(b"a", 5)
    assert index.get(b"a") is None
    assert index.get(b"a/b") is None


def test_index_is_loaded_beside_live_news() -> None:
    """What was put or deleted while the store was read is newer than what it read."""
    index = RetainedIndex()
    index.noted(b"new", 9, 0, 5)
    index.noted(b"gone", 8, 0, 0)
    index.noted(b"replaced", 7, 0, 5)

    index.load([line(b"gone", 3), line(b"replaced", 2), line(b"kept", 1)])

    assert {entry.topic: entry.version for entry in index.match(b"#").next_entries(0, ALL, ALL, ALL)} == {
        b"new": 9,
        b"replaced": 7,
        b"kept": 1,
    }


def test_index_leaves_expired_messages_out() -> None:
    """From the millisecond on at which they expire."""
    index = filled()
    index.put(*line(b"a", 1, expires_at_ms=100))
    index.put(*line(b"b", 2))

    assert found(index, b"+", 99) == {b"a", b"b"}
    assert found(index, b"+", 100) == {b"b"}


def test_index_is_walked_in_slices_while_it_changes() -> None:
    """At most so many nodes at a time; what is deleted meanwhile is not found, nothing is found twice."""
    index = filled(*(b"t/%03d" % number for number in range(100)))
    matches = index.match(b"t/+")
    first = matches.next_entries(0, 32, ALL, ALL)
    assert 0 < len(first) <= 32
    assert not matches.is_done
    for number in range(100):
        index.remove(b"t/%03d" % number, ALL)
    index.put(*line(b"t/new", ALL + 1))

    assert matches.next_entries(0, ALL, ALL, ALL) == []
    assert matches.is_done
    assert {entry.topic for entry in index.match(b"#").next_entries(0, ALL, ALL, ALL)} == {b"t/new"}


def test_page_has_so_many_entries_of_so_many_bytes() -> None:
    """An entry that does not fit begins the next page; one that is greater than a page comes alone."""
    index = filled()
    for number, size in enumerate((5, 30, 4, 6, 5)):  # the last one is visited first
        index.put(*line(b"t/%d" % number, 1, size=size))
    matches = index.match(b"t/+")
    pages = []
    while not matches.is_done:
        pages.append([entry.size for entry in matches.next_entries(0, ALL, 2, 10)])

    assert pages == [[5], [6, 4], [30], [5]]


@pytest.mark.parametrize("is_replaced", [True, False])
def test_entry_that_waits_for_the_next_page_is_as_the_index_has_it_then(is_replaced: bool) -> None:
    index = filled(b"t/0", b"t/1")
    matches = index.match(b"t/#")
    assert [entry.topic for entry in matches.next_entries(0, ALL, ALL, 10)] == [b"t/1"]
    if is_replaced:
        index.put(*line(b"t/0", 2))
    else:
        index.remove(b"t/0", 1)

    assert [entry.version for entry in matches.next_entries(0, ALL, ALL, 10)] == [2] * is_replaced
    assert matches.is_done


def test_what_goes_is_returned() -> None:
    """An entry that is replaced, removed or renewed; a renewed one has the same numbers, and what was found before is not it."""
    index = filled()
    assert index.put(*line(b"a", 1)) is None
    first = index.get(b"a")
    assert index.put(*line(b"a", 1)) is None
    assert index.get(b"a") is first
    assert index.noted(b"a", 2, 0, 7) is first
    second = index.get(b"a")

    assert index.renew(b"a") is second
    third = index.get(b"a")
    assert third is not None
    assert third is not second
    assert (third.version, third.size, index.messages, index.bytes) == (2, 7, 1, 7)
    assert index.remove(b"a", 1) is None
    assert index.noted(b"a", 2, 0, 0) is third
    assert (index.remove(b"a", 3), index.renew(b"a")) == (None, None)


def test_remembered_messages_are_all_or_none() -> None:
    """Those that have expired are left out, to the second's fraction."""
    entries = [RetainedEntry(b"t/%d" % number, 1, 0, 1) for number in range(3)]
    for entry, expires_at in zip(entries, (0.0, 5.0, 5.5), strict=True):
        assert remembered(entries, 5.0) is None
        entry.message = Message(b"t", b"x", expires_at=expires_at)

    assert remembered(entries, 5.0) == [entries[0].message, entries[2].message]
    assert remembered([], 0.0) == []


@pytest.mark.parametrize("topic_filter", [b"#", b"a/+", b"+/1"])
def test_entry_that_is_renewed_is_found_by_a_match_that_is_under_way(topic_filter: bytes) -> None:
    """Its node is the only one on its way, and the match has been at its parent."""
    index = filled(b"a/1", b"b/1", b"a/0")
    matches = index.match(topic_filter)
    first = {entry.topic for entry in matches.next_entries(0, ALL, 1, ALL)}

    old = {topic: index.renew(topic) for topic in (b"a/1", b"b/1", b"a/0")}

    rest = matches.next_entries(0, ALL, ALL, ALL)
    assert first | {entry.topic for entry in rest} == {t for t in old if reference(topic_filter, t)}
    assert all(entry is not old[entry.topic] for entry in rest)
    assert (index.messages, index.bytes) == (3, 30)
