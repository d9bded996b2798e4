# cython: annotation_typing=False
"""Topic Names and Topic Filters as bytes: is it well formed, does it match, does one filter cover another.

Knows no subscriptions, no sessions and no tenants. Every function passes once over the bytes: nothing recurses,
nothing is split, and no regular expression is ever built from what a client sent.
"""

from __future__ import annotations

MALFORMED = 0x81
TOPIC_FILTER_INVALID = 0x8F
TOPIC_NAME_INVALID = 0x90

_SHARE = b"$share/"
_HASH = 35  # "#"
_DOLLAR = 36  # "$"
_PLUS = 43  # "+"
_SLASH = 47  # "/"


def split_share(filter: bytes) -> tuple[bytes | None, bytes]:
    """Split `$share/{group}/{filter}` into (group, filter); every other filter is (None, filter).

    Takes a filter as it is: a malformed one gives an empty group or filter, which `check_topic_filter` refuses.
    """
    if not filter.startswith(_SHARE):  # [MQTT-4.8.2-1]
        return None, filter
    slash = filter.find(b"/", 7)
    if slash < 0:
        return filter[7:], b""
    return filter[7:slash], filter[slash + 1 :]


def join_share(group: bytes | None, filter: bytes) -> bytes:
    """Return the Topic Filter that `split_share` splits into these two."""
    return filter if group is None else b"".join((_SHARE, group, b"/", filter))


def topic_matches(filter: bytes, topic: bytes) -> bool:
    """Say whether a (checked, unshared) Topic Filter matches a (checked) Topic Name. O(bytes)."""
    return _fits(filter, topic)


def covers(allowed: bytes, requested: bytes) -> bool:
    """Say whether `allowed` matches every Topic Name that `requested` can match. Both checked and unshared. O(bytes)."""
    if requested == b"#" or requested == b"/#":  # no topic is empty: the same sets as "+/#" and "/+/#"
        requested = b"+/#" if requested == b"#" else b"/+/#"
    return _fits(allowed, requested)


def check_topic_name(topic: bytes, max_levels: int, max_bytes: int) -> int:
    """Return 0 when this is a well-formed Topic Name within the limits, else the Reason Code: 0x90, or 0x81 for bad UTF-8."""
    if not topic or len(topic) > max_bytes:  # [MQTT-4.7.3-1], [MQTT-4.7.3-3]
        return TOPIC_NAME_INVALID
    if not _is_text(topic):
        return MALFORMED
    if b"+" in topic or b"#" in topic:  # [MQTT-3.3.2-2], [MQTT-4.7.1-1]
        return TOPIC_NAME_INVALID
    if topic.count(b"/") >= max_levels:
        return TOPIC_NAME_INVALID
    return 0


def check_topic_filter(filter: bytes, max_levels: int, max_bytes: int) -> int:
    """Return 0 when this is a well-formed Topic Filter within the limits, else the Reason Code: 0x8F, or 0x81 for bad UTF-8.

    `max_bytes` holds for the whole, `max_levels` for what follows `$share/{group}/`.
    """
    if len(filter) > max_bytes:  # [MQTT-4.7.3-3]
        return TOPIC_FILTER_INVALID
    if not _is_text(filter):
        return MALFORMED
    group, inner = split_share(filter)
    if group is not None and (not group or b"+" in group or b"#" in group):  # [MQTT-4.8.2-1], [MQTT-4.8.2-2]
        return TOPIC_FILTER_INVALID
    if not inner or inner.count(b"/") >= max_levels:  # [MQTT-4.7.3-1]
        return TOPIC_FILTER_INVALID
    if not _has_valid_wildcards(inner):
        return TOPIC_FILTER_INVALID
    return 0


def _is_text(text: bytes) -> bool:
    if b"\0" in text:  # [MQTT-1.5.4-2], [MQTT-4.7.3-2]
        return False
    if text.isascii():
        return True
    try:
        text.decode("utf-8")  # refuses surrogates and over-long forms, keeps U+FEFF [MQTT-1.5.4-1], [MQTT-1.5.4-3]
    except UnicodeDecodeError:
        return False
    return True


def _has_valid_wildcards(filter: bytes) -> bool:
    if b"+" not in filter and b"#" not in filter:
        return True
    chars = filter
    last = len(filter) - 1
    for i in range(last + 1):
        char = chars[i]
        if char != _PLUS and char != _HASH:
            continue
        if i > 0 and chars[i - 1] != _SLASH:  # alone in its level [MQTT-4.7.1-1], [MQTT-4.7.1-2]
            return False
        if char == _HASH and i < last:  # "#" is the last character
            return False
        if i < last and chars[i + 1] != _SLASH:
            return False
    return True


def _fits(pattern: bytes, text: bytes) -> bool:
    """Compare a filter with a Topic Name, or with another filter: there only "#" fits "#", and "+" no literal."""
    a = pattern
    b = text
    end_a = len(pattern)
    end_b = len(text)
    i = 0
    j = 0
    if end_a > 0 and end_b > 0 and b[0] == _DOLLAR and (a[0] == _HASH or a[0] == _PLUS):  # [MQTT-4.7.2-1]
        return False
    while i < end_a:  # i and j stand at the beginning of a level
        if a[i] == _HASH:
            return True
        if a[i] == _PLUS:
            if j < end_b and b[j] == _HASH:
                return False
            while j < end_b and b[j] != _SLASH:
                j += 1
            i += 1
        else:
            while i < end_a and a[i] != _SLASH:
                if j >= end_b or a[i] != b[j]:
                    return False
                i += 1
                j += 1
            if j < end_b and b[j] != _SLASH:
                return False
        if i >= end_a:
            return j >= end_b
        if j >= end_b:  # "a/#" matches its parent "a"
            return end_a - i == 2 and a[i + 1] == _HASH
        i += 1
        j += 1
    return j >= end_b
