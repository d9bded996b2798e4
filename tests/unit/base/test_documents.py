"""Text as YAML or JSON becomes plain values, or is refused with the place."""

from __future__ import annotations

import json

import pytest

from iothub.base.documents import MOST_LEVELS, read_document
from iothub.base.errors import ConfigError


@pytest.mark.parametrize(
    ("content", "found"),
    [
        (b"a: [1, 2.5, x, true, null]", {"a": [1, 2.5, "x", True, None]}),
        (b'{"a": [1, 2.5, "x", true, null]}', {"a": [1, 2.5, "x", True, None]}),
        (b"{a: b, c: [d]}", {"a": "b", "c": ["d"]}),
        (b" [1]", [1]),
        ("\ufeffname: \u00e9".encode(), {"name": "\u00e9"}),
        (b"- &d {a: 1}\n- {<<: *d, b: 2}\n- *d", [{"a": 1}, {"a": 1, "b": 2}, {"a": 1}]),
        (b"a: &a {x: 1, y: 2}\nb: {<<: *a, x: 3}", {"a": {"x": 1, "y": 2}, "b": {"x": 3, "y": 2}}),
        (b"", None),
        (b"[]", []),
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
        (b"a: !!python/name:os.system", "expected YAML or JSON: "),
        (b"tenants: [{since: 2026-01-02}]", "tenants[0].since: 2026-01-02 is a date in YAML: put it in quotes"),
        (b"a: 2026-02-30", "a text that looks like a date needs quotes"),
        (b"a: !!set {b}", "a: {'b'} is a set in YAML: put it in quotes"),
        (b"a: {1: b}", "a: the name 1 is no text: put it in quotes"),
        (b"yes: b", "the file: the name True is no text: put it in quotes"),
        (b"a: 1\nb:\n  - c: 1\n    d: 2\n    c: 3\n", "line 5: `c` is given twice in one object"),
        (b'{"a": 1,\n "b": {"c": 1, "c": 2}}', "line 2: `c` is given twice in one object"),
        (b"a: &a [*a]", f"expected at most {MOST_LEVELS} lists and objects in each other"),
        (b"a: " + b"[" * 200 + b"]" * 200, f"expected at most {MOST_LEVELS} lists and objects in each other"),
        (b"[" * 100_000, "expected YAML or JSON: "),
    ],
)
def test_what_cannot_be_plain_values_is_refused_with_the_place(content: bytes, reason: str) -> None:
    with pytest.raises(ConfigError) as refused:
        read_document(content)

    assert reason in str(refused.value)


def test_few_lines_of_aliases_do_not_become_billions_of_values() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]

    with pytest.raises(ConfigError, match=r"expected at most 5,000,000 values, with aliases"):
        read_document("\n".join(lines).encode())


def test_export_as_json_is_the_same_read_as_yaml() -> None:
    """Whatever begins as JSON does is tried as JSON first."""
    document = {"tenants": [{"tenant": {"name": "acme"}, "rules": ["allow * both #"]}]}
    text = json.dumps(document)

    assert read_document(text.encode()) == read_document(f"# an export\n{text}".encode()) == document
