"""Topic Names and Topic Filters: form, match and cover."""

from __future__ import annotations

import pytest

from iothub.engine.filters import check_topic_filter, check_topic_name, covers, split_share, topic_matches


@pytest.mark.parametrize(
    ("filter", "topic", "is_match"),
    [
        (b"sport/tennis/player1/#", b"sport/tennis/player1", True),
        (b"sport/tennis/player1/#", b"sport/tennis/player1/ranking", True),
        (b"sport/tennis/player1/#", b"sport/tennis/player1/score/wimbledon", True),
        (b"sport/tennis/player1/#", b"sport/tennis/player10", False),
        (b"sport/#", b"sport", True),
        (b"sport/#", b"sports", False),
        (b"#", b"a", True),
        (b"#", b"/", True),
        (b"sport/tennis/+", b"sport/tennis/player1", True),
        (b"sport/tennis/+", b"sport/tennis/player1/ranking", False),
        (b"sport/+", b"sport", False),
        (b"sport/+", b"sport/", True),
        (b"+/+", b"/finance", True),
        (b"/+", b"/finance", True),
        (b"+", b"/finance", False),
        (b"+", b"", True),
        (b"+/#", b"a", True),
        (b"+/tennis/#", b"sport/tennis", True),
        (b"+/tennis/#", b"sport/golf", False),
        (b"a", b"a", True),
        (b"a", b"A", False),
        (b"a", b"a/", False),
        (b"a/", b"a", False),
        (b"a/", b"a/", True),
        (b"a//b", b"a//b", True),
        (b"a//b", b"a/b", False),
        (b"a/+/b", b"a//b", True),
        (b"a/b", b"a/bc", False),
        (b"a/bc", b"a/b", False),
        (b"a/b/c", b"a/b", False),
        (b"a/b", b"a/b/c", False),
        ("läng/+".encode(), "läng/ö".encode(), True),
    ],
)
def test_topic_matches_like_the_specifications_examples(filter: bytes, topic: bytes, is_match: bool) -> None:
    """§4.7.1 with its examples: "#" includes the parent level, "+" is one level, an empty level is a level."""
    assert topic_matches(filter, topic) is is_match


@pytest.mark.parametrize(
    ("filter", "topic", "is_match"),
    [
        (b"#", b"$SYS", False),
        (b"#", b"$SYS/uptime", False),
        (b"+/uptime", b"$SYS/uptime", False),
        (b"$SYS/#", b"$SYS/uptime", True),
        (b"$SYS/#", b"$SYS", True),
        (b"$SYS/+", b"$SYS/uptime", True),
        (b"a/+", b"a/$x", True),
        (b"a/#", b"a/$x/y", True),
    ],
)
def test_wildcards_at_the_first_level_hide_dollar_topics(filter: bytes, topic: bytes, is_match: bool) -> None:
    """[MQTT-4.7.2-1] Only the first level, only wildcards."""
    assert topic_matches(filter, topic) is is_match


@pytest.mark.parametrize(
    ("allowed", "requested", "is_covered"),
    [
        (b"#", b"#", True),
        (b"#", b"a/+/b/#", True),
        (b"+/#", b"#", True),
        (b"+/+/#", b"#", False),
        (b"+", b"#", False),
        (b"/+/#", b"/#", True),
        (b"+/+/#", b"/#", True),
        (b"/+", b"/#", False),
        (b"a/#", b"#", False),
        (b"#", b"$SYS/#", False),
        (b"+/x", b"$SYS/x", False),
        (b"$SYS/#", b"$SYS/x", True),
        (b"a/#", b"a", True),
        (b"a/#", b"a/#", True),
        (b"a/#", b"a/+", True),
        (b"a/+", b"a/#", False),
        (b"a/+/#", b"a/#", False),
        (b"a/+/#", b"a/+", True),
        (b"a/+/#", b"a/b/#", True),
        (b"a/+", b"a/b", True),
        (b"a/b", b"a/+", False),
        (b"a", b"a/#", False),
        (b"a/b", b"a/b", True),
        (b"a/b", b"a/b/", False),
        (b"a/+", b"a/", True),
        (b"+/+", b"+/+", True),
        (b"+", b"+/+", False),
    ],
)
def test_covers_means_every_topic_of_the_requested_filter(allowed: bytes, requested: bytes, is_covered: bool) -> None:
    """A SUBSCRIBE is granted only below a filter that covers it."""
    assert covers(allowed, requested) is is_covered


@pytest.mark.parametrize(
    ("filter", "parts"),
    [
        (b"a/b", (None, b"a/b")),
        (b"$share/g/a/+/#", (b"g", b"a/+/#")),
        (b"$share/g/$SYS/x", (b"g", b"$SYS/x")),
        (b"$share/g//a", (b"g", b"/a")),
        (b"$share//a", (b"", b"a")),
        (b"$share/g", (b"g", b"")),
        (b"$share/g/", (b"g", b"")),
        (b"$share/", (b"", b"")),
        (b"$share", (None, b"$share")),
        (b"$shared/g/a", (None, b"$shared/g/a")),
    ],
)
def test_split_share_takes_the_prefix_off_once(filter: bytes, parts: tuple[bytes | None, bytes]) -> None:
    """[MQTT-4.8.2-1] Group and filter; whatever is not shared is left alone."""
    assert split_share(filter) == parts


@pytest.mark.parametrize("topic", [b"a", b"/", b"a//b", b"$SYS/x", b" ", "ü/\ufeff".encode(), b"a\x01", b"x" * 100])
def test_topic_name_of_good_form_is_accepted(topic: bytes) -> None:
    """[MQTT-1.5.4-3] U+FEFF is kept, empty levels and control characters are allowed."""
    assert check_topic_name(topic, 8, 100) == 0


@pytest.mark.parametrize("topic", [b"", b"+", b"a/#", b"a+b", b"a#", b"x" * 101, b"/" * 8])
def test_topic_name_of_bad_form_or_over_a_limit_is_invalid(topic: bytes) -> None:
    """[MQTT-4.7.3-1] [MQTT-4.7.3-3] [MQTT-3.3.2-2] [MQTT-4.7.1-1] 0x90; eight levels are allowed here, and 100 bytes."""
    assert check_topic_name(topic, 8, 100) == 0x90


@pytest.mark.parametrize(
    "text", [b"a\0b", b"\0", b"\xff", b"a\xc0\x80", b"\xed\xa0\x80", b"\xf8\x88\x80\x80\x80", b"\xe2\x82"]
)
def test_bad_text_is_malformed_in_names_and_filters(text: bytes) -> None:
    """[MQTT-1.5.4-1] [MQTT-1.5.4-2] [MQTT-4.7.3-2] U+0000, over-long forms, surrogates and cut sequences: 0x81."""
    assert check_topic_name(text, 8, 100) == 0x81
    assert check_topic_filter(text, 8, 100) == 0x81
    assert check_topic_filter(b"$share/g/" + text, 8, 100) == 0x81


@pytest.mark.parametrize(
    "filter",
    [
        b"a",
        b"#",
        b"+",
        b"/",
        b"+/+",
        b"a/+/b/#",
        b"/+/#",
        b"$SYS/#",
        b"$share/g/#",
        b"$share/g//",
        b"$share/g/+/a",
        b"$share",
    ],
)
def test_topic_filter_of_good_form_is_accepted(filter: bytes) -> None:
    """[MQTT-4.7.1-1] [MQTT-4.7.1-2] Wildcards alone in their level, "#" last."""
    assert check_topic_filter(filter, 8, 100) == 0


@pytest.mark.parametrize(
    "filter",
    [
        b"",
        b"a#",
        b"#/a",
        b"a/#/b",
        b"##",
        b"/#/",
        b"a+",
        b"+a",
        b"a/b+/c",
        b"a/+b",
        b"++",
        b"a/b#",
        b"x" * 101,
        b"+/" * 8,
    ],
)
def test_topic_filter_of_bad_form_or_over_a_limit_is_invalid(filter: bytes) -> None:
    """[MQTT-4.7.3-1] [MQTT-4.7.1-1] [MQTT-4.7.1-2] 0x8F."""
    assert check_topic_filter(filter, 8, 100) == 0x8F


@pytest.mark.parametrize(
    "filter",
    [
        b"$share/",
        b"$share//a",
        b"$share/g",
        b"$share/g/",
        b"$share/+/a",
        b"$share/g#/a",
        b"$share/a+b/c",
        b"$share/g/a#",
    ],
)
def test_malformed_shared_filter_is_invalid(filter: bytes) -> None:
    """[MQTT-4.8.2-1] [MQTT-4.8.2-2] A name without "+", "#" or "/", then "/", then a Topic Filter."""
    assert check_topic_filter(filter, 8, 100) == 0x8F


def test_levels_of_a_shared_filter_count_without_the_prefix() -> None:
    """The limit is about what is matched."""
    assert check_topic_filter(b"$share/g/a/b", 2, 100) == 0
    assert check_topic_filter(b"$share/g/a/b/c", 2, 100) == 0x8F


def test_the_longest_topic_is_walked_without_recursion() -> None:
    """65,536 levels are long work for nobody, whatever is asked about them."""
    deep = b"/" * 65_534
    pluses = b"+/" * 32_766 + b"#"

    answers = [
        check_topic_name(deep, 65_536, 65_535),
        check_topic_filter(deep + b"#", 65_536, 65_535),
        check_topic_filter(pluses, 65_536, 65_535),
        check_topic_name(deep, 128, 65_535),
        check_topic_filter(deep + b"#", 128, 65_535),
    ]

    assert answers == [0, 0, 0, 0x90, 0x8F]
    assert topic_matches(deep + b"#", deep)
    assert topic_matches(pluses, deep)
    assert covers(pluses, deep + b"#")
    assert not covers(deep + b"#", pluses)
