"""The cache of answers."""

from __future__ import annotations

from iothub.testing.clock import ManualClock
from iothub_services.auth.lru import MISSING, Lru, LruSettings


def cache(clock: ManualClock, entries: int = 3, uniform: float = 0.0) -> Lru[str, int]:
    settings = LruSettings(entries=entries, ttl_s=60.0, negative_ttl_s=10.0, jitter=0.5)
    return Lru(settings, clock, lambda: uniform)


def test_lru_returns_what_was_put_until_it_is_too_old() -> None:
    """Every answer has an age, used or not."""
    clock = ManualClock()
    lru = cache(clock)
    lru.put("a", 1)

    clock.advance(59.9)
    assert lru.get("a") == 1
    clock.advance(0.2)
    assert lru.get("a") is MISSING
    assert (lru.hits, lru.misses) == (1, 1)


def test_lru_keeps_an_answer_no_longer_than_it_is_told() -> None:
    """One that is old already; its own age is not made longer by it."""
    clock = ManualClock()
    lru = cache(clock)
    lru.put("a", 1, 5.0)
    lru.put("b", 1, 500.0)

    clock.advance(5.0)
    assert lru.get("a") is MISSING
    clock.advance(56.0)
    assert lru.get("b") is MISSING


def test_lru_keeps_negative_answers_for_a_shorter_time() -> None:
    """None is an answer; a device that was just created is found soon."""
    clock = ManualClock()
    lru = cache(clock)
    lru.put("a", None)

    assert lru.get("a") is None
    clock.advance(10.0)
    assert lru.get("a") is MISSING


def test_lru_drops_the_least_recently_used() -> None:
    """Never more than its bound."""
    lru = cache(ManualClock())
    for name in "abc":
        lru.put(name, 1)
    lru.get("a")
    lru.put("d", 1)

    assert lru.get("b") is MISSING
    assert lru.get("a") == 1
    assert len(lru) == 3


def test_lru_shortens_ages_by_jitter() -> None:
    """A fleet that came at once does not expire at once."""
    clock = ManualClock()
    lru = cache(clock, uniform=1.0)
    lru.put("a", 1)

    clock.advance(30.0)
    assert lru.get("a") is MISSING


def test_lru_holds_other_bounds_at_once() -> None:
    """A reload: the least recently used go, the others get no older than a new one may; longer ages are for new answers."""
    clock = ManualClock()
    lru = cache(clock)
    for name in "abc":
        lru.put(name, 1)

    lru.apply(LruSettings(entries=2, ttl_s=5.0, jitter=0.0))
    assert lru.get("a") is MISSING
    clock.advance(4.0)
    assert (lru.get("b"), len(lru)) == (1, 2)

    lru.apply(LruSettings(entries=3, ttl_s=500.0, jitter=0.0))
    lru.put("d", 1)
    clock.advance(1.0)
    assert (lru.get("b"), lru.get("d")) == (MISSING, 1)


def test_lru_forgets_one_and_all() -> None:
    """For changes by people."""
    lru = cache(ManualClock())
    lru.put("a", 1)
    lru.put("b", 2)
    lru.forget("a")
    lru.forget("a")

    assert lru.get("a") is MISSING
    assert lru.get("b") == 2
    lru.clear()
    assert len(lru) == 0


def test_lru_peek_is_no_use() -> None:
    """Neither does it count, nor does it keep an answer from being dropped; an old answer is an answer."""
    clock = ManualClock()
    lru = cache(clock, entries=2)
    lru.put("a", 1)
    lru.put("b", 2)
    clock.advance(100.0)

    assert (lru.peek("a"), lru.peek("c")) == (1, MISSING)
    lru.put("c", 3)
    assert (lru.peek("a"), lru.peek("b")) == (MISSING, 2)
    assert (lru.hits, lru.misses) == (0, 0)
