"""Filters against the specification written down naively: matching by recursion over levels, covering by brute force."""

from __future__ import annotations

from itertools import product

from hypothesis import given, settings
from hypothesis import strategies as st

from iothub.engine.filters import check_topic_filter, check_topic_name, covers, split_share, topic_matches
from tests.support.night import by_day

LEVELS = (b"", b"a", b"$s")
TOPICS = [
    topic
    for depth in (1, 2, 3, 4)
    for levels in product((*LEVELS, b"other"), repeat=depth)
    if (topic := b"/".join(levels))  # an empty Topic Name does not exist
]


def filters(depth: int) -> list[bytes]:
    """Return every valid filter of up to `depth` levels over the small alphabet."""
    found = []
    for count in range(1, depth + 1):
        for levels in product((*LEVELS, b"+"), repeat=count):
            found.append(b"/".join(levels))
        for levels in product((*LEVELS, b"+"), repeat=count - 1):
            found.append(b"/".join((*levels, b"#")))
    return [filter for filter in found if filter]


def matches(filter: list[bytes], topic: list[bytes]) -> bool:
    """Follow §4.7.1 level by level."""
    if not filter:
        return not topic
    if filter[0] == b"#":
        return True
    if not topic:
        return False
    return filter[0] in (b"+", topic[0]) and (
        matches(filter[1:], topic[1:]) or (not topic[1:] and filter[1:] == [b"#"])
    )


def reference(filter: bytes, topic: bytes) -> bool:
    if topic.startswith(b"$") and filter[:1] in (b"#", b"+"):  # [MQTT-4.7.2-1]
        return False
    return matches(filter.split(b"/"), topic.split(b"/"))


def test_topic_matches_equals_the_reference_on_every_small_filter() -> None:
    """§4.7: exhaustive over three level words, empty levels and "$" included."""
    for filter in filters(3):
        for topic in TOPICS:
            assert topic_matches(filter, topic) is reference(filter, topic), (filter, topic)


def test_covers_is_sound_and_complete_on_every_small_pair() -> None:
    """`covers` says yes exactly when no topic is matched by the requested filter alone.

    Topics one level deeper than any filter, with a word that is in no filter, stand for all topics.
    """
    sets = {filter: frozenset(topic for topic in TOPICS if reference(filter, topic)) for filter in filters(3)}
    for allowed, requested in product(sets, repeat=2):
        assert covers(allowed, requested) is (sets[requested] <= sets[allowed]), (allowed, requested)


words = st.sampled_from(["", "a", "b", "+", "#", "$SYS", "$share", "ü", "a+", "\0", "\ufeff"])
texts = st.lists(words, max_size=6).map(lambda levels: "/".join(levels).encode())


def is_good_filter(text: bytes) -> bool:
    """Write [MQTT-4.7.1-1] [MQTT-4.7.1-2] [MQTT-4.8.2-1] [MQTT-4.8.2-2] down level by level."""
    levels = text.split(b"/")
    if levels[0] == b"$share" and len(levels) > 1:
        if not levels[1] or b"+" in levels[1] or b"#" in levels[1] or len(levels) == 2:
            return False
        levels = levels[2:]
    if levels == [b""]:
        return False
    return (
        all(level in (b"+", b"#") or (b"+" not in level and b"#" not in level) for level in levels)
        and b"#" not in levels[:-1]
    )


@settings(max_examples=by_day(150, 300))
@given(texts)
def test_check_topic_filter_agrees_with_the_rules_level_by_level(text: bytes) -> None:
    """Good, invalid, malformed; and what is good splits into a group and a good filter."""
    code = check_topic_filter(text, 128, 4096)

    assert code == (0x81 if b"\0" in text else 0 if is_good_filter(text) else 0x8F)
    if code == 0:
        group, inner = split_share(text)
        assert inner
        assert text == (inner if group is None else b"$share/" + group + b"/" + inner)


@settings(max_examples=by_day(150, 300))
@given(st.one_of(st.binary(max_size=12), texts), st.integers(1, 4), st.integers(0, 12))
def test_checks_answer_any_bytes_with_a_code(text: bytes, max_levels: int, max_bytes: int) -> None:
    """Never an exception; 0 only for text within all limits."""
    for check in (check_topic_name, check_topic_filter):
        code = check(text, max_levels, max_bytes)
        assert code in (0, 0x81, 0x90, 0x8F)
        if code == 0:
            assert 0 < len(text) <= max_bytes
            assert "\0" not in text.decode()
    if check_topic_name(text, max_levels, max_bytes) == 0:
        assert check_topic_filter(text, max_levels, max_bytes) in (0, 0x8F)
        assert text.count(b"/") < max_levels
