"""Stored JSON, as fast as it can be read, says what `json` says; what UTF-8 cannot have is no text."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iothub.records.json_text import read_json, require_utf8

scalars = st.none() | st.booleans() | st.integers() | st.text()
values = st.recursive(scalars, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=10)


@given(values, st.booleans())
def test_record_is_read_as_json_reads_it(value: object, is_ascii: bool) -> None:
    octets = json.dumps(value, ensure_ascii=is_ascii).encode("utf-8", "replace")

    assert read_json(octets) == json.loads(octets)


@given(st.binary())
def test_what_is_no_json_is_refused(octets: bytes) -> None:
    try:
        expected = json.loads(str(octets, "utf-8"))
    except ValueError:
        with pytest.raises(ValueError):
            read_json(octets)
    else:
        assert repr(read_json(octets)) == repr(expected)  # NaN, too


@pytest.mark.parametrize("octets", [b"", b"{", b'{"v":1}x', b'{"v":1}{}', b"\xef\xbb\xbf{}"])
def test_half_a_record_and_more_than_one_are_refused(octets: bytes) -> None:
    with pytest.raises(json.JSONDecodeError):
        read_json(octets)


@pytest.mark.parametrize("octets", [b'{"v":1} \n', b'\t{"v":1}'])
def test_white_space_around_a_record_is_none_of_it(octets: bytes) -> None:
    assert read_json(octets) == {"v": 1}


@pytest.mark.parametrize("octets", [b'"\\ud800"', b'["\\n", "\\udfff"]'])
def test_half_a_character_is_refused(octets: bytes) -> None:
    with pytest.raises(UnicodeEncodeError):
        require_utf8(octets, read_json(octets))


@pytest.mark.parametrize("octets", [b'"\\ud83d\\ude00"', b'"\\n"', b'"\\\\u"', '"ä"'.encode()])
def test_whole_characters_pass(octets: bytes) -> None:
    require_utf8(octets, read_json(octets))
