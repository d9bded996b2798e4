"""What a store on a server says of itself: which installation's it is, namely that whose hub has used it first, and its version.

Knows no store and no accounts; two installations never share a store, for both number their tenants from 1.
A store's version is that of the formats of all its records. Whoever changes one of them raises `VERSION`, and older programs refuse the store
before they read a record; a record by itself of another version is damaged (docs/adr/0017).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from iothub.base.errors import ConflictError, CorruptRecordError
from iothub.records.causes import UNREADABLE, in_words
from iothub.records.json_text import read_json, require_utf8

VERSION = 1

_REMEDY = (
    "where no other accounts have used it, remove what says so (back-ends.md in the guide), and the next start takes it"
)


@dataclass(frozen=True, slots=True)
class Owner:
    """Who a store belongs to. `installation`: the id of the accounts; `hub` and `at_ms`: which hub said so, and when, for people."""

    installation: str
    hub: str
    at_ms: int  # Unix time


def encode_owner(owner: Owner) -> bytes:
    """Return the stored form: JSON."""
    value = {"v": VERSION, "installation": owner.installation, "hub": owner.hub, "at": owner.at_ms}
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def decode_owner(value: bytes, where: str) -> Owner:
    """Read an owner. Raises CorruptRecordError for damage, ConflictError for a store of a newer program, naming `where` it is."""
    try:
        fields: dict[str, Any] = read_json(value)
        version, installation, hub, at_ms = fields["v"], fields["installation"], fields["hub"], fields["at"]
        require_utf8(value, fields)
    except UNREADABLE as error:
        raise CorruptRecordError(f"{where}: the owner record is damaged ({in_words(error)}): {_REMEDY}") from error
    if type(version) is int and version > VERSION:
        raise ConflictError(
            f"{where}: a newer iothub has written this store (its version is {version}, this program knows {VERSION}): upgrade this program"
        )
    is_right = version == VERSION and type(at_ms) is int and isinstance(hub, str)
    if not is_right or not isinstance(installation, str) or not installation:
        raise CorruptRecordError(f"{where}: the owner record is damaged (wrong fields): {_REMEDY}")
    return Owner(installation, hub, at_ms)
