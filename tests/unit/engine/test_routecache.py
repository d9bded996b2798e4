"""The bounded cache in front of the router."""

from __future__ import annotations

from iothub.engine.routecache import Entry, RouteCache


def filled(entries: int, size_bytes: int, names: str, size: int = 0) -> RouteCache:
    cache = RouteCache(entries, size_bytes)
    for name in names:
        cache.put(name.encode(), Entry(size))
    return cache


def kept(cache: RouteCache) -> str:
    return "".join(sorted(topic.decode() for topic in {**cache.old, **cache.young}))


def test_cache_holds_no_more_entries_than_its_bound() -> None:
    """The oldest half goes first."""
    cache = filled(4, 1000, "abcdefg")

    assert kept(cache) == "efg"


def test_cache_holds_no_more_bytes_than_its_bound() -> None:
    """Each entry costs 10 bytes here: nine and its topic."""
    cache = filled(100, 40, "abcde", size=9)

    assert kept(cache) == "cde"
    assert cache.young_bytes + cache.old_bytes == 30


def test_cache_keeps_what_is_asked_for() -> None:
    """An entry found in the old half becomes young again."""
    cache = filled(4, 1000, "abc")
    found = cache.promote(b"a")
    cache.put(b"d", Entry(0))

    assert found is cache.young.get(b"a") or found is cache.old.get(b"a")
    assert kept(cache) == "acd"
    assert cache.promote(b"b") is None


def test_cache_without_room_answers_from_the_old_half() -> None:
    """An entry that is bigger than the room never pushes the others out by being asked for."""
    cache = filled(100, 40, "")
    big = Entry(1000)
    cache.put(b"big", big)
    cache.put(b"a", Entry(9))

    assert cache.promote(b"big") is big
    assert set(cache.young) == {b"a"}


def test_cache_forgets_in_both_halves_and_counts_right() -> None:
    """No byte stays counted."""
    cache = filled(4, 1000, "abc", size=9)

    for topic in (b"a", b"c", b"b", b"x"):
        cache.forget(topic)

    assert (kept(cache), cache.young_bytes, cache.old_bytes) == ("", 0, 0)


def test_cache_is_empty_after_clear() -> None:
    """Clearing an empty cache is nothing."""
    cache = filled(4, 1000, "abc", size=9)

    cache.clear()
    cache.clear()

    assert (kept(cache), cache.young_bytes, cache.old_bytes) == ("", 0, 0)
