"""The trie of wildcard filters."""

from __future__ import annotations

from typing import Any

from iothub.engine.trie import Trie


def matched(trie: Trie, topic: bytes) -> list[Any]:
    found: list[Any] = []
    trie.match(topic, found)
    return found


def test_trie_finds_what_matches_in_a_stable_order() -> None:
    """Literal levels before "+", whatever order the filters came in."""
    trie = Trie()
    for filter in (b"+/+", b"a/#", b"#", b"a/b", b"+/b", b"a/+", b"a/b/#", b"a/b/c", b"x/#"):
        trie.put(filter, filter)

    assert matched(trie, b"a/b") == [b"#", b"a/#", b"a/b", b"a/b/#", b"a/+", b"+/b", b"+/+"]


def test_trie_hides_dollar_topics_from_wildcards_at_the_first_level() -> None:
    """[MQTT-4.7.2-1] At the first level only."""
    trie = Trie()
    for filter in (b"#", b"+/a", b"$SYS/#", b"$SYS/+"):
        trie.put(filter, filter)

    assert matched(trie, b"$SYS/a") == [b"$SYS/#", b"$SYS/+"]
    assert matched(trie, b"$SYS") == [b"$SYS/#"]


def test_trie_gets_exactly_the_filter_that_was_put() -> None:
    """`get` is not `match`."""
    trie = Trie()
    trie.put(b"a/+/#", 1)
    trie.put(b"a/+", 2)

    assert [
        trie.get(b"a/+/#"),
        trie.get(b"a/+"),
        trie.get(b"a/#"),
        trie.get(b"a/b"),
        trie.get(b"x/y/z"),
        trie.get(b"+"),
    ] == [
        1,
        2,
        None,
        None,
        None,
        None,
    ]


def test_trie_is_empty_after_the_last_filter_is_removed() -> None:
    """A removed filter takes every level along that only led to it, and no other."""
    trie = Trie()
    filters = [b"a/+/b/#", b"a/+/b", b"a/#", b"+/+/+", b"+", b"#", b"a/x/+", b"b/+"]
    for filter in filters:
        trie.put(filter, filter)

    for count, filter in enumerate(filters, 1):
        trie.remove(filter)
        assert sorted(trie.values()) == sorted(filters[count:])

    assert (trie.root.children, trie.root.plus, trie.root.here, trie.root.rest) == (None, None, None, None)


def test_trie_of_65535_levels_is_built_pruned_and_dropped() -> None:
    """Nothing recurses, not even the freeing of a long chain of levels."""
    deep = b"+/" * 32_767 + b"#"
    trie = Trie()
    trie.put(deep, 1)
    trie.put(b"a/" * 32_767 + b"#", 2)
    assert matched(trie, b"a/" * 32_767) == [2, 1]

    trie.remove(deep)
    assert trie.root.plus is None
    trie.put(deep, 1)
    del trie  # must not overflow the stack

    assert matched(Trie(), deep) == []
