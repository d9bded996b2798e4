"""Text as YAML or JSON becomes plain values, or is refused with the place."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable

import pytest

from iothub.base.documents import MOST_LEVELS, NotJsonError, read_document, read_json
from iothub.base.errors import ConfigError


@pytest.mark.parametrize(
    ("content", "found"),
    [
        (b"a: [1, -2.5, x, true, null, ~, yes, off, 1e3]", {"a": [1, -2.5, "x", True, None, None, True, False, "1e3"]}),
        (b'{"a": [1, 2.5, "x", true, null]}', {"a": [1, 2.5, "x", True, None]}),
        (b"{a: b, c: [d]}", {"a": "b", "c": ["d"]}),
        (b" [1]", [1]),
        ("\ufeffname: \u00e9".encode(), {"name": "\u00e9"}),
        (b"- &d {a: 1}\n- *d\n- [*d, *d]", [{"a": 1}, {"a": 1}, [{"a": 1}, {"a": 1}]]),
        (b"a: '2026-01-02'\nb: !!str 5\nc: \"12:30\"", {"a": "2026-01-02", "b": "5", "c": "12:30"}),
        (b"", None),
        (b"[]", []),
        (b"[" * 31 + b"7" + b"]" * 31, json.loads("[" * 31 + "7" + "]" * 31)),
    ],
)
def test_yaml_and_json_are_plain_values(content: bytes, found: object) -> None:
    assert read_document(content) == found


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"a: [", "expected YAML or JSON: "),
        (b'{"a": 1', "expected YAML or JSON: "),
        (b"a: \xff", "expected UTF-8: invalid start byte at octet 3"),
        (b"a: *b", "expected YAML or JSON: found undefined alias"),
        (b"a: !!python/name:os.system", "line 1: nothing is a python/name:os.system in YAML"),
        (b"a: !own {b: c}", "line 1: a !own of YAML is not read"),
        (
            b"tenants: [{since: 2026-01-02}]",
            "line 1: 2026-01-02 is a date in YAML: put it in quotes if it is a text",
        ),
        (b"a: 2026-02-30", "line 1: 2026-02-30 is a date in YAML"),
        (b"a:\n  b: 12:30", "line 2: 12:30 is a number in YAML"),
        (b"a: 010", "line 1: 010 is a number in YAML"),
        (b"a: 0x1f", "line 1: 0x1f is a number in YAML"),
        (b"a: .inf", "line 1: .inf is a number in YAML"),
        (b"a: !!bool x", "line 1: x is a bool in YAML"),
        (b"a: !!int ''", "line 1: nothing is a number in YAML"),
        (b"a: !!timestamp {=: x}", "line 1: a timestamp of YAML is not read"),
        (b"a: !!set {b}", "line 1: a set of YAML is not read"),
        (b"a: &a {b: 1}\nc: {<<: *a}", "line 2: merges (`<<`) are not read"),
        (b"a: {1: b}", "line 1: expected a text as a name: put it in quotes"),
        (b"yes: b", "line 1: expected a text as a name"),
        (b"? [a]\n: b", "line 1: expected a text as a name"),
        (b"? !!str [a]\n: b", "line 1: a str of YAML is not read"),
        (b"a: 1\nb:\n  - c: 1\n    d: 2\n    c: 3\n", "line 5: `c` is given twice in one object"),
        (b'{"a": 1,\n "b": {"c": 1, "c": 2}}', "line 2: `c` is given twice in one object"),
        (b"a: &a [*a]", f"line 1: expected at most {MOST_LEVELS} lists and objects in each other"),
        (b"a: !!map x", "line 1: x is a map in YAML"),
        (b"a: !!seq x", "line 1: x is a seq in YAML"),
        (b"a: !!seq {b: c}", "line 1: a seq of YAML is not read"),
        (b"a: !!map [b]", "line 1: a map of YAML is not read"),
        (b"a: !!str [b]", "line 1: a str of YAML is not read"),
        (b"!!str {a: 1}", "line 1: a str of YAML is not read"),
        (b"a: " + b"[" * 200 + b"]" * 200, f"line 1: expected at most {MOST_LEVELS} lists and objects in each other"),
        (b"[" * 33 + b"]" * 33, f"line 1: expected at most {MOST_LEVELS} lists and objects in each other"),
        (b"[" * 100_000, "expected YAML or JSON: "),
    ],
)
def test_what_cannot_be_plain_values_is_refused_with_the_place(content: bytes, reason: str) -> None:
    with pytest.raises(ConfigError) as refused:
        read_document(content)

    assert reason in str(refused.value)


@pytest.mark.parametrize(
    "lines",
    [
        ["a0: &a0 [x, x, x]", *(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12))],
        [f"a: &a {'x' * 200_000}", f"b: [{', '.join(['*a'] * 1_000)}]"],
        [f"a: &a {{{'x' * 1_000}: 1}}", f"b: [{', '.join(['*a'] * 100_000)}]"],
    ],
)
def test_few_lines_of_aliases_do_not_become_billions_of_characters(lines: list[str]) -> None:
    with pytest.raises(ConfigError, match=r"aliases .* make too much of it"):
        read_document("\n".join(lines).encode())


def test_what_takes_long_to_read_is_not_read() -> None:
    """Numbers of base 60 and a name given twice among many take a time that grows with the square of their length, done simply."""
    with pytest.raises(ConfigError, match="is a number in YAML"):
        read_document(b"a: 1" + b":1" * 100_000)
    members = [f'"{number}": 0' for number in range(200_000)]
    with pytest.raises(ConfigError, match="`7` is given twice"):
        read_json(f"{{{', '.join([*members, members[7]])}}}".encode())


@pytest.mark.parametrize("read", [read_json, read_document])
@pytest.mark.parametrize(
    ("content", "place"),
    [
        (rb'{"tenants": [{"name": "a"}, {"name": "b\ud800"}]}', "`tenants[1].name`"),
        (rb'{"a": {"\udfff": 1}}', r"`a.\udfff`"),
        (rb'["\ud83d\ude00", "\ude00\ud83d"]', "`[1]`"),
    ],
)
def test_half_of_a_character_is_refused_with_its_place(
    read: Callable[[bytes], object], content: bytes, place: str
) -> None:
    """JSON can spell one out, and no store can write it."""
    with pytest.raises(ConfigError, match=re.escape(f"{place} has half of a character (a lone surrogate)")) as refused:
        read(content)

    assert not isinstance(refused.value, NotJsonError)


def test_looking_for_half_of_a_character_takes_no_longer_than_reading() -> None:
    """Whoever may send a megabyte must not keep others waiting for more: no place is made of what is whole."""
    content = json.dumps({"x" * 500_000: [1] * 150_000 + ["\ud800"]}).encode()
    began = time.process_time()
    json.loads(content)
    read_s = time.process_time() - began

    with pytest.raises(ConfigError, match=r"xxx\[150000\]` has half of a character"):
        read_json(content)

    assert time.process_time() - began < 1 + 50 * read_s


@pytest.mark.parametrize("content", ["\U0001f600", "\ud83d\ude00", r"\ud83d\ude00", "\\\\ud800"])
def test_whole_characters_are_read(content: str) -> None:
    document = json.dumps({"a": [content]})

    assert read_json(document.encode()) == read_document(document.encode()) == json.loads(document)


@pytest.mark.parametrize("content", [b"", b"{", b"a: 1", b"[" * 100_000, b"\xff", b"{'a': 1}"])
def test_what_is_no_json_is_named_so(content: bytes) -> None:
    with pytest.raises(NotJsonError, match="expected JSON: "):
        read_json(content)


def test_large_yaml_is_refused_and_large_json_is_not() -> None:
    """JSON that is broken is not tried as YAML then: its own message has the line."""
    large = b'{"a": "' + b"x" * 2048 + b'"}'

    assert read_document(b"\xef\xbb\xbf" + large, 1024) == {"a": "x" * 2048}
    with pytest.raises(ConfigError, match=r"expected JSON: .*line 1"):
        read_document(large[:-1], 1024)
    with pytest.raises(ConfigError, match="of YAML: write it as JSON"):
        read_document(b"a: " + b"x" * 2048, 1024)


def test_export_as_json_is_the_same_read_as_yaml() -> None:
    """Whatever begins as JSON does is tried as JSON first."""
    document = {"tenants": [{"tenant": {"name": "acme"}, "rules": ["allow * both #"]}]}
    text = json.dumps(document)

    assert read_document(text.encode()) == read_document(f"# an export\n{text}".encode()) == document
