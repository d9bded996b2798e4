"""Stored JSON: read fast, and never what could not be written again.

Knows no format.
"""

from __future__ import annotations

import json
from typing import Any

_write = json.JSONEncoder(ensure_ascii=False, check_circular=False).encode
_decoder = json.JSONDecoder()


def read_json(octets: bytes) -> Any:
    """Return what a record says. Raises ValueError, RecursionError.

    `json.loads` of octets would guess at their encoding, and look for white space around them, which no record of ours has.
    """
    text = str(octets, "utf-8")
    try:
        value, end = _decoder.raw_decode(text)
    except json.JSONDecodeError:
        return _decoder.decode(text)
    return value if end == len(text) else _decoder.decode(text)


def require_utf8(octets: bytes, read: object) -> None:
    r"""Raise UnicodeEncodeError when JSON spells out half a character (`"\ud800"`): whatever has it could not be written again.

    `read`: what was read of these octets. Costs next to nothing where no character is spelled out: one octet is found faster than two.
    """
    if b"\\" in octets and b"\\u" in octets:
        _write(read).encode()
